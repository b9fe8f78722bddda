"""Streamable HTTP: many clients, each with a bearer token."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import anyio

from assets.servers.calls.log import Outcomes
from serving.meta.access.policy import HttpSettings, MetaPolicy, Token, is_loopback
from serving.meta.access.tokens import find_owner
from serving.meta.context import Caller
from serving.meta.protocol.listen import serve_app
from serving.meta.protocol.server import NAME, make_server
from serving.meta.protocol.stdio import close_after

if TYPE_CHECKING:
    from mcp.server.lowlevel.server import Server
    from starlette.applications import Starlette

    from serving.router import ServedRouter

_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


class Verifier:
    """The SDK's question whose a token is, answered from our list."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self._tokens = tokens

    async def verify_token(self, token: str) -> Any:
        """Who sent it, None when nobody we know. The secret is not kept in the answer."""
        from mcp.server.auth.provider import AccessToken

        owner = find_owner(token, self._tokens)
        return owner and AccessToken(token=owner.sha256, client_id=owner.name, scopes=[])


def make_http_app(server: "Server[Any]", settings: HttpSettings) -> "Starlette":
    """The web application of a server that was made with the same tokens."""
    from mcp.server.auth.settings import AuthSettings

    from serving.meta.protocol.admission import guard_manager

    auth = {}
    if settings.tokens:
        # Nothing is issued here; the SDK only asks tokens with these settings present.
        issuer = AuthSettings.model_validate(
            {"issuer_url": "http://127.0.0.1", "resource_server_url": None}
        )
        auth = {"auth": issuer, "token_verifier": Verifier(settings.tokens)}
    app = server.streamable_http_app(
        streamable_http_path=settings.path,
        max_request_body_size=settings.max_body,
        max_sessions=settings.max_sessions,
        session_idle_timeout=settings.idle_s,
        transport_security=_make_security(settings),
        host=settings.host,
        **auth,
    )
    guard_manager(server.session_manager, settings)
    return app


def run_http(
    router: "ServedRouter",
    caller: Caller | None,
    policy: MetaPolicy,
    outcomes: Outcomes,
    settings: HttpSettings,
    *,
    ready: Callable[[str], None] | None = None,
) -> None:
    """Serves until it is told to end (SIGINT, SIGTERM). `ready` gets the address once it is bound.

    Raises CannotServe when the address is taken or not ours.
    """
    anyio.run(serve_http, router, caller, policy, outcomes, settings, ready)


async def serve_http(
    router: "ServedRouter",
    caller: Caller | None,
    policy: MetaPolicy,
    outcomes: Outcomes,
    settings: HttpSettings,
    ready: Callable[[str], None] | None = None,
) -> None:
    """`run_http` inside a running loop."""
    server = make_server(router, caller, policy, outcomes, tokens=settings.tokens)
    try:
        await serve_app(make_http_app(server, settings), settings, NAME, ready)
    finally:
        await close_after(caller)


def _make_security(settings: HttpSettings) -> Any:
    """Which `Host` and `Origin` headers are accepted: a page in a browser must not reach us by a
    name that it made point here. Beyond loopback without named hosts the tokens are the guard: such
    a page has none."""
    from mcp.server.transport_security import TransportSecuritySettings

    if is_loopback(settings.host):
        names = _LOOPBACK
    elif settings.hosts:
        names = ()
    else:
        return TransportSecuritySettings(enable_dns_rebinding_protection=False)
    origins = [f"{scheme}://{name}:*" for scheme in ("http", "https") for name in names]
    return TransportSecuritySettings(
        allowed_hosts=[*(f"{name}:*" for name in names), *names, *settings.hosts],
        allowed_origins=[*origins, *settings.origins],
    )
