"""Whether READMEs of servers that nobody could launch are read in a run, and how many."""

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class ReadmeOptions:
    """What a user sets of it. Off: each README is a request to another site, and one to the
    generator's endpoint where a model reads."""

    enabled: bool = Field(
        default=False, description="list tools by the READMEs of servers that list none"
    )
    most: int = Field(default=100, ge=1, description="READMEs that a run asks for anew")
    refresh_days: int = Field(default=30, ge=1, description="one is asked for again")
    requests_per_second: float = Field(default=1.0, gt=0, le=10)
    base_url: str = Field(
        default="https://raw.githubusercontent.com",
        pattern=r"^https?://[^\s/?#]+$",
        description="where the files of GitHub's repositories are served",
    )
