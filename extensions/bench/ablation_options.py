"""What a user sets of the ablations; light, since the settings are read by every command."""

from typing import Annotated, Literal, get_args

from pydantic import ConfigDict, Field, field_validator
from pydantic.dataclasses import dataclass

Arm = Literal["filtered", "raw", "raw_all", "random", "plain", "mixed"]
ARMS: tuple[Arm, ...] = get_args(Arm)
RETRIEVER, CALLER = ("retriever", "caller")


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class AblationOptions:
    """What a user sets of the ablations."""

    roles: Annotated[
        tuple[Literal["retriever", "caller"], ...],
        Field(min_length=1, description="`caller` takes minutes an arm, on the model chosen"),
    ] = (RETRIEVER,)
    arms: Annotated[tuple[Arm, ...], Field(min_length=1)] = ARMS
    seeds: Annotated[tuple[int, ...], Field(min_length=1)] = (7, 8, 9)
    caller_items: Annotated[int, Field(ge=1, description="a split; each is a generation")] = 60

    @field_validator("seeds")
    @classmethod
    def _check_different(cls, seeds: tuple[int, ...]) -> tuple[int, ...]:
        if len(set(seeds)) < len(seeds):
            raise ValueError("expected different whole numbers")
        return seeds
