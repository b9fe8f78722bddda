"""Limits of the HTTP server: bounded times to send and to read, and what each token may hold. All
that a token sends is counted before it is read; `limit_requests` counts questions alone."""

import asyncio
import fcntl
import sys
import termios
from collections import Counter
from contextlib import suppress
from typing import Any

import anyio
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from serving.meta.access_control import RequestLimits, TooMany
from serving.meta.policy import ClientToken, HttpSettings

_MOST_HEAD = 65_536  # bytes of a request's line and headers, or of its trailers
_WAITING, _SENDING, _ANSWERED = "waiting for a header", "waiting for a body", "being answered"
_LEAST_RATE = 60  # HTTP requests a minute that every token has
_OVERHEAD = 4  # HTTP requests per question: a session's opening, notifications, streams, its end
_PAUSE_S = 1.0  # until a refusal is sent, so that a client in a loop does not occupy us
_SESSION = "mcp-session-id"


def make_protocol(settings: HttpSettings) -> type[HttpToolsProtocol]:
    """uvicorn's httptools protocol under these limits: a third of h11's processor time."""

    class LimitedConnection(BoundedConnection):
        limits = settings

    return LimitedConnection


class PipelineFull(Exception):
    """A client sends requests on and on without waiting for answers."""


class BoundedConnection(HttpToolsProtocol):
    """A connection closed when a header or body is late, nothing is read for `write_s`, or a third
    request comes before the first answer. Beyond the limit, the one that has longest not read its
    answer makes room, then the one longest without a header."""

    limits: HttpSettings
    _state = ""
    _outside = 0  # bytes since a header or a piece of a body last ended
    _in_header = False
    _deadline: asyncio.TimerHandle | None = None
    _since = 0.0
    _unread = 0  # bytes of the answer that wait to be taken, as of the last look
    _stalled_at = 0.0
    _write_deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Raises nothing: one connection too many is closed unanswered."""
        others = [
            connection
            for connection in self.connections
            if isinstance(connection, BoundedConnection)
        ]
        super().connection_made(transport)
        transport.set_write_buffer_limits(high=0)  # told of each byte that is not taken at once
        self._watch()
        if len(others) >= self.limits.max_connections:
            stalled = [other for other in others if other._write_deadline is not None]
            waiting = [other for other in others if other._state == _WAITING]
            oldest = min(stalled, key=lambda item: item._stalled_at, default=None)
            oldest = oldest or min(waiting, key=lambda item: item._since, default=self)
            oldest._drop()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_clock()
        self._stop_write_clock()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stalled_at = self.loop.time()
        self._start_write_clock()

    def resume_writing(self) -> None:
        self._stop_write_clock()
        super().resume_writing()

    def _start_write_clock(self) -> None:
        self._unread = self._count_unread()
        self._write_deadline = self.loop.call_later(self.limits.write_s, self._check_write)

    def _check_write(self) -> None:
        """Nothing is added while writing is paused: a buffer of the same size is one not read."""
        if self._count_unread() >= self._unread:
            self._drop()
        else:
            self._start_write_clock()

    def _count_unread(self) -> int:
        """Bytes that the client's side has not taken, the kernel's among them: of megabytes there a
        slow reader takes for long before more is asked of us."""
        try:
            socket = self.transport.get_extra_info("socket")
            pending = fcntl.ioctl(socket.fileno(), termios.TIOCOUTQ, bytes(4))
            queued = int.from_bytes(pending, sys.byteorder)
        except OSError:
            queued = 0
        return queued + self.transport.get_write_buffer_size()

    def _stop_write_clock(self) -> None:
        if self._write_deadline is not None:
            self._write_deadline.cancel()
            self._write_deadline = None

    def on_header(self, name: bytes, value: bytes) -> None:
        """Blanks around a value are no part of it: RFC 9110, 5.5."""
        super().on_header(name, value.strip(b" \t"))

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_header = True

    def on_headers_complete(self) -> None:
        """Raises PipelineFull, which stops the parser, for a third request beside an open one."""
        if self.pipeline:
            self._drop()
            raise PipelineFull
        super().on_headers_complete()
        self._in_header, self._outside = False, 0

    def on_body(self, body: bytes) -> None:
        super().on_body(body)
        if not self.cycle.response_complete:
            self._outside = 0

    def data_received(self, data: bytes) -> None:
        """httptools bounds no header, beside an open request neither, and no trailers."""
        self._outside += len(data)
        super().data_received(data)
        self._watch()
        if self._outside <= _MOST_HEAD or self.transport.is_closing():
            return
        if self._is_open():  # a refusal would stand in the middle of its answer
            self._drop()
        else:
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
        if self._in_header or not self._is_open():
            return _WAITING
        return _SENDING if self.cycle.more_body else _ANSWERED

    def _is_open(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _stop_clock(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _drop(self) -> None:
        self.connections.discard(self)
        self.transport.abort()


def close_unauthorised(app: Any) -> Any:
    """The application with connections closed after a 401: who has no token keeps none."""

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        async def send_closing(message: Any) -> None:
            if message.get("status") == 401:
                message = {**message, "headers": [*message["headers"], (b"connection", b"close")]}
            await send(message)

        await app(scope, receive, send_closing)

    return answer


class RequestAdmission:
    """An ASGI application around the SDK's, by token. manager: sessions with their owners."""

    def __init__(self, inner: Any, manager: Any, settings: HttpSettings) -> None:
        self._inner, self._manager, self._settings = inner, manager, settings
        self._limits = RequestLimits()
        self._open: Counter[str] = Counter()  # requests that are being answered, streams included
        self._opening: Counter[str] = Counter()  # those of them that open a session
        self._tokens = {token.name: _bound_overhead(token) for token in settings.tokens}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answers 429 in place of the application where a limit is reached."""
        with suppress(ClientDisconnect):  # in the middle of its body: nobody is left to be told
            await self._count(scope, receive, send)

    async def _count(self, scope: Any, receive: Any, send: Any) -> None:
        access = getattr(scope.get("user"), "access_token", None)
        token = self._tokens.get(access.client_id) if access is not None else None
        if token is None:  # no tokens: whoever reaches loopback is the one user
            return await self._inner(scope, receive, send)
        name = token.name
        if self._open[name] >= 2 * self._settings.open_requests:  # who waits is held, too
            return await _refuse("too many requests are open", 1.0, send)
        self._open[name] += 1
        try:
            await self._admit(token, scope, receive, send)
        finally:
            self._open[name] -= 1

    async def _admit(self, token: ClientToken, scope: Any, receive: Any, send: Any) -> None:
        try:
            most = self._settings.open_requests
            if self._open[token.name] > most:
                problem = f"token {token.name!r} has {most} requests open, allowed are no more"
                raise TooMany(f"{problem}; come again when one has ended", 1.0)
            self._limits.count(token)
            self._check_sessions(token, scope)
        except TooMany as error:
            await anyio.sleep(_PAUSE_S)
            return await _refuse(str(error), error.retry_s, send)
        opening = int(_is_opening(scope))
        self._opening[token.name] += opening

        async def send_counted(message: Any) -> None:
            nonlocal opening
            # The manager counts the session from here on: who is answered may open the next.
            self._opening[token.name] -= opening
            opening = 0
            await send(message)

        try:
            await self._inner(scope, receive, send_counted)
        finally:
            self._opening[token.name] -= opening

    def _check_sessions(self, token: ClientToken, scope: Any) -> None:
        """Raises TooMany where the request would open a session too many."""
        if not _is_opening(scope):
            return
        owners = self._manager._session_owners.values()
        sessions = sum(owner["client_id"] == token.name for owner in owners)
        if sessions + self._opening[token.name] >= self._settings.token_sessions:
            raise TooMany(
                f"token {token.name!r} has {sessions} sessions open, allowed are"
                f" {self._settings.token_sessions}; end one (DELETE), or wait until one is idle for"
                f" {self._settings.idle_s:.0f} s",
                60.0,
            )


def guard_manager(manager: Any, settings: HttpSettings) -> None:
    manager.asgi_app = RequestAdmission(manager.asgi_app, manager, settings)


def _bound_overhead(token: ClientToken) -> ClientToken:
    """The token with the rate of its HTTP requests."""
    rate = token.requests_per_minute
    if rate is None:
        return token
    return ClientToken(token.name, requests_per_minute=max(_LEAST_RATE, _OVERHEAD * rate))


def _is_opening(scope: Any) -> bool:
    """Whether a request may open a session: it has none, and a protocol before 2026-07-28."""
    from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
    from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

    sent = Headers(scope=scope)  # of a header that is sent twice the first, as the SDK takes it
    version = sent.get(MCP_PROTOCOL_VERSION_HEADER)
    modern = version is not None and version not in HANDSHAKE_PROTOCOL_VERSIONS
    return _SESSION not in sent and not modern


async def _refuse(message: str, retry_s: float, send: Any) -> None:
    body = message.encode()
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", str(len(body)).encode()),
        (b"retry-after", str(max(1, round(retry_s))).encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": 429, "headers": headers})
    await send({"type": "http.response.body", "body": body})
