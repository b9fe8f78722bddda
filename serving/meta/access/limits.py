"""Limits: how many requests a token may send a minute, and how many calls it may have running."""

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from serving.meta.access.policy import Token

_MINUTE = 60.0


class TooMany(Exception):
    """A limit is reached. `retry_s`: when it is worth trying again."""

    def __init__(self, message: str, retry_s: float) -> None:
        super().__init__(message)
        self.retry_s = retry_s


class Limits:
    """What every token has used. For one event loop: nothing here waits or locks."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._sent: dict[str, deque[float]] = {}
        self._running: dict[str, int] = {}

    def count(self, token: Token) -> None:
        """Counts one request. Raises TooMany beyond the requests a minute.

        A refused request is not counted: who keeps asking is served again after the same wait.
        """
        if token.requests_per_minute is None:
            return
        now = self._clock()
        sent = self._sent.setdefault(token.name, deque())
        while sent and sent[0] <= now - _MINUTE:
            sent.popleft()
        if len(sent) >= token.requests_per_minute:
            wait = sent[0] + _MINUTE - now
            raise TooMany(
                f"token {token.name!r} sent {len(sent)} requests within a minute, allowed are"
                f" {token.requests_per_minute}; come again in {wait:.0f} s",
                wait,
            )
        sent.append(now)

    @contextmanager
    def running(self, token: Token) -> Iterator[None]:
        """Holds one of the token's places for calls. Raises TooMany when all are taken."""
        running = self._running.get(token.name, 0)
        if token.concurrent is not None and running >= token.concurrent:
            raise TooMany(
                f"token {token.name!r} has {running} calls running, allowed are"
                f" {token.concurrent}; come again when one has ended",
                1.0,
            )
        self._running[token.name] = running + 1
        try:
            yield
        finally:
            self._running[token.name] -= 1
