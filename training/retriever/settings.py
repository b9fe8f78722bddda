"""Hyper-parameters of the retriever, checked."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from training.runtime.model_store import TrainingFailed

HARD, RANDOM = "hard", "random"


@dataclass(frozen=True)
class RetrieverSettings:
    """Hyper-parameters; together with the training set and the base they name the adapter."""

    rank: int = 16
    alpha: int = 32
    dropout: float = 0.0  # of the adapter; the base's own is off, see `retriever_passes.py`
    learning_rate: float = 1e-3
    epochs: int = 3
    tools: int = 24  # tools a batch, each with all its pairs
    negatives: int = 1  # drawn per tool and epoch, beside the batch's other tools
    distractors: str = HARD  # from the confusable audit, or RANDOM: any other tools
    first_layer: int = 3  # layers below this one stay as they are
    temperature: float = 0.05
    query_tokens: int = 48
    text_tokens: int = 96
    hold_tokens: int = 3072  # whose graph is held at once; the rest of a batch is computed twice
    cache_mb: int = 512  # of what the frozen layers say of each text, once and for all epochs
    checkpoint_steps: int = 10
    seed: int = 7
    device: str = "auto"
    threads: int | None = None


_WHOLE = (
    "rank", "alpha", "epochs", "tools", "query_tokens", "text_tokens", "hold_tokens",
    "checkpoint_steps",
)  # fmt: skip
_FROM_ZERO = ("negatives", "first_layer", "cache_mb")


def read_settings(values: Mapping[str, Any]) -> RetrieverSettings:
    """Settings out of a job. Raises TrainingFailed naming the value that cannot be used."""
    known = {each.name for each in fields(RetrieverSettings)}
    strange = sorted(values.keys() - known)
    if strange:
        raise TrainingFailed(
            f"retriever setting {strange[0]!r} is unknown; expected some of"
            f" {', '.join(sorted(known))}"
        )
    made = RetrieverSettings(**values)
    for names, least in ((_WHOLE, 1), (_FROM_ZERO, 0)):
        for name in names:
            _require_at_least(name, getattr(made, name), least)
    for name in ("learning_rate", "temperature"):
        if not getattr(made, name) > 0:
            raise TrainingFailed(
                f"retriever {name} is {getattr(made, name)!r}; expected a number above 0"
            )
    if not 0 <= made.dropout < 1:
        raise TrainingFailed(f"retriever dropout is {made.dropout!r}; expected 0 to below 1")
    if made.distractors not in (HARD, RANDOM):
        raise TrainingFailed(
            f"retriever distractors is {made.distractors!r}; expected {HARD} or {RANDOM}"
        )
    return made


def _require_at_least(name: str, value: Any, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise TrainingFailed(f"retriever {name} is {value!r}; expected a whole number from {least}")
