"""Where a home lives, and how a machine holds it."""

from typing import Annotated

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass as pydantic_dataclass

_DAY = 1440.0  # minutes


@pydantic_dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class StoragePolicy:
    """A home on this disk alone, or one in a bucket of which the folder is a working copy."""

    bucket: Annotated[
        str | None,
        Field(description="s3://BUCKET/PREFIX of the home; default: this disk"),
    ] = None
    commit_minutes: Annotated[
        float, Field(gt=0, le=_DAY, description="how often a run commits what it made so far")
    ] = 5.0
    lease_minutes: Annotated[
        float,
        Field(gt=0, le=_DAY, description="after which a machine that is silent has lost the home"),
    ] = 5.0
    wait_minutes: Annotated[
        float,
        Field(ge=0, le=7 * _DAY, description="how long a run waits for another machine to let go"),
    ] = 0.0
    versions: Annotated[int, Field(ge=1, description="last commits that `toolmill gc` leaves")] = 10
