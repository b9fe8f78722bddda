"""One connection of HTTP/1.1: what is written to it, and the answer as it comes."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import httptools
import httpx2

_IDLE_S = 4.0  # servers close what is idle for 5 s and more
_MOST_HEAD = 100_000  # bytes of an answer's status line and headers
_MOST_WAITING = 262_144  # bytes of a body that wait for who reads it


class Http1Connection(asyncio.Protocol):
    """One connection and the answer that is on its way. keep: is given the connection once an
    answer is read and another request may be sent."""

    def __init__(self, keep: Callable[["Http1Connection"], None]) -> None:
        self._keep, self._loop = keep, asyncio.get_running_loop()
        self._transport: Any = None
        self._parser: Any = None  # of an answer, None without one
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._error: Exception | None = None
        self._closed = self._paused = False
        self._since = 0.0  # of the last byte, of a wait, or since when it is idle

    def is_usable(self) -> bool:
        """Whether another request may be sent."""
        fresh = self._loop.time() - self._since < _IDLE_S
        return fresh and not self._closed and not self._transport.is_closing()

    def drop(self) -> None:
        """Ends it, with what it was about."""
        self._closed = True
        self._stop_clock()
        if self._transport is not None:
            self._transport.abort()

    async def begin(self, head: bytes, body: bytes, read_s: float) -> httpx2.Response:
        """Sends a request; its answer once the headers are there."""
        self._parser = httptools.HttpResponseParser(self)
        self._headers: list[tuple[bytes, bytes]] = []
        self._parts: list[bytes] = []
        self._size = self._head_size = 0
        self._has_head = self._ends = self._unbounded = self._lasts = False
        self._bodiless, self._read_s = head.startswith(b"HEAD "), read_s
        if self._closed:
            raise httpx2.RemoteProtocolError("closed by the server")
        self._since = self._loop.time()
        self._timer = self._loop.call_later(read_s, self._check_clock)
        self._transport.write(head + body if len(body) < 65_536 else head)
        if len(body) >= 65_536:
            self._transport.write(body)
        while not self._has_head:
            await self._wait()
        stream = _Body(self)
        return httpx2.Response(self._status, headers=self._headers, stream=stream)

    async def read_part(self) -> bytes:
        """The bytes that came since, b"" at the end."""
        while not self._parts and not self._ends:
            await self._wait()
        parts, self._parts, self._size = self._parts, [], 0
        if self._paused:
            self._paused = False
            self._transport.resume_reading()
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def end(self) -> None:
        """The answer is read, or nobody wants its rest."""
        if self._parser is None:
            return
        whole = self._ends and not self._parts and not self._bodiless and not self._unbounded
        again = whole and self._lasts and not self._error
        self._parser = None
        self._stop_clock()
        if again and not self._closed and not self._transport.get_write_buffer_size():
            self._since = self._loop.time()
            self._keep(self)
        else:
            self.drop()

    async def _wait(self) -> None:
        if self._error is not None:
            raise self._error
        self._since = self._loop.time()
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _fail(self, error: Exception) -> None:
        self._error = self._error or error
        self._wake()

    def _stop_clock(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check_clock(self) -> None:
        """Ends a wait without a byte; one clock for all waits of an answer."""
        left = self._since + self._read_s - self._loop.time()
        if left <= 0 and self._waiter is not None:
            return self._fail(httpx2.ReadTimeout(f"none in {self._read_s:g} s"))
        after = left if left > 0 else self._read_s
        self._timer = self._loop.call_later(max(after, 0.01), self._check_clock)
        return None

    # asyncio's protocol
    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._parser is None or self._ends:  # nobody asked: it cannot be used again
            self._closed = True
            return self._transport.abort() if self._parser is None else None
        self._since = self._loop.time()
        if not self._has_head:
            self._head_size += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            return self._fail(httpx2.RemoteProtocolError(str(error)))
        if not self._has_head and self._head_size > _MOST_HEAD:
            return self._fail(httpx2.RemoteProtocolError("its headers are too long"))
        if self._size > _MOST_WAITING and not self._paused:
            self._paused = True
            self._transport.pause_reading()
        if self._parts or self._has_head:
            self._wake()
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        self._closed = True
        if self._parser is None or self._ends:
            return None
        if self._has_head and self._unbounded and exc is None:
            self._ends = True
            return self._wake()
        cause = type(exc).__name__ if exc else "closed by the server"
        return self._fail(httpx2.RemoteProtocolError(f"incomplete answer: {cause}"))

    # httptools' callbacks
    def on_message_begin(self) -> None:
        self._closed = self._closed or self._has_head  # a second answer to one request

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._has_head:
            self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self._has_head:
            return
        self._status = self._parser.get_status_code()
        if self._status < 200:
            self._headers = []
            return
        named = {name.lower() for name, _ in self._headers}
        empty = self._bodiless or self._status in (204, 304)
        self._unbounded = not empty and not named & {b"content-length", b"transfer-encoding"}
        self._has_head, self._ends = True, self._bodiless

    def on_body(self, body: bytes) -> None:
        if not self._ends:
            self._parts.append(body)
            self._size += len(body)

    def on_message_complete(self) -> None:
        if self._has_head and not self._ends:
            self._ends, self._lasts = True, self._parser.should_keep_alive()


class _Body(httpx2.AsyncByteStream):
    """The body of an answer."""

    def __init__(self, connection: Http1Connection) -> None:
        self._connection = connection

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while part := await self._connection.read_part():
            yield part

    async def aclose(self) -> None:
        self._connection.end()
