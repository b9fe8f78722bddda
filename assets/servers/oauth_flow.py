"""The SDK's OAuth providers, fitted to tokens that processes share, and the browser's callback.

Imports the SDK, which takes long: import this module inside functions.
"""

import secrets
from collections.abc import Awaitable, Callable
from socket import socket
from typing import Any
from urllib.parse import parse_qs, urlsplit

import anyio
import anyio.abc
import httpx2
from mcp.client.auth import OAuthClientProvider, OAuthFlowError, TokenStorage  # noqa: TID253
from mcp.client.auth.utils import credentials_match_issuer  # noqa: TID253
from mcp.shared.auth import (  # noqa: TID253
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    ProtectedResourceMetadata,
)
from pydantic import AnyUrl

from assets.servers.probe.remote_outcome import RemoteFailure, show_text, write_login_advice

PATH = "/callback"
_MOST = 16_384  # bytes of a request
_REQUEST_S = 5.0
_BASIC, _POST = "client_secret_basic", "client_secret_post"
_PAGE = "<!doctype html><meta charset=utf-8><title>toolmill</title><p>{}</p>"


class LoginCallback:
    """Waits for the browser's return. A request with another state is answered and ignored: any
    page in that browser can send one."""

    def __init__(self, listening: socket, show: Callable[[str], None], timeout_s: float) -> None:
        self._listening, self._show, self._timeout_s = listening, show, timeout_s
        self._state = ""
        self._found: dict[str, str] = {}
        self._done: anyio.Event | None = None

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._listening.getsockname()[1]}{PATH}"

    async def show(self, url: str) -> None:
        """Hands on the authorization address, if it is one that a browser may be sent to."""
        address = urlsplit(url)
        if address.scheme not in ("http", "https") or not url.isprintable():
            raise OAuthFlowError(
                f"its authorization address is no web address ({address.scheme!r})"
            )
        self._state = parse_qs(address.query).get("state", [""])[-1]
        self._show(url)

    async def wait(self) -> Any:
        """The code that came back. Raises OAuthFlowError where the person or server refused."""
        self._done = anyio.Event()
        listener = await anyio.abc.SocketListener.from_socket(self._listening.dup())
        with anyio.move_on_after(self._timeout_s):
            async with listener, anyio.create_task_group() as tasks:
                tasks.start_soon(listener.serve, self._answer_request)
                await self._done.wait()
                tasks.cancel_scope.cancel()
        if not self._found:
            raise OAuthFlowError(f"nobody came back from the browser in {self._timeout_s:.0f} s")
        if "code" not in self._found:
            raise OAuthFlowError(f"refused with {show_text(self._found.get('error', ''))!r}")
        return AuthorizationCodeResult(
            code=self._found["code"], state=self._found["state"], iss=self._found.get("iss")
        )

    async def _answer_request(self, stream: anyio.abc.SocketStream) -> None:
        async with stream:
            try:
                with anyio.fail_after(_REQUEST_S):
                    data = b""
                    while b"\r\n\r\n" not in data and len(data) < _MOST:
                        data += await stream.receive(4096)
                    status, text = self._judge_request(data.partition(b"\r\n")[0].decode("latin-1"))
                    page = _PAGE.format(text).encode()
                    head = f"HTTP/1.1 {status}\r\nContent-Type: text/html\r\nConnection: close\r\n"
                    await stream.send(f"{head}Content-Length: {len(page)}\r\n\r\n".encode() + page)
            except (TimeoutError, anyio.BrokenResourceError, anyio.EndOfStream):
                pass
        if self._found and self._done:
            self._done.set()

    def _judge_request(self, line: str) -> tuple[str, str]:
        """The answer's status and text; notes the code where the request brings it."""
        method, _, after_method = line.partition(" ")
        target = urlsplit(after_method.partition(" ")[0])
        if method != "GET" or target.path != PATH:
            return "404 Not Found", "Nothing is here."
        query = {name: values[-1] for name, values in parse_qs(target.query).items()}
        state = query.get("state", "")
        if not self._state or not secrets.compare_digest(state.encode(), self._state.encode()):
            return "400 Bad Request", "This is not the login that was begun."
        if self._found or not ("code" in query or "error" in query):
            return "400 Bad Request", "This login is over."
        self._found = query
        outcome = "Logged in" if "code" in query else "Refused"
        return "200 OK", f"{outcome}. You may close this page and go back to the terminal."


CLIENT_NAME = "toolmill"
_PATIENCE_S = 15.0  # for another probe that renews the same login


class LoginNeeded(OAuthFlowError):
    """Only a person can go on."""

    def __init__(self, url: str, detail: str) -> None:
        super().__init__(detail)
        self.failure = RemoteFailure("remote_auth", f"OAuth: {detail}", write_login_advice(url))


