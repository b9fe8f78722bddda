"""Progress of long work through one small interface."""

import time
from collections import deque
from collections.abc import Callable
from typing import Protocol


class Progress(Protocol):
    """Hears from long work how far it is."""

    def update(self, stage: str, done: int, total: int, **figures: float | int | str) -> None: ...


class SilentProgress:
    """Says nothing; the default of every function that reports progress."""

    def update(self, stage: str, done: int, total: int, **figures: float | int | str) -> None:
        return


class ProgressLines:
    """Writes a line per stage at most every `every_s` seconds, and the last one of a known total:
    how much is done, the given figures, and when it will end at the pace of the last minutes."""

    def __init__(
        self,
        write: Callable[[str], None],
        every_s: float = 3.0,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._write, self._every_s, self._clock = write, every_s, clock
        self._last: dict[str, float] = {}
        self._totals: dict[str, int] = {}
        # (when, done) of the lines written last: what came out of a cache in the first second says
        # nothing about the rest.
        self._pace: dict[str, deque[tuple[float, int]]] = {}

    def update(self, stage: str, done: int, total: int, **figures: float | int | str) -> None:
        now = self._clock()
        # Where the total grows with what is done (1/1, 2/2 …) no update is known to be the last.
        complete = done >= total and self._totals.get(stage) == total
        self._totals[stage] = total
        if stage in self._last and not complete and now - self._last[stage] < self._every_s:
            return
        self._last[stage] = now
        pace = self._pace.setdefault(stage, deque(maxlen=40))
        if pace and done < pace[-1][1]:
            pace.clear()  # the stage began anew
        pace.append((now, done))
        words = [f"{name}={value}" for name, value in figures.items()]
        if (eta := _estimate_end(pace, total)) is not None:
            words.append(f"eta={eta}")
        self._write(" ".join([f"{stage} {done}/{total}", *words]))


def _estimate_end(pace: "deque[tuple[float, int]]", total: int) -> str | None:
    """Time to the end at the pace between the first and the last of `pace`, or None."""
    (began, before), (now, done) = pace[0], pace[-1]
    if done >= total or done <= before or now <= began:
        return None
    seconds = round((total - done) * (now - began) / (done - before))
    if seconds < 120:
        return f"{seconds}s"
    return f"{seconds // 60}m" if seconds < 7200 else f"{seconds / 3600:.1f}h"
