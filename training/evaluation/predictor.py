"""Who answers: the one interface of everything that can be asked to write a call."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from training.prompts.call_text import parse_calls
from warehouse.errors import UnusableInput

PredictorKind = Literal["adapter", "endpoint", "baseline"]
OnDone = Callable[[int, int], None]  # answered so far, of how many


class CannotPredict(RuntimeError):
    """A model that cannot be asked at all: what is wrong with it, and the fix."""


class UnusableModel(CannotPredict, UnusableInput):
    """A model that was given and is not there, or cannot be loaded."""


@dataclass(frozen=True)
class PredictionRequest:
    """A request with its tools. `keep`: tools that stay in a short context (the right ones, as in
    training). `before`: the conversation to go on with, its first request included, () for none."""

    item_id: str
    instruction: str
    tools: list[dict[str, Any]]
    keep: frozenset[str] = frozenset()
    before: tuple[Mapping[str, Any], ...] = field(default=(), repr=False)

    @property
    def request_text(self) -> str:
        """All that the user said and tools answered, as one text: what is read without a model."""
        contents = [item["content"] for item in self.before if item["role"] in ("user", "tool")]
        return "\n".join(contents) or self.instruction


@dataclass(frozen=True)
class PredictionAnswer:
    """`kind` as in `answers.Parsed`; `shown`: tools that fitted (None: all); `seconds`: None out of
    the ledger; `error`: why no answer came, no fault of the model; `cut`: ended at its limit;
    `facts`: for a benchmark's row."""

    calls: list[dict[str, Any]]
    kind: str
    text: str = field(default="", repr=False)
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float | None = 0.0
    usd: float = 0.0
    error: str | None = None
    shown: int | None = None
    cut: bool = False
    facts: Mapping[str, Any] = field(default_factory=dict)


class Predictor(Protocol):
    """`predict` answers in the order of what is asked and never raises for one item's sake."""

    @property
    def label(self) -> str: ...

    @property
    def kind(self) -> PredictorKind: ...

    def predict(
        self, requests: Sequence[PredictionRequest], on_done: OnDone | None = None
    ) -> list[PredictionAnswer]: ...


def parse_answer(text: str, **spent: Any) -> PredictionAnswer:
    read = parse_calls(text)
    return PredictionAnswer(read.calls, read.kind, text, **spent)


def make_failed_answer(error: str, **spent: Any) -> PredictionAnswer:
    return PredictionAnswer([], "no_call", error=error, **spent)
