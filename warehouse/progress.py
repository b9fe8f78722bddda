"""Progress of long work through one small interface: a line on a terminal, log lines in Dagster."""

import time
from collections import deque
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
    """Writes a line per stage at most every `every_s` seconds, and always the last one: how much is
    done, the figures told, and when it will end at the pace of the last minutes."""

    def __init__(
        self,
        write: Callable[[str], None],
        every_s: float = 3.0,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._write, self._every_s, self._clock = write, every_s, clock
        self._last: dict[str, float] = {}
        # (when, done) of the lines written last: what came out of a cache in the first second says
        # nothing about the rest.
        self._pace: dict[str, deque[tuple[float, int]]] = {}

    def update(self, stage: str, done: int, total: int, **figures: float | int | str) -> None:
        now = self._clock()
        if stage in self._last and done < total and now - self._last[stage] < self._every_s:
            return
        self._last[stage] = now
        pace = self._pace.setdefault(stage, deque(maxlen=40))
        if pace and done < pace[-1][1]:
            pace.clear()  # the stage began anew
        pace.append((now, done))
        words = [f"{name}={value}" for name, value in figures.items()]
        if (eta := _eta(pace, total)) is not None:
            words.append(f"eta={eta}")
        self._write(" ".join([f"{stage} {done}/{total}", *words]))


def _eta(pace: "deque[tuple[float, int]]", total: int) -> str | None:
    """Time to the end at the pace between the first and the last of `pace`, or None."""
    (began, before), (now, done) = pace[0], pace[-1]
    if done >= total or done <= before or now <= began:
        return None
    seconds = round((total - done) * (now - began) / (done - before))
    if seconds < 120:
        return f"{seconds}s"
    return f"{seconds // 60}m" if seconds < 7200 else f"{seconds / 3600:.1f}h"
