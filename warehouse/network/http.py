"""HTTP clients: httpx2 over the egress guard, or through the environment's proxy, which resolves
names, so that there only literal addresses are judged."""

import re
import ssl
import zlib
from collections.abc import AsyncIterator, Collection, Iterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cache
from typing import Any
from urllib.request import getproxies, proxy_bypass

import httpcore2
import httpx2

from warehouse.network.egress import EgressConnector, SyncConnector, is_loopback

ENCODING = "gzip"  # the one that is asked for and decoded
_WINDOW = 31  # zlib's window bits for gzip


class BodyRefused(httpx2.DecodingError):
    """The body of an answer is not read: too large, or packed as nobody asked for."""


class BodyTooLarge(BodyRefused):
    """The body of an answer is more than the bytes that were allowed, decoded."""


class BodyReader:
    """Decodes a body part by part, never over `most` bytes. Encodings that were not asked for are
    refused: of two in one header the library decodes the second without a bound."""

    def __init__(self, encoding: str, most: int) -> None:
        self._named = encoding.strip().lower() or "identity"
        self._inflate = zlib.decompressobj(_WINDOW) if self._named == ENCODING else None
        self._most, self._size, self._begun = most, 0, False

    def read(self, part: bytes) -> bytes:
        """What the part holds. Raises BodyTooLarge, and DecodingError for what cannot be read."""
        self._begun = self._begun or bool(part)
        if part and self._named not in ("identity", ENCODING):
            raise BodyRefused(f"content-encoding {self._named[:40]!r}, not {ENCODING}")
        data = self._decode(part, self._most + 1 - self._size) if self._inflate else part
        self._size += len(data)
        if self._size > self._most:
            raise BodyTooLarge(f"more than {self._most:,} bytes")
        return data

    def _decode(self, part: bytes, room: int) -> bytes:
        assert self._inflate is not None
        after = part if self._inflate.eof else b""
        try:
            data = b"" if after else self._inflate.decompress(part, room)
        except zlib.error as error:
            raise httpx2.DecodingError(str(error)) from error
        if after or self._inflate.unused_data:
            raise httpx2.DecodingError(f"more bytes after the end of its {ENCODING}")
        return data

    def finish(self) -> None:
        """Raises DecodingError where the body was cut."""
        if self._inflate is not None and self._begun and not self._inflate.eof:
            raise httpx2.DecodingError(f"cut after {self._size:,} bytes")


def bound_response(response: httpx2.Response, most: int) -> httpx2.Response:
    """A response whose decoded body raises BodyTooLarge when read beyond `most` bytes."""
    reader = BodyReader(response.headers.get("content-encoding", ""), most)
    dropped = ("content-encoding", "content-length")
    headers = [pair for pair in response.headers.multi_items() if pair[0].lower() not in dropped]
    return httpx2.Response(
        response.status_code, headers=headers, stream=_BoundedStream(response.stream, reader),
        extensions=response.extensions,
    )  # fmt: skip


class _BoundedStream(httpx2.AsyncByteStream, httpx2.SyncByteStream):
    def __init__(self, inner: object, reader: BodyReader) -> None:
        self._inner, self._reader = inner, reader

    def __iter__(self) -> Iterator[bytes]:
        assert isinstance(self._inner, httpx2.SyncByteStream)
        for part in self._inner:
            yield self._reader.read(part)
        self._reader.finish()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        assert isinstance(self._inner, httpx2.AsyncByteStream)
        async for part in self._inner:
            yield self._reader.read(part)
        self._reader.finish()

    def close(self) -> None:
        assert isinstance(self._inner, httpx2.SyncByteStream)
        self._inner.close()

    async def aclose(self) -> None:
        assert isinstance(self._inner, httpx2.AsyncByteStream)
        await self._inner.aclose()


_LIMITS = httpx2.Limits(max_connections=10)


@cache
def make_tls_context() -> ssl.SSLContext:
    """One for all clients of a process: reading the authorities takes 30 ms of processor time."""
    return httpx2.create_ssl_context()


