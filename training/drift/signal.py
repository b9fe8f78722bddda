"""One signal of drift with its evidence, and when it fires."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

# In the order in which they are shown.
CONTRACTS, EMBEDDINGS, QUERIES = "contracts", "embeddings", "queries"
ACCEPT_RATE, RETRIEVER_DECAY, CALLER_DECAY = "accept_rate", "retriever_decay", "caller_decay"
PHANTOM_CALLS = "phantom_calls"
SIGNALS = (
    *(CONTRACTS, EMBEDDINGS, QUERIES, ACCEPT_RATE),
    *(RETRIEVER_DECAY, CALLER_DECAY, PHANTOM_CALLS),
)


@dataclass(frozen=True)
class Signal:
    """What one signal came to.

    value: the figure that is held against `threshold`, None where it was not measured. n: units
    that it is of. low, high: its 95% interval. p_value: of a test that nothing changed, None where
    everything was counted and nothing is a sample. p_adjusted: by Holm over all tests. why: what
    was found, or why nothing was measured.
    """

    name: str
    value: float | None
    n: int
    threshold: float
    why: str
    low: float | None = None
    high: float | None = None
    p_value: float | None = None
    p_adjusted: float | None = None
    fired: bool = False

    def as_row(self) -> dict[str, Any]:
        """Figures rounded: a last bit that differs between machines makes no new version."""
        digits = {"value": 6, "low": 6, "high": 6, "p_value": 6, "p_adjusted": 6}
        return {
            name: round(value, digits[name]) if name in digits and value is not None else value
            for name, value in asdict(self).items()
        }


def make_unmeasured(name: str, threshold: float, why: str) -> Signal:
    """A signal that there is nothing to measure of."""
    return Signal(name, None, 0, threshold, why)


def judge_signals(signals: Sequence[Signal], alpha: float) -> list[Signal]:
    """The signals with adjusted p-values, and whether each fires: its value reaches its threshold
    and, where it is a test, its p-value adjusted by Holm (1979) is at most `alpha`. However many
    tests there are, the chance that any of them fires by luck stays at `alpha`."""
    adjusted = compute_holm([signal.p_value for signal in signals])
    return [
        replace(one, p_adjusted=p, fired=_reaches_threshold(one) and (p is None or p <= alpha))
        for one, p in zip(signals, adjusted, strict=True)
    ]


def compute_holm(found: Sequence[float | None]) -> list[float | None]:
    """p-values by Holm's step-down; None stays None and counts for no test."""
    tests = sorted((p, at) for at, p in enumerate(found) if p is not None)
    adjusted: list[float | None] = [None] * len(found)
    largest = 0.0
    for rank, (p, at) in enumerate(tests):
        largest = max(largest, min(1.0, p * (len(tests) - rank)))
        adjusted[at] = largest
    return adjusted


def _reaches_threshold(one: Signal) -> bool:
    return one.value is not None and one.value > 0 and one.value >= one.threshold
