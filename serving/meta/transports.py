"""How clients reach the meta-server: stdio for one, streamable HTTP for many, each with a token."""

import logging
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import anyio

from assets.servers.calls.log import CallLog
from serving.meta.access_control import find_owner
from serving.meta.context import ToolCaller
from serving.meta.policy import ClientToken, HttpSettings, MetaPolicy, is_loopback
from serving.meta.server import NAME, make_server
from serving.router import ServedRouter

if TYPE_CHECKING:
    import uvicorn
    from mcp.server.lowlevel.server import Server
    from starlette.applications import Starlette
    from starlette.types import ASGIApp


logger = logging.getLogger(__name__)
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


class CannotServe(RuntimeError):
    """The address cannot be served, with the fix."""


async def serve_app(
    app: "Starlette | ASGIApp",
    settings: HttpSettings,
    name: str,
    ready: Callable[[str], None] | None = None,
) -> None:
    """Serves until SIGINT or SIGTERM; `ready` gets the bound address. Raises CannotServe."""
    listening = _bind_socket(settings)
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    address = f"http://{host}:{listening.getsockname()[1]}{settings.path}"
    who = f"{len(settings.tokens)} tokens" if settings.tokens else "no tokens: loopback only"
    logger.info("%s serves %s (%s)", name, address, who)
    if ready is not None:
        ready(address)
    try:
        await _wait_for_signal(make_config(app, settings), listening)
    finally:
        listening.close()


def make_config(app: "Starlette | ASGIApp", settings: HttpSettings) -> "uvicorn.Config":
    import uvicorn

    from serving.meta.http_limits import close_unauthorised, make_protocol

    return uvicorn.Config(
        close_unauthorised(app) if settings.tokens else app,
        http=make_protocol(settings),
        log_config=None,
        access_log=False,  # a query string could hold what its sender took for private
        server_header=False,
        ws="none",
        lifespan="on",
        timeout_graceful_shutdown=5,
    )


async def _wait_for_signal(config: Any, listening: socket.socket) -> None:
    """Serves until SIGINT or SIGTERM. uvicorn would catch them too, but raise them again when it
    has ended: the process would die before the servers that it started are stopped."""
    from uvicorn import Server

    class QuietServer(Server):
        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

    running = QuietServer(config)

    async def watch_signals() -> None:
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            async for _ in signals:
                running.force_exit = running.should_exit  # the second one does not wait
                running.should_exit = True

    async with anyio.create_task_group() as group:
        if threading.current_thread() is threading.main_thread():
            group.start_soon(watch_signals)
        await running.serve(sockets=[listening])
        group.cancel_scope.cancel()


def _bind_socket(settings: HttpSettings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        bound = socket.create_server((settings.host, settings.port), family=family, backlog=128)
        # asyncio sets it only on sockets that name their protocol: small answers took 40 ms more.
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return bound
    except OSError as error:
        raise CannotServe(
            f"cannot serve {settings.host}:{settings.port}: {error.strerror or error}; choose"
            " another port, or end what serves there"
        ) from None


def run_stdio(
    router: ServedRouter, caller: ToolCaller | None, policy: MetaPolicy, outcomes: CallLog
) -> None:
    """Serves until the client closes our standard input."""

    async def serve() -> None:
        from mcp.server.stdio import stdio_server

        server = make_server(router, caller, policy, outcomes)
        try:
            async with stdio_server() as (incoming, outgoing):
                await server.run(incoming, outgoing, server.create_initialization_options())
        finally:
            await close_after(caller)

    anyio.run(serve)


async def close_after(caller: Any) -> None:
    close = getattr(caller, "close", None)
    if close is not None:
        with anyio.CancelScope(shield=True), anyio.move_on_after(10):
            await close()


class TokenVerifier:
    """The SDK's question whose a token is, answered from our list."""

    def __init__(self, tokens: Sequence[ClientToken]) -> None:
        self._tokens = tokens

    async def verify_token(self, token: str) -> Any:
        """Who sent it, None when nobody we know. The secret is not kept in the answer."""
        from mcp.server.auth.provider import AccessToken

        owner = find_owner(token, self._tokens)
        return owner and AccessToken(token=owner.sha256, client_id=owner.name, scopes=[])


def make_http_app(server: "Server[Any]", settings: HttpSettings) -> "Starlette":
    from mcp.server.auth.settings import AuthSettings

    from serving.meta.http_limits import guard_manager

    auth = {}
    if settings.tokens:
        # Nothing is issued here; the SDK only asks tokens with these settings present.
        issuer = AuthSettings.model_validate(
            {"issuer_url": "http://127.0.0.1", "resource_server_url": None}
        )
        auth = {"auth": issuer, "token_verifier": TokenVerifier(settings.tokens)}
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
    router: ServedRouter,
    caller: ToolCaller | None,
    policy: MetaPolicy,
    outcomes: CallLog,
    settings: HttpSettings,
    *,
    ready: Callable[[str], None] | None = None,
) -> None:
    """Serves until SIGINT or SIGTERM; `ready` gets the bound address. Raises CannotServe."""

    async def serve() -> None:
        server = make_server(router, caller, policy, outcomes, tokens=settings.tokens)
        try:
            await serve_app(make_http_app(server, settings), settings, NAME, ready)
        finally:
            await close_after(caller)

    anyio.run(serve)


def _make_security(settings: HttpSettings) -> Any:
    """Accepted `Host` and `Origin` headers: no web page may reach us by a name it points here.
    Beyond loopback without named hosts the tokens guard; a page has none."""
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
