"""The servers that are kept running, and for how long."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from assets.servers.calls.result import CallFailed, CallLimits
from assets.servers.calls.session import Session

Make = Callable[[Callable[[], None]], Session]


class Pool:
    """Used on one event loop."""

    def __init__(self, limits: CallLimits) -> None:
        self._limits = limits
        self._by_key: dict[str, Session] = {}
        self._running: set[Session] = set()  # also those that get no further call
        self._changed = asyncio.Condition()
        self._reaper: asyncio.Task[None] | None = None
        self._ends: set[asyncio.Task[None]] = set()
        self._closed = False

    @property
    def running(self) -> int:
        return len(self._running)

    @asynccontextmanager
    async def lease(self, key: str, make: Make) -> AsyncIterator[tuple[Session, bool]]:
        """(a session that may be called, whether it was up before). Raises CallFailed."""
        session = await self._take_session(key, make)
        warm = session.opened
        try:
            await session.ready(self._limits.launch_s)
            yield session, warm
        finally:
            session.leases -= 1
            session.used_at = time.monotonic()
            if session.dead or session.worn:
                self._retire(session)
            await self._notify_waiters()

    async def close(self) -> None:
        """Ends every server; returns once they are gone."""
        self._closed = True
        if self._reaper:
            self._reaper.cancel()
        await asyncio.gather(*(one.close() for one in list(self._running)), *self._ends)

    async def _take_session(self, key: str, make: Make) -> Session:
        """Counts a lease on the session of this key, made where there is none that will do."""
        until = time.monotonic() + self._limits.launch_s
        while True:
            if self._closed:
                raise CallFailed("closed", "", sent=False)
            session = self._by_key.get(key)
            if session is not None:
                session.leases += 1
                if await session.usable():
                    return session
                session.leases -= 1
                if self._by_key.get(key) is session:
                    self._retire(session)
                continue
            if len(self._running) < self._limits.sessions or self._evict():
                return self._make_session(key, make)
            try:
                left = until - time.monotonic()
                async with self._changed:
                    await asyncio.wait_for(self._changed.wait(), max(0.0, left))
            except TimeoutError:
                found = f"{len(self._running)} of {self._limits.sessions} servers are at work"
                raise CallFailed("busy", found, sent=False) from None

    def _make_session(self, key: str, make: Make) -> Session:
        session: Session

        def ended() -> None:
            self._running.discard(session)
            if self._by_key.get(key) is session:
                del self._by_key[key]
            self._schedule_end(self._notify_waiters())

        session = make(ended)
        session.leases = 1
        self._by_key[key] = session
        self._running.add(session)
        self._reaper = self._reaper or asyncio.create_task(self._reap())
        session.start()
        return session

    def _evict(self) -> bool:
        """Makes room by ending the idle session that was used longest ago."""
        idle = [one for one in self._by_key.values() if one.leases == 0]
        if not idle:
            return False
        oldest = min(idle, key=lambda one: one.used_at)
        self._retire(oldest)
        self._running.discard(oldest)
        return True

    def _retire(self, session: Session) -> None:
        """No further call for it; it ends once nobody holds it."""
        for key, one in list(self._by_key.items()):
            if one is session:
                del self._by_key[key]
        if session.leases <= 0:
            self._schedule_end(session.close())

    async def _reap(self) -> None:
        while True:
            await asyncio.sleep(min(5.0, self._limits.idle_s / 4))
            now = time.monotonic()
            for session in list(self._running):
                rests = now - session.used_at > self._limits.idle_s
                if session.leases <= 0 and (rests or session.dead or session.worn):
                    self._retire(session)

    async def _notify_waiters(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    def _schedule_end(self, coroutine: object) -> None:
        task = asyncio.ensure_future(coroutine)  # type: ignore[arg-type]
        self._ends.add(task)
        task.add_done_callback(self._ends.discard)
