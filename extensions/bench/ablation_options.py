"""What a user sets of the ablations; light, since the settings are read by every command."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

RETRIEVER, CALLER = ("retriever", "caller")


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class AblationOptions:
    """What a user sets of the ablations."""

    roles: Annotated[
        tuple[Literal["retriever", "caller"], ...],
        Field(min_length=1, description="`caller` takes minutes an arm, on the model chosen"),
    ] = (RETRIEVER,)
