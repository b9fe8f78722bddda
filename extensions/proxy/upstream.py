"""The upstream: what is sent to it, and what of its answers is handed on."""

from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol
from urllib.parse import urlsplit

import httpx2

from extensions.proxy.settings import ProxySettings
from warehouse.network.egress import Connector
from warehouse.network.http import AsyncTransport, find_proxy
from warehouse.network.http1 import Http1Client

Headers = list[tuple[bytes, bytes]]

TOKEN = b"x-toolmill-token"
# Of one connection only (RFC 9110, 7.6.1), or ours to say.
_DROPPED = {
    *(b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"te"),
    *(b"trailer", b"transfer-encoding", b"upgrade", b"host", b"content-length", b"expect"),
    *(b"accept-encoding", b"proxy-connection", b"date", TOKEN),
}


class UpstreamFailed(Exception):
    """No usable answer, in one line. status: what the client is answered."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


class OpenAnswer(Protocol):
    """Who answers requests: an upstream, or a model that stands in its place."""

    def open_answer(
        self, method: str, rest: str, headers: Headers, body: bytes
    ) -> AbstractAsyncContextManager[httpx2.Response]: ...


class Upstream:
    """Sends requests to one address: the operator named it, so it may be a private one; no
    redirect is followed."""

    def __init__(self, settings: ProxySettings) -> None:
        self._settings, self._base = settings, settings.find_base()
        host = urlsplit(self._base).hostname or ""
        connector = Connector(trusted=[host], allow_loopback=True)
        read_s, connect_s = settings.timeout_s, min(10.0, settings.timeout_s)
        if find_proxy(httpx2.URL(self._base)):
            timeout = httpx2.Timeout(read_s, connect=connect_s)
            limits = httpx2.Limits(max_connections=settings.max_open + 2)
            self._client = _PooledClient(self._base, AsyncTransport(connector, limits), timeout)
        else:
            self._client = Http1Client(self._base, connector, read_s=read_s, connect_s=connect_s)

    @asynccontextmanager
    async def open_answer(
        self, method: str, rest: str, headers: Headers, body: bytes
    ) -> AsyncIterator[httpx2.Response]:
        """The answer, its body unread. rest: path after `/v1`, with the query. Raises
        UpstreamFailed."""
        # What is judged has to be readable; compression of text on its way is the client's loss.
        sent = [(b"accept-encoding", b"identity"), *headers]
        try:
            response = await self._client.send(method, rest, sent, body)
        except httpx2.HTTPError as error:
            raise explain_failure(error, self._settings) from None
        try:
            if response.has_redirect_location:
                raise UpstreamFailed(
                    502,
                    "upstream_redirect",
                    "the upstream redirects, which is not followed; give the address that it"
                    " redirects to as --upstream",
                )
            yield response
        finally:
            await response.aclose()

    async def close(self) -> None:
        """Closes every connection."""
        await self._client.aclose()


class _PooledClient:
    """Http1Client behind a proxy of the environment."""

    def __init__(self, base: str, transport: AsyncTransport, timeout: httpx2.Timeout) -> None:
        self._base, self._transport, self._timeout = base, transport, timeout.as_dict()

    async def send(self, method: str, rest: str, headers: Headers, body: bytes) -> httpx2.Response:
        extensions = {"timeout": self._timeout}
        request = httpx2.Request(
            method, self._base + rest, headers=headers, content=body or None, extensions=extensions
        )
        return await self._transport.handle_async_request(request)

    async def aclose(self) -> None:
        await self._transport.aclose()


def choose_headers(headers: Iterable[tuple[bytes, bytes]], key: str, *, own: bool) -> Headers:
    """The client's headers to send on. key: sent in the place of its own, "" sends that. own: its
    Authorization is the proxy's token, and not for the upstream."""
    kept = _drop_named(headers, {b"authorization"} if own or key else set())
    if key:
        kept.append((b"authorization", f"Bearer {key}".encode()))
    return kept


def keep_headers(response: httpx2.Response) -> Headers:
    """The upstream's headers to hand on."""
    return _drop_named(response.headers.raw, set())


def explain_failure(error: Exception, settings: ProxySettings) -> UpstreamFailed:
    """What went wrong with the upstream, without its address or anything that was sent to it."""
    if isinstance(error, httpx2.TimeoutException):
        found = f"the upstream did not answer within {settings.timeout_s:g} s"
        return UpstreamFailed(504, "upstream_timeout", f"{found}; try again, or raise --timeout")
    if isinstance(error, httpx2.ConnectError):
        found = "the upstream cannot be reached"
        return UpstreamFailed(
            502, "upstream_refused", f"{found}; check --upstream, and that it runs"
        )
    found = f"the upstream broke off its answer ({type(error).__name__})"
    return UpstreamFailed(502, "upstream_broken", f"{found}; try again")


def _drop_named(headers: Iterable[tuple[bytes, bytes]], more: set[bytes]) -> Headers:
    listed = [(name.lower(), value) for name, value in headers]
    named = {
        word.strip().lower()
        for name, value in listed
        if name == b"connection"
        for word in value.split(b",")
    }
    return [one for one in listed if one[0] not in _DROPPED | more | named]
