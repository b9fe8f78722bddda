"""Progress of long work through one small interface: a line on a terminal, log lines in Dagster.

What belongs here: how to say how far a stage is. What does not: what the stages are.
"""

import time
from collections.abc import Callable
from typing import Protocol


class Progress(Protocol):
    """Told by long work how far it is."""

    def update(self, stage: str, done: int, total: int, **figures: float | int | str) -> None: ...


class Silent:
    """Says nothing; the default of every function that reports progress."""

    def update(self, stage: str, done: int, total: int, **figures: float | int | str) -> None:
        return


class Lines:
    """Writes a line per stage at most every `every_s` seconds, and always the last one."""

    def __init__(self, write: Callable[[str], None], every_s: float = 3.0) -> None:
        self._write = write
        self._every_s = every_s
        self._last: dict[str, float] = {}

    def update(self, stage: str, done: int, total: int, **figures: float | int | str) -> None:
        now = time.monotonic()
        if done < total and now - self._last.get(stage, 0.0) < self._every_s:
            return
        self._last[stage] = now
        detail = " ".join(f"{name}={value}" for name, value in figures.items())
        self._write(f"{stage} {done}/{total} {detail}".rstrip())
