"""The settings of disposable worlds: `[worlds]` in toolmill.toml."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field


class Worlds(BaseModel):
    """Where the user's own worlds are described."""

    model_config = ConfigDict(extra="forbid")

    paths: tuple[Path, ...] = Field(
        default=(), description="world files, or folders that hold them (worlds.md)"
    )
