"""Admission: what each token may hold of the HTTP server, before its request is read.

What a token sends is counted here whatever it is: `limit_requests` counts questions, and opening
a session, a ping or a body that is no JSON is none.
"""

from collections import Counter
from typing import Any

import anyio
from starlette.requests import ClientDisconnect

from serving.meta.access.limits import Limits, TooMany
from serving.meta.access.policy import HttpSettings, Token

_LEAST_RATE = 60  # HTTP requests a minute that every token has
_OVERHEAD = 4  # HTTP requests per question: a session's opening, notifications, streams, its end
_PAUSE_S = 1.0  # until a refusal is sent, so that a client in a loop does not occupy us
_SESSION = b"mcp-session-id"


class Admission:
    """An ASGI application around the SDK's; everything by token, for one event loop.

    manager: the SDK's, whose sessions name their owners.
    """

    def __init__(self, inner: Any, manager: Any, settings: HttpSettings) -> None:
        self._inner, self._manager, self._settings = inner, manager, settings
        self._limits = Limits()
        self._open: Counter[str] = Counter()  # requests that are being answered, streams included
        self._opening: Counter[str] = Counter()  # those of them that open a session
        self._tokens = {token.name: _bound_overhead(token) for token in settings.tokens}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answers 429 in place of the application where a limit is reached."""
        try:
            await self._count(scope, receive, send)
        except ClientDisconnect:  # in the middle of its body: nobody is left to be told
            pass

    async def _count(self, scope: Any, receive: Any, send: Any) -> None:
        token = self._find_sender(scope)
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

    async def _admit(self, token: Token, scope: Any, receive: Any, send: Any) -> None:
        try:
            self._check_open(token)
            self._limits.count(token)
            self._check_sessions(token, scope)
        except TooMany as error:
            await anyio.sleep(_PAUSE_S)
            return await _refuse(str(error), error.retry_s, send)
        opens = _is_opening(scope)
        self._opening[token.name] += opens
        try:
            await self._inner(scope, receive, send)
        finally:
            self._opening[token.name] -= opens

    def _check_open(self, token: Token) -> None:
        """Raises TooMany where the token has too many requests open."""
        most = self._settings.open_requests
        if self._open[token.name] > most:
            found = f"token {token.name!r} has {most} requests open, allowed are no more"
            raise TooMany(f"{found}; come again when one has ended", 1.0)

    def _check_sessions(self, token: Token, scope: Any) -> None:
        """Raises TooMany where the request would open a session too many."""
        if not _is_opening(scope):
            return
        owners = self._manager._session_owners.values()
        held = sum(owner["client_id"] == token.name for owner in owners)
        # One that is being opened may count twice for a moment, never not at all.
        if held + self._opening[token.name] >= self._settings.token_sessions:
            raise TooMany(
                f"token {token.name!r} has {held} sessions open, allowed are"
                f" {self._settings.token_sessions}; end one (DELETE), or wait until one is idle for"
                f" {self._settings.idle_s:.0f} s",
                60.0,
            )

    def _find_sender(self, scope: Any) -> Token | None:
        access = getattr(scope.get("user"), "access_token", None)
        return self._tokens.get(access.client_id) if access is not None else None


def guard_manager(manager: Any, settings: HttpSettings) -> None:
    """Puts the limits before a session manager."""
    manager.asgi_app = Admission(manager.asgi_app, manager, settings)


def _bound_overhead(token: Token) -> Token:
    """The token with the rate of its HTTP requests."""
    rate = token.requests_per_minute
    if rate is None:
        return token
    return Token(token.name, requests_per_minute=max(_LEAST_RATE, _OVERHEAD * rate))


def _is_opening(scope: Any) -> bool:
    """Whether a request could open one: it is in none, and of a protocol that has sessions (none
    since 2026-07-28)."""
    from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
    from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

    sent = dict(scope["headers"])
    version = sent.get(MCP_PROTOCOL_VERSION_HEADER.encode())
    modern = version is not None and version.decode("latin-1") not in HANDSHAKE_PROTOCOL_VERSIONS
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