class AsyncTransport(httpx2.AsyncBaseTransport):
    """Sends each request over a guarded connector, or through the environment's proxy. most_bytes:
    of the body of an answer, decoded; reading more raises BodyTooLarge."""

    def __init__(
        self,
        connector: EgressConnector,
        limits: httpx2.Limits = _LIMITS,
        *,
        most_bytes: int | None = None,
    ) -> None:
        self._connector, self._limits, self._most_bytes = connector, limits, most_bytes
        self._pools: dict[str | None, httpx2.AsyncHTTPTransport] = {}

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        proxy = find_proxy(request.url)
        if proxy:
            self._connector.judge_literal(request.url.host)
        if proxy not in self._pools:
            self._pools[proxy] = self._open_pool(proxy)
        if self._most_bytes is None:
            return await self._pools[proxy].handle_async_request(request)
        request.headers["accept-encoding"] = ENCODING
        return bound_response(
            await self._pools[proxy].handle_async_request(request), self._most_bytes
        )

    async def aclose(self) -> None:
        for pool in self._pools.values():
            await pool.aclose()

    def _open_pool(self, proxy: str | None) -> httpx2.AsyncHTTPTransport:
        pool = httpx2.AsyncHTTPTransport(
            verify=make_tls_context(), limits=self._limits, proxy=proxy
        )
        if not proxy:  # httpx2's transport takes no connector
            pool._pool = httpcore2.AsyncConnectionPool(
                network_backend=self._connector,
                **_make_pool_options(make_tls_context(), self._limits),
            )
        return pool


class HttpTransport(httpx2.BaseTransport):
    """AsyncTransport for one thread at a time. proxy: instead of the environment's."""

    def __init__(
        self,
        connector: SyncConnector,
        *,
        tls: ssl.SSLContext | None = None,
        proxy: str = "",
        most_bytes: int | None = None,
    ) -> None:
        self._connector, self._tls, self._configured = connector, tls or make_tls_context(), proxy
        self._most_bytes = most_bytes
        self._pools: dict[str | None, httpx2.HTTPTransport] = {}

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        proxy = self._configured or find_proxy(request.url)
        if proxy:
            self._connector.judge_literal(request.url.host)
        if proxy not in self._pools:
            self._pools[proxy] = self._open_pool(proxy)
        if self._most_bytes is None:
            return self._pools[proxy].handle_request(request)
        request.headers["accept-encoding"] = ENCODING
        return bound_response(self._pools[proxy].handle_request(request), self._most_bytes)

    def close(self) -> None:
        for pool in self._pools.values():
            pool.close()

    def _open_pool(self, proxy: str | None) -> httpx2.HTTPTransport:
        pool = httpx2.HTTPTransport(verify=self._tls, limits=_LIMITS, proxy=proxy)
        if not proxy:
            pool._pool = httpcore2.ConnectionPool(
                network_backend=self._connector, **_make_pool_options(self._tls, _LIMITS)
            )
        return pool


def open_client(
    *,
    trusted: Collection[str] = (),
    allow_loopback: bool = False,
    tls: ssl.SSLContext | None = None,
    proxy: str = "",
    most_bytes: int | None = None,
    **options: Any,
) -> httpx2.Client:
    """A guarded client. trusted: the operator's hosts. most_bytes: decoded. options: httpx2's."""
    connector = SyncConnector(allow_loopback=allow_loopback, trusted=trusted)
    transport = HttpTransport(connector, tls=tls, proxy=proxy, most_bytes=most_bytes)
    return httpx2.Client(transport=transport, **options)


def find_proxy(url: httpx2.URL) -> str | None:
    """The environment's proxy for an address, None where it is reached without one."""
    proxy = getproxies().get(url.scheme)
    return None if not proxy or is_loopback(url.host) or proxy_bypass(url.host) else proxy


def _make_pool_options(tls: ssl.SSLContext, limits: httpx2.Limits) -> dict[str, Any]:
    return {
        "ssl_context": tls,
        "max_connections": limits.max_connections,
        "max_keepalive_connections": limits.max_keepalive_connections,
        "keepalive_expiry": limits.keepalive_expiry,
    }


LONGEST_S = 30 * 86_400.0  # what asks for more is noise
_SECONDS = re.compile(r"[0-9]{1,300}(\.[0-9]{1,9})?")  # model endpoints send fractions


def parse_retry_after(value: str, now: datetime | None = None) -> float | None:
    """Seconds to wait, given so or as a date (RFC 9110, 10.2.3), up to thirty days, or None."""
    value = value.strip()
    if _SECONDS.fullmatch(value):
        return min(float(value), LONGEST_S)
    try:
        wait_s = (parsedate_to_datetime(value) - (now or datetime.now(UTC))).total_seconds()
    except (TypeError, ValueError, OverflowError):
        return None
    return min(max(0.0, wait_s), LONGEST_S)
