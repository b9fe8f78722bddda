"""How much may be sent to an endpoint, and how much of it at once.

`aiolimiter` was looked at (1.3.0): its bucket cannot take back tokens that were reserved and not
used, refuses a request larger than its capacity, and is bound to one event loop.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

# Requests may come a second's worth early, tokens ten: they are reserved by an upper bound and
# corrected a few seconds later, and one bound often passes a second's worth.
REQUESTS_EARLY_S, TOKENS_EARLY_S = 1.0, 10.0
_LONGEST_SLEEP_S = 1.0  # whoever waits looks again, because others give back what they did not use
# One answer in twenty is a 429 or a 500 on an endpoint that is well; more than a quarter is load.
_ROUND, _TOO_MANY = 16, 0.25


class Bucket:
    """A token bucket, kept as the time at which all that was taken will have flowed back.

    Not bound to an event loop: a role's rate goes on from one loop to the next. An amount larger
    than the bucket passes when the bucket is full, and those after it wait for it.
    """

    def __init__(
        self,
        per_minute: float,
        early_s: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
    ) -> None:
        self._per_s, self._early_s = per_minute / 60, early_s
        self._clock, self._sleep = clock, sleep
        self._even_at = clock()

    async def take(self, amount: float) -> None:
        """Waits until `amount` may be used, and takes it."""
        if self._per_s <= 0:
            return
        while (wait := self._even_at - self._early_s - self._clock()) > 0:
            await self._sleep(min(wait, _LONGEST_SLEEP_S))
        self._even_at = max(self._even_at, self._clock()) + amount / self._per_s

    def give_back(self, amount: float) -> None:
        """Returns what was taken and not used; a negative amount is what was used beyond it."""
        if self._per_s > 0:
            self._even_at -= amount / self._per_s


class Slots:
    """At most `most` requests of one role under way, fewer while its endpoint says it is too much.

    Additive increase, multiplicative decrease: halved when more than a quarter of the last answers
    were 429, 5xx or time-outs, grown again by one slot a round of good answers. One loop's own.
    """

    def __init__(self, most: int) -> None:
        self.limit = float(most)
        self._most, self._open = most, most  # `_open`: permits that are held or free
        self._permits = asyncio.Semaphore(most)
        self._round: deque[bool] = deque(maxlen=max(_ROUND, most))
        self._closed_until = 0.0

    @asynccontextmanager
    async def hold_slot(self) -> AsyncIterator[None]:
        """Holds one slot."""
        await self._permits.acquire()
        try:
            while (wait := self._closed_until - time.monotonic()) > 0:
                await asyncio.sleep(wait)
            yield
        finally:
            if self._open > int(self.limit):
                self._open -= 1  # halved since: this permit leaves circulation
            else:
                self._permits.release()

    def note_answer(self) -> None:
        """An answer came."""
        self._round.append(True)
        self.limit = min(self._most, self.limit + 1 / self.limit)
        if self._open < int(self.limit):
            self._open += 1
            self._permits.release()

    def note_overload(self, retry_after_s: float = 0.0) -> None:
        """A 429, a 5xx or a time-out came. retry_after_s: as it says, kept by all when halved."""
        self._round.append(False)
        if self._round.count(False) > _TOO_MANY * (self._round.maxlen or _ROUND):
            self.limit = max(1.0, self.limit / 2)
            self._closed_until = max(self._closed_until, time.monotonic() + retry_after_s)
            self._round.clear()
