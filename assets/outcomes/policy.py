"""How many accepted calls are executed, of which tools, and for how long."""

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class ExecutionPolicy:
    """What is executed of a marketplace's accepted pairs. Servers run as the nightly launches do,
    each in a disposable world, without what the user granted them but the network."""

    enabled: bool = True
    per_tool: int = Field(default=1, ge=1, le=20, description="calls of each tool")
    refused: int = Field(
        default=8, ge=0, description="calls of pairs that rules or judge refused, besides"
    )
    writes: bool = Field(
        default=True, description="tools that may change something too, where nothing of yours is"
    )
    calls: int = Field(default=400, ge=0, description="most calls that one run begins")
    seconds: float = Field(
        default=30.0, ge=0, description="after which a run begins no further call; the next goes on"
    )
    timeout_s: float = Field(default=5.0, gt=0, le=300, description="for an answer")
    seed: int = Field(default=7, ge=0, description="of the worlds")
    prove: bool = Field(
        default=True, description="calls that change a world are made with other arguments too"
    )
