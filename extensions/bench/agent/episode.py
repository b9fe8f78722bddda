"""What an agent's episode is: its limits, its steps, how it ended."""

from dataclasses import dataclass, field
from typing import Any

from extensions.bench.agent.tasks import Task
from training.evaluation.predictors.interface import Answered

ANSWERED, EMPTY, TURN_LIMIT, BUDGET = "answered", "empty", "turn_limit", "budget"


@dataclass(frozen=True)
class Limits:
    """turns: of the larger model. calls: run in one turn, the others are refused. result_chars: of
    one result that a model is shown."""

    turns: int = 6
    calls: int = 4
    result_chars: int = 6000
    call_timeout_s: float = 30.0


@dataclass(frozen=True)
class Step:
    """One call and its outcome. right: the expected tool ran without an error, with arguments
    that match the golden call. shown: the result as models were shown it."""

    by: str  # small or large
    name: str
    arguments: Any
    status: str
    error_kind: str | None
    right: bool
    shown: str = field(default="", repr=False)


@dataclass
class Episode:
    """A task done in one arm. ended: answered, empty (neither words nor calls), turn_limit, budget,
    or the endpoint's error kind. Tokens and dollars are the larger model's."""

    arm: str
    task: Task
    steps: list[Step] = field(default_factory=list)
    ended: str = TURN_LIMIT
    answer: str = ""
    turns: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    usd: float = 0.0
    seconds: float = 0.0
    small: Answered | None = None

    @property
    def called(self) -> bool:
        return any(step.right for step in self.steps)

    @property
    def success(self) -> bool:
        return self.called and self.ended == ANSWERED
