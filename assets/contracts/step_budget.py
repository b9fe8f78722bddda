"""Work: how many steps one question about untrusted schemas may take.

Steps are counted, so that the same schemas get the same answer on any machine; only a pattern that
is slow is charged by the clock, as there is no other way to see inside one. A step is some 20 µs.
Measured before there was a limit: two contracts of 3 kB whose `allOf` doubles at each of 18 levels
took 59 s to compare, and twice that for each level more.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

_STEPS_PER_SECOND = 50_000
_FREE_S = 0.002  # what any search may take before it is charged by the clock


class TooMuchWork(Exception):
    """The steps of a limit are spent."""


@dataclass
class StepLimit:
    """Steps that are left."""

    left: int


_LIMITS: ContextVar[tuple[StepLimit, ...]] = ContextVar("limits", default=())


@contextmanager
def limit_steps(steps: int | StepLimit) -> Iterator[StepLimit]:
    """Within the block at most so many steps are taken, those of outer limits included.

    Raises TooMuchWork at the step that goes beyond.
    """
    limit = steps if isinstance(steps, StepLimit) else StepLimit(steps)
    token = _LIMITS.set((*_LIMITS.get(), limit))
    try:
        yield limit
    finally:
        _LIMITS.reset(token)


def spend_steps(steps: int = 1) -> None:
    """Takes steps from every limit that holds here; without one there is nothing to count."""
    spent = False
    for limit in _LIMITS.get():
        limit.left -= steps
        spent = spent or limit.left < 0
    if spent:
        raise TooMuchWork


def spend_seconds(seconds: float) -> None:
    """Takes the steps that a slow search has cost."""
    if seconds > _FREE_S:
        spend_steps(int(seconds * _STEPS_PER_SECOND))
