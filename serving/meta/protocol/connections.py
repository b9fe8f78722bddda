"""Connections: how many there may be, and how long a client may take to say what it wants."""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from serving.meta.access.policy import HttpSettings

_MOST_HEAD = 65_536  # bytes of a request's line and headers
_WAITING, _SENDING, _ANSWERED = "waiting for a header", "waiting for a body", "being answered"


def make_protocol(settings: HttpSettings) -> type[HttpToolsProtocol]:
    """uvicorn's protocol under these limits: httptools', which costs a third of the processor time
    of h11's."""

    class Bounded(BoundedConnection):
        limits = settings

    return Bounded


class BoundedConnection(HttpToolsProtocol):
    """A connection that is closed when a whole header or body does not come in time.

    Where there are too many, the one that has waited longest for a header makes room: half-sent
    headers keep nobody out.
    """

    limits: HttpSettings
    _state = ""
    _head_size = 0  # bytes of a header until now
    _deadline: asyncio.TimerHandle | None = None
    _since = 0.0

    def connection_made(self, transport: Any) -> None:
        """Raises nothing: one connection too many is closed unanswered."""
        others = [
            connection
            for connection in self.connections
            if isinstance(connection, BoundedConnection)
        ]
        super().connection_made(transport)
        self._watch()
        if len(others) >= self.limits.max_connections:
            waiting = [other for other in others if other._state == _WAITING]
            oldest = min(waiting, key=lambda one: one._since, default=self)
            oldest._drop()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_clock()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()
        # httptools bounds no header.
        self._head_size = self._head_size + len(data) if self._state == _WAITING else 0
        if self._head_size > _MOST_HEAD and not self.transport.is_closing():
            self.send_400_response("Invalid HTTP request received: its header is too long.")

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def _watch(self) -> None:
        """Starts the clock of a new state. More bytes of the same header do not set it back."""
        state = self._find_state()
        if state == self._state:
            return
        self._stop_clock()
        self._state, self._since = state, self.loop.time()
        within = {_WAITING: self.limits.header_s, _SENDING: self.limits.body_s}.get(state)
        if within is not None:
            self._deadline = self.loop.call_later(within, self._drop)

    def _find_state(self) -> str:
        cycle = self.cycle
        if cycle is None or cycle.response_complete:
            return _WAITING
        return _SENDING if cycle.more_body else _ANSWERED

    def _stop_clock(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _drop(self) -> None:
        self.connections.discard(self)
        self.transport.abort()
