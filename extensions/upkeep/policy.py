"""How much of a home's past is kept."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass as pydantic_dataclass

DAY = 86_400.0


@pydantic_dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class KeepPolicy:
    days: Annotated[float, Field(ge=0, description="as-of reads reach back as far")] = 30.0


@dataclass(frozen=True)
class GarbageLimits:
    """What `toolmill gc` keeps: a table's last versions, those current in the last days, all
    younger than grace_days. event_days: how long Dagster's finished runs stay."""

    days: float = 30.0
    versions: int = 10
    grace_days: float = 7.0
    event_days: float = 60.0
