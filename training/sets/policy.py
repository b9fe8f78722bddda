"""How a training set is made: the numbers of its splits, leaks and negatives."""

from dataclasses import asdict
from datetime import date
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

Cosine = Annotated[float, Field(gt=0, le=1)]


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class SplitSettings:
    """What is never trained on, as a user can set it. The side of a server is frozen and no
    setting moves it."""

    cutoff: Annotated[
        date | None, Field(description="UTC; servers first seen later are only tested on")
    ] = None
    unseen_tools: Annotated[float, Field(ge=0, le=0.5, description="of a train server's tools")] = (
        0.1
    )
    executed: Annotated[
        Literal["any", "valid", "proved"],
        Field(description="pairs by their executed calls: valid drops invalid responses"),
    ] = "any"
    seen_tools: Annotated[float, Field(ge=0, le=1, description="of a train tool's pairs")] = 0.12
    trajectories: Annotated[
        bool, Field(description="learn from the trajectories that `toolmill trajectories` kept")
    ] = False


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class SetPolicy(SplitSettings):
    """How a training set is made. Shares are of servers, of tools of train servers, and of pairs of
    trained tools."""

    test_share: Annotated[float, Field(ge=0, le=1)] = 0.3
    negatives: Annotated[int, Field(ge=0)] = 12
    twin_cosine: Cosine = 0.97  # a "negative" this close is the same tool under another name
    near_cosine: Cosine = 0.95  # requests this close are one request: as synthesis counts twins

    def as_dict(self) -> dict[str, Any]:
        """As JSON; the cutoff as `2026-11-22`."""
        return {**asdict(self), "cutoff": self.cutoff.isoformat() if self.cutoff else None}
