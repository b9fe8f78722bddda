"""What an agent's run is: its limits, its calls, how it ended."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from serving.discovery.session import Round
from warehouse.llm.chat import Turn

PLANNED, ANSWERED, EMPTY, TURN_LIMIT, BUDGET = (
    "planned",
    "answered",
    "empty",
    "turn_limit",
    "budget",
)
UNKNOWN_TOOL, TOO_MANY = "unknown_tool", "too_many_calls"


class Speaker(Protocol):
    """Who takes part in a conversation: a model behind an endpoint (`warehouse.llm.chat.Chat`), a
    local one, or rules."""

    async def say(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]
    ) -> Turn: ...


# (tool id, arguments) -> (status, what the model is told of the result)
Runner = Callable[[str, Any], Awaitable[tuple[str, str]]]
# The calls that stand in a model's text, (name, arguments) each.
ReadCalls = Callable[[str], Sequence[tuple[str, Any]]]


@dataclass(frozen=True)
class AgentLimits:
    """turns: of the model. k: tools shown for a request. rounds, tokens: of asking for tools, and
    of all lines that show them. calls: of one turn. Beyond `offered` tools the oldest are no longer
    among the functions."""

    turns: int = 12
    k: int = 5
    rounds: int = 8
    tokens: int = 4_000
    calls: int = 8
    offered: int = 64


@dataclass(frozen=True)
class AgentCall:
    """One call that the model made. status: planned, or its outcome (`call_tool`'s own);
    tool_id is None for a name that was never shown. shown: what the model was told; of a planned
    call, how it does not fit its contract."""

    name: str
    tool_id: str | None
    arguments: Any
    status: str
    shown: str = field(default="", repr=False)


@dataclass
class AgentRun:
    """One task. ended: planned (calls were made, and none runs here), answered, empty (neither
    words nor calls), turn_limit, budget, or the endpoint's error kind; error: why, of the last two.
    Tokens and dollars are the endpoint's count, `tool_tokens` our estimate of what showing tools
    put into the prompt, once."""

    rounds: list[Round] = field(default_factory=list)
    calls: list[AgentCall] = field(default_factory=list)
    answer: str = ""
    ended: str = TURN_LIMIT
    error: str = ""
    turns: int = 0
    tool_tokens: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    usd: float = 0.0

    @property
    def is_done(self) -> bool:
        """Whether the model itself ended it, by calls that are not run or by an answer."""
        return self.ended in (PLANNED, ANSWERED)

    @property
    def chosen(self) -> list[str]:
        """The tools that were called, in order, each once."""
        return list(dict.fromkeys(call.tool_id for call in self.calls if call.tool_id))
