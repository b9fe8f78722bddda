"""The upstream: its settings, what is sent to it, and which headers are handed on."""

from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import urlsplit

import httpx2

from assets.contracts.rename_history import ContractHistory
from serving.meta.policy import HttpSettings, TokenError
from warehouse.errors import UnusableInput
from warehouse.network.egress import EgressConnector
from warehouse.network.http import AsyncTransport

Headers = list[tuple[bytes, bytes]]
TOKEN = b"x-toolmill-token"
# Of one connection only (RFC 9110, 7.6.1), or ours to say.
_DROPPED = {
    *(b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"te"),
    *(b"trailer", b"transfer-encoding", b"upgrade", b"host", b"content-length", b"expect"),
    *(b"accept-encoding", b"proxy-connection", b"date", TOKEN),
}


class ProxyError(UnusableInput):
    """An option of the proxy that cannot be used, with the fix."""


def make_listening(host: str, port: int, token: str, max_body: int = 32_000_000) -> HttpSettings:
    """Where the proxy listens. token: the secret that clients send, "" for none. max_body: bytes.

    Raises ProxyError for a host beyond loopback without a token.
    """
    from serving.meta.access_control import build_token
    from serving.meta.policy import is_loopback

    if not token and not is_loopback(host):
        raise ProxyError(
            f"--host {host!r} is reached by others and no token is asked for; give --token, or"
            " listen on 127.0.0.1"
        )
    try:
        tokens = (build_token(token, "proxy"),) if token else ()
        return HttpSettings(host=host, port=port, path="/v1", tokens=tokens, max_body=max_body)
    except TokenError as error:
        raise ProxyError(str(error)) from None


@dataclass(frozen=True)
class ProxySettings:
    """What the proxy does with a request.

    upstream: base address of an OpenAI-compatible API; without a path, `/v1` is added; "" where a
    local model stands in its place. key: sent to
    it in the place of the client's, "" sends the client's. timeout_s: without a byte of the
    upstream's; total_s: of one request. max_held: bytes of an answer that are held back to be
    judged; what is longer passes unjudged. history: of the contracts, for tools and parameters that
    were renamed.
    """

    upstream: str = ""
    key: str = field(default="", repr=False)
    timeout_s: float = 600.0  # as OpenAI's SDK waits
    total_s: float = 900.0
    max_tools: int = 10_000
    max_open: int = 128
    max_held: int = 16_000_000
    history: ContractHistory | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not self.upstream:
            return
        url_parts = urlsplit(self.upstream)
        if url_parts.scheme not in ("http", "https") or not url_parts.hostname:
            raise ProxyError(
                f"--upstream {self.upstream[:80]!r}: expected an address like"
                " https://api.openai.com/v1"
            )
        if url_parts.username or url_parts.password or url_parts.query or url_parts.fragment:
            raise ProxyError(
                "--upstream holds a user, a query or a fragment; give the address alone and the key"
                " in the variable of --key-env"
            )

    def find_base(self) -> str:
        """The address that stands for the proxy's `/v1`."""
        base = self.upstream.rstrip("/")
        return base if urlsplit(base).path else f"{base}/v1"


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
            EgressConnector(trusted=[host], allow_loopback=True),
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
    result = _drop_named(headers, {b"authorization"} if own or key else set())
    if key:
        result.append((b"authorization", f"Bearer {key}".encode()))
    return result


def keep_headers(response: httpx2.Response) -> Headers:
    """The upstream's headers to hand on."""
    return _drop_named(response.headers.raw, set())


def explain_failure(error: Exception, settings: ProxySettings) -> UpstreamFailed:
    """What went wrong with the upstream, without its address or anything that was sent to it."""
    if isinstance(error, httpx2.TimeoutException):
        found = f"the upstream did not answer within {settings.timeout_s:g} s"
        return UpstreamFailed(504, "upstream_timeout", f"{found}; try again")
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
    return [item for item in listed if item[0] not in _DROPPED | more | named]