class _StoredTokensProvider(OAuthClientProvider):
    """A provider that goes on where another process stopped."""

    context: Any

    async def _initialize(self) -> None:
        await super()._initialize()
        stored = self.context.storage.load()
        # The SDK read the tokens before: another probe may have renewed them since, and the old
        # token with the new one's end would look valid, be refused and spend another renewal.
        self.context.current_tokens = self.context.storage.read_tokens(stored)
        if self.context.current_tokens:
            self.context.token_expiry_time = stored.get("expires_at")
        if metadata := stored.get("server_metadata"):
            self.context.oauth_metadata = OAuthMetadata.model_validate(metadata)
        if metadata := stored.get("resource_metadata"):
            resource = ProtectedResourceMetadata.model_validate(metadata)
            self.context.protected_resource_metadata = resource

    def _expected_issuer(self) -> str:
        """The authorization server that is asked. The SDK would register again at another one than
        the client belongs to; a client that was made for one server is shown to no other."""
        issuer = super()._expected_issuer()
        client = self.context.client_info
        if client is not None and not credentials_match_issuer(client, issuer, None):
            reason = f"it names another authorization server, {show_text(issuer)}"
            raise LoginNeeded(self.context.server_url, reason)
        return issuer

    async def _handle_token_response(self, response: httpx2.Response) -> None:
        prior = self.context.current_tokens
        await super()._handle_token_response(response)
        context = self.context
        if prior and prior.refresh_token and context.current_tokens.refresh_token is None:
            context.current_tokens.refresh_token = prior.refresh_token  # the server does not rotate
            await context.storage.set_tokens(context.current_tokens)
        context.storage.save(
            server_metadata=_dump_model(context.oauth_metadata),
            resource_metadata=_dump_model(context.protected_resource_metadata),
        )


def _dump_model(model: Any) -> dict[str, Any] | None:
    return model.model_dump(mode="json", exclude_none=True) if model is not None else None


class UnattendedProvider(_StoredTokensProvider):
    """With the tokens of an earlier login. A run has no browser and no new registration:
    a refused token is refreshed once, then a person is asked for.

    Two probes of one server renew one after the other: an authority that rotates refresh tokens
    takes one that is used twice for stolen, and ends the login.
    """

    _refreshed = False
    _held: Any = None

    async def _initialize(self) -> None:
        await super()._initialize()
        if not self.context.is_token_valid() and self.context.can_refresh_token():
            await self._wait_alone()
            await super()._initialize()  # it may have been renewed meanwhile
            if self.context.is_token_valid():
                self._let_go()

    async def _perform_authorization(self) -> httpx2.Request:
        if self._refreshed or not self.context.can_refresh_token():
            raise LoginNeeded(self.context.server_url, "the stored login is no longer accepted")
        self._refreshed = True
        await self._wait_alone()
        self.context.current_tokens = await self.context.storage.get_tokens()
        return await self._refresh_token()

    async def _handle_refresh_response(self, response: httpx2.Response) -> bool:
        try:
            return await super()._handle_refresh_response(response)
        finally:
            self._let_go()

    async def _handle_token_response(self, response: httpx2.Response) -> None:
        try:
            await super()._handle_token_response(response)
        finally:
            self._let_go()

    async def _wait_alone(self) -> None:
        """Waits for the other probes of this server; without end for none of them."""
        with anyio.move_on_after(_PATIENCE_S):
            while self._held is None:
                self._held = self.context.storage.try_lock()
                await anyio.sleep(0 if self._held else 0.05)

    def _let_go(self) -> None:
        if self._held is not None:
            self._held.close()  # the lock goes with it, as it does with a process that is killed
            self._held = None


class LoginProvider(_StoredTokensProvider):
    """With a person at a browser."""

    chosen: OAuthClientInformationFull | None = None

    async def _initialize(self) -> None:
        self.context.client_info = self.chosen
        self._initialized = True

    async def _perform_authorization(self) -> httpx2.Request:
        if self.chosen is not None and self.chosen.client_secret:
            # RFC 8414: where the authorization server names no way, it takes Basic alone.
            facts = self.context.oauth_metadata
            ways = facts and (facts.token_endpoint_auth_methods_supported or [_BASIC])
            if ways and _BASIC in ways and _POST not in ways:
                self.chosen.token_endpoint_auth_method = _BASIC
        return await super()._perform_authorization()

    async def _handle_token_response(self, response: httpx2.Response) -> None:
        await super()._handle_token_response(response)
        client = self.context.client_info
        if client.issuer is None and self.context.oauth_metadata is not None:
            client.issuer = self._expected_issuer()
        await self.context.storage.set_client_info(client)


def make_login(
    url: str,
    store: TokenStorage,
    *,
    redirect_uri: str,
    show: Callable[[str], Awaitable[None]],
    wait: Callable[[], Awaitable[AuthorizationCodeResult]],
    client_id: str | None,
    client_secret: str | None,
    issuer: str | None,
) -> LoginProvider:
    """A client that is registered manually (client_id), or by itself at the server's request."""
    method = _POST if client_secret else "none"
    uris = [AnyUrl(redirect_uri)]
    metadata = OAuthClientMetadata(
        redirect_uris=uris, client_name=CLIENT_NAME, token_endpoint_auth_method=method
    )
    provider = LoginProvider(url, metadata, store, show, wait)
    if client_id:
        provider.chosen = OAuthClientInformationFull(
            redirect_uris=uris,
            client_id=client_id,
            client_secret=client_secret,
            token_endpoint_auth_method=method,
            issuer=issuer,
        )
    return provider
