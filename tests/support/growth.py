"""How the time of a function grows with the length of its text."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

SHORT, LONG = 8_000, 32_000  # characters
MOST = 6.0  # a linear function takes 4, one that grows with the square 16
_NOISE_S = 0.03  # of processor time; less is as good as nothing
_ROUNDS = 4  # on a machine that others slow for a second, a linear function took 6.2 times as long
_LIMIT_S = 10.0  # of processor time for one text


def measure_growth(function: Callable[[str], Any], pump: tuple[str, str, str]) -> float:
    """Processor time for a text of 32,000 characters over that for 8,000, made of a beginning, a
    piece that repeats, and an end; endless where it takes more than ten seconds."""
    long = short = ratio = float("inf")
    for more in range(0, 3 * _ROUNDS, 3):
        long = min(long, _measure_time(function, pump, LONG, more))
        if long < _NOISE_S or long == float("inf"):  # two endless ones would give no number
            return long / _NOISE_S
        short = min(short, _measure_time(function, pump, SHORT, more))
        ratio = long / max(short, _NOISE_S)
        if ratio <= MOST:
            break
    return ratio


def _measure_time(
    function: Callable[[str], Any], pump: tuple[str, str, str], length: int, more: int
) -> float:
    """The least of three; each text is a piece longer, so that none is of a cache."""
    (beginning, piece, end), best = pump, float("inf")
    for count in range(more, more + 3):
        text = beginning + piece * (length // len(piece) + count) + end
        with _limit_time() as expired:
            started = time.process_time()
            try:
                function(text)
            except TimeoutError:
                return float("inf")
            except (ValueError, LookupError, RecursionError):
                pass  # a refusal is an answer
            best = min(best, time.process_time() - started)
        if expired:
            return float("inf")
        if best < _NOISE_S:
            break
    return best


@contextmanager
def _limit_time() -> Iterator[list[int]]:
    expired: list[int] = []

    def expire(number: int, frame: Any) -> None:
        expired.append(number)
        raise TimeoutError("too much processor time")

    before = signal.signal(signal.SIGPROF, expire)
    signal.setitimer(signal.ITIMER_PROF, _LIMIT_S)
    try:
        yield expired
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
