"""How much of a home's past is kept."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass as pydantic_dataclass

DAY = 86_400.0


@pydantic_dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class KeepPolicy:
    """What a user can set of what `toolmill gc` leaves."""

    days: Annotated[float, Field(ge=0, description="as-of reads reach back as far")] = 30.0


@dataclass(frozen=True)
class GarbageLimits:
    """What `toolmill gc` leaves. A version that is one of the last ones, or was current at any time
    of the last days, can be read as of its time; so can what a kept release names. grace_days:
    nothing that was written later is removed. event_days: how long Dagster's finished runs stay."""

    days: float = 30.0
    versions: int = 10
    grace_days: float = 7.0
    event_days: float = 60.0
