"""The upstream: what is sent to it, and what of its answers is handed on."""

from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol
from urllib.parse import urlsplit

import httpx2

from extensions.proxy.settings import ProxySettings
from warehouse.network.egress import Connector
from warehouse.network.http import AsyncTransport

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
    """Sends requests to one address. The operator named it, so it may be a private one; redirects
    are not followed."""

    def __init__(self, settings: ProxySettings) -> None:
        self._settings, self._base = settings, settings.find_base()
        host = urlsplit(self._base).hostname or ""
        self._transport = AsyncTransport(
            Connector(trusted=[host], allow_loopback=True),
            httpx2.Limits(max_connections=settings.max_open + 2),
        )
        read_s = settings.timeout_s
        self._timeout = httpx2.Timeout(read_s, connect=min(10.0, read_s)).as_dict()

    @asynccontextmanager
    async def open_answer(
        self, method: str, rest: str, headers: Headers, body: bytes
    ) -> AsyncIterator[httpx2.Response]:
        """The answer, its body unread. rest: path after `/v1`, with the query. Raises
        UpstreamFailed."""
        # What is judged has to be readable; compression of text on its way is the client's loss.
        sent = [(b"accept-encoding", b"identity"), *headers]
        extensions = {"timeout": self._timeout}
        try:
            request = httpx2.Request(
                method, self._base + rest, headers=sent, content=body, extensions=extensions
            )
            response = await self._transport.handle_async_request(request)
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
