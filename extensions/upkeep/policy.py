"""How much of a home's past is kept."""

from typing import Annotated

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass as pydantic_dataclass

DAY = 86_400.0


@pydantic_dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class KeepPolicy:
    """What `toolmill gc` leaves. A version that is one of the last ones, or was current at any time
    of the last days, can be read as of its time; so can what a kept release names."""

    versions: Annotated[int, Field(ge=1, description="last versions of each table")] = 10
    days: Annotated[float, Field(ge=0, description="as-of reads reach back as far")] = 30.0
    grace_days: Annotated[
        float, Field(ge=1 / 24, description="nothing that was written later is removed")
    ] = 7.0
    event_days: Annotated[
        float, Field(ge=1, description="how long Dagster's finished runs and their events stay")
    ] = 60.0
