"""Settings of executions and of reliability; imports nothing heavy."""

from typing import Annotated

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

EXECUTION = "execution"  # source of the calls that Toolmill executes itself
TOKEN = "token:"  # source of a client's calls: followed by the name of its token
BLAMED = ("tool", "server")  # whose faults count against a tool
WRONG_TOOL = "wrong_tool"  # kind of a call that the tool answered but another tool was right for
OVERLAY, OVERLAY_FORMAT = "RELIABILITY.json", 1  # beside the router's index


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class ExecutionPolicy:
    """What is executed of a marketplace's accepted pairs. Servers run as in the nightly launches,
    each in a disposable world, and keep of the user's grants only the network."""

    enabled: bool = True
    per_tool: int = Field(
        default=1, ge=1, le=20, description="calls of each tool, without those explored"
    )
    writes: bool = Field(
        default=True,
        description="also call tools that may write, where nothing of yours is at risk",
    )
    calls: int = Field(default=400, ge=0, description="most calls that one run starts")
    seconds: float = Field(
        default=30.0, ge=0, description="after which a run starts no call; the next run continues"
    )
    timeout_s: float = Field(default=5.0, gt=0, le=300, description="seconds to wait for an answer")
    seed: int = Field(default=7, ge=0, description="seed of the worlds")
    explore: int = Field(
        default=3, ge=0, le=20, description="useful calls of each tool to look for; 0: none"
    )
    explore_calls: int = Field(
        default=150, ge=0, le=5000, description="most calls that are tried of one server"
    )
    prove: bool = Field(
        default=True, description="try wrong calls of a world's tasks, which its check must catch"
    )


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class ReliabilityPolicy:
    """How much an observed call counts. Observations are stored in full: another policy counts
    them again."""

    half_life_days: float = Field(
        default=30.0, gt=0, le=3650, description="days after which a call counts half"
    )
    per_day: float = Field(
        default=20.0, gt=0, description="most calls of one tool that count per token and day"
    )
    alone: float = Field(
        default=100.0,
        gt=0,
        description="most calls of one tool that count per token while other sources have fewer",
    )
    claims: float = Field(
        default=0.25, ge=0, le=1, description="weight of a report without a call of ours"
    )
    claims_together: float = Field(
        default=1.0, ge=0, description="most calls that all claims of a token on one tool count as"
    )
    weights: dict[str, Annotated[float, Field(ge=0, le=10)]] = Field(
        default={},
        description="weight of a source's calls, by token:NAME or execution; 0 leaves it out",
    )
