"""How a training set is made: the numbers of its splits, leaks and negatives."""

from dataclasses import asdict, dataclass
from datetime import date
from typing import Annotated, Any

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass as pydantic_dataclass


class BadPolicy(ValueError):
    """Settings of a training set that cannot be meant."""


@pydantic_dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class SplitSettings:
    """What is never trained on, as a user can set it. The side of a server is frozen and no
    setting moves it."""

    cutoff: Annotated[
        date | None, Field(description="UTC; servers first seen later are only tested on")
    ] = None
    unseen_tools: Annotated[float, Field(ge=0, le=0.5, description="of a train server's tools")] = (
        0.1
    )
    seen_tools: Annotated[float, Field(ge=0, le=0.5, description="of a train tool's pairs")] = 0.12


@dataclass(frozen=True)
class SetPolicy(SplitSettings):
    """How a training set is made. Shares are of servers, of tools of train servers, and of pairs of
    trained tools."""

    test_share: float = 0.3
    negatives: int = 12
    twin_cosine: float = 0.97  # a "negative" this close is the same tool under another name
    near_cosine: float = 0.95  # requests this close are one request: as synthesis counts twins

    def __post_init__(self) -> None:
        for name in ("test_share", "unseen_tools", "seen_tools"):
            share = getattr(self, name)
            if not 0 <= share <= 1:
                raise BadPolicy(f"training set: {name} is {share}; expected a share from 0 to 1")
        for name in ("twin_cosine", "near_cosine"):
            if not 0 < getattr(self, name) <= 1:
                raise BadPolicy(
                    f"training set: {name} is {getattr(self, name)}; expected above 0, up to 1"
                )
        if self.negatives < 0:
            raise BadPolicy(f"training set: negatives is {self.negatives}; expected 0 or more")
        if isinstance(self.cutoff, str):
            object.__setattr__(self, "cutoff", _parse_day(self.cutoff))

    def as_dict(self) -> dict[str, Any]:
        """As JSON; the cutoff as `2026-11-22`."""
        return {**asdict(self), "cutoff": self.cutoff.isoformat() if self.cutoff else None}


def _parse_day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise BadPolicy(
            f"training set: cutoff {text[:60]!r} is no date; expected a UTC day as 2026-11-22"
        ) from None
