"""How much an observation counts: by its age, and by who made it."""

from typing import Annotated

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class ReliabilityPolicy:
    """What the calls that really ran are worth. Tables hold every observation all the same: another
    policy counts them anew."""

    half_life_days: float = Field(
        default=30.0, gt=0, le=3650, description="after which a call counts half"
    )
    per_day: float = Field(
        default=20.0, gt=0, description="most that a token's calls of a tool count, per day"
    )
    alone: float = Field(
        default=100.0,
        gt=0,
        description="most that a token's calls of a tool count where other sources have fewer",
    )
    claims: float = Field(
        default=0.25, ge=0, le=1, description="what a report of no call here counts"
    )
    claims_together: float = Field(
        default=1.0, ge=0, description="most that all claims of a token of a tool count, in calls"
    )
    weights: dict[str, Annotated[float, Field(ge=0, le=10)]] = Field(
        default={}, description="what calls of a source count, as token:NAME or execution"
    )
