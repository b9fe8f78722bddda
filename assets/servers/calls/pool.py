"""The pool of running servers: how many, for how long, and how many for one owner."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from assets.servers.calls.result import CallFailed, CallLimits
from assets.servers.calls.session import CallSession

Make = Callable[[Callable[[], None]], CallSession]


class SessionPool:
    """Used on one event loop.

    An owner is on whose behalf a call is made. Each is sure of `limits.share` places: it has no
    more servers at work than that, and what it holds idle beyond it makes room for the others.
    """

    def __init__(self, limits: CallLimits) -> None:
        self._limits = limits
        self._by_key: dict[str, CallSession] = {}
        self._running: set[CallSession] = set()  # also those that get no further call
        self._changed = asyncio.Event()  # of this moment: the next change has another
        self._reaper: asyncio.Task[None] | None = None
        self._ends: set[asyncio.Task[None]] = set()
        self._closed = False

    @property
    def running(self) -> int:
        return len(self._running)

    @asynccontextmanager
    async def lease(
        self, key: str, make: Make, owner: str = "", volume: str = ""
    ) -> AsyncIterator[tuple[CallSession, bool]]:
        """(a session that may be called, whether it was up before). held: names what one session at
        a time may hold; an idle one of an older key gives it up. Raises CallFailed."""
        session = await self._take_session(key, make, owner, volume)
        warm = session.opened
        try:
            await session.ready(self._limits.launch_s)
            yield session, warm
        finally:
            session.release(owner)
            session.used_at = time.monotonic()
            if session.dead or session.worn:
                self._retire(session)
            self._notify_waiters()

    async def close(self) -> None:
        """Ends every server; returns once they are gone."""
        self._closed = True
        if self._reaper:
            self._reaper.cancel()
        await asyncio.gather(*(each.close() for each in list(self._running)), *self._ends)

    async def end_owned(self, owner: str) -> None:
        """Ends the servers that were started for an owner; returns once they are gone."""
        sessions = [each for each in self._running if each.owner == owner]
        for session in sessions:
            self._retire(session)
        await asyncio.gather(*(session.close() for session in sessions))

    async def _take_session(self, key: str, make: Make, owner: str, volume: str) -> CallSession:
        """Counts a lease on the session of this key, made where there is none that will do."""
        until = time.monotonic() + self._limits.launch_s
        while True:
            if self._closed:
                raise CallFailed("closed", "", sent=False)
            session = self._by_key.get(key)
            free = self._is_free(owner, session)
            if session is not None and free:
                if await self._lease_usable(session, owner):
                    return session
                if self._by_key.get(key) is session:
                    self._retire(session)
                continue
            if free and (len(self._running) < self._limits.sessions or self._evict(owner)):
                return self._make_session(key, make, owner, volume)
            try:
                left = until - time.monotonic()
                await asyncio.wait_for(self._changed.wait(), max(0.0, left))
            except TimeoutError:
                detail = f"{len(self._running)} of {self._limits.sessions} servers are at work"
                if not free and self._share < self._limits.sessions:
                    detail = f"{self._share} servers are at work for this token, its share"
                raise CallFailed("busy", detail, sent=False) from None

    async def _lease_usable(self, session: CallSession, owner: str) -> bool:
        """Counts a lease where the session will do; none of who gives up meanwhile."""
        session.lease(owner)
        usable = False
        try:
            usable = await session.usable()
        finally:
            if not usable:
                session.release(owner)
                self._notify_waiters()
        return usable

    @property
    def _share(self) -> int:
        return min(self._limits.share or self._limits.sessions, self._limits.sessions)

    def _is_free(self, owner: str, session: CallSession | None) -> bool:
        """Whether the owner may have this session, or a new one, at work besides its others."""
        at_work = [each for each in self._running if each.is_leased_by(owner)]
        return session in at_work or len(at_work) < self._share

    def _make_session(self, key: str, make: Make, owner: str, volume: str) -> CallSession:
        session: CallSession
        for other in [each for each in self._by_key.values() if volume and each.held == volume]:
            if other.leases == 0:
                self._retire(other)

        def ended() -> None:
            self._running.discard(session)
            if self._by_key.get(key) is session:
                del self._by_key[key]
            self._notify_waiters()

        session = make(ended)
        session.owner, session.held = owner, volume
        session.lease(owner)
        self._by_key[key] = session
        self._running.add(session)
        self._reaper = self._reaper or asyncio.create_task(self._reap())
        session.start()
        return session

    def _evict(self, owner: str) -> bool:
        """Makes room by ending the idle session that was used longest ago: one of those that hold
        more than their share, or the owner's own."""
        by_owner = Counter(each.owner for each in self._running)
        within = by_owner[owner] < self._share
        idle = [
            each
            for each in self._by_key.values()
            if each.leases == 0
            and (each.owner == owner or (within and by_owner[each.owner] > self._share))
        ]
        if not idle:
            return False
        oldest = min(idle, key=lambda each: (by_owner[each.owner] <= self._share, each.used_at))
        self._retire(oldest)
        self._running.discard(oldest)
        return True

    def _retire(self, session: CallSession) -> None:
        """No further call for it; it ends once nobody holds it."""
        for key, each in list(self._by_key.items()):
            if each is session:
                del self._by_key[key]
        if session.leases <= 0:
            task = asyncio.ensure_future(session.close())
            self._ends.add(task)
            task.add_done_callback(self._ends.discard)

    async def _reap(self) -> None:
        while True:
            await asyncio.sleep(min(5.0, self._limits.idle_s / 4))
            now = time.monotonic()
            for session in list(self._running):
                rests = now - session.used_at > self._limits.idle_s
                if session.leases <= 0 and (rests or session.dead or session.worn):
                    self._retire(session)

    def _notify_waiters(self) -> None:
        # Not a condition: a waiter that is cancelled twice, as anyio does, leaves its lock held.
        self._changed.set()
        self._changed = asyncio.Event()
