"""Streamable HTTP: many clients, each with a bearer token."""

import logging
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import anyio

from assets.servers.calls.log import Outcomes
from serving.meta.access.policy import HttpSettings, MetaPolicy, Token, is_loopback
from serving.meta.access.tokens import owner_of
from serving.meta.context import Caller
from serving.meta.protocol.server import NAME, make_server
from serving.meta.protocol.stdio import close_after

if TYPE_CHECKING:
    import uvicorn
    from mcp.server.lowlevel.server import Server
    from starlette.applications import Starlette

    from serving.router import ServedRouter

logger = logging.getLogger(__name__)
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


class CannotServe(RuntimeError):
    """The address cannot be served, with the fix."""


class Verifier:
    """The SDK's question whose a token is, answered from our list."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self._tokens = tokens

    async def verify_token(self, token: str) -> Any:
        """Who sent it, None when nobody we know. The secret is not kept in the answer."""
        from mcp.server.auth.provider import AccessToken

        owner = owner_of(token, self._tokens)
        return owner and AccessToken(token=owner.sha256, client_id=owner.name, scopes=[])


def http_app(server: "Server[Any]", settings: HttpSettings) -> "Starlette":
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
    listening = _bind_socket(settings)
    address = f"http://{_show_host(settings.host)}:{listening.getsockname()[1]}{settings.path}"
    config = make_config(http_app(server, settings), settings)
    who = f"{len(settings.tokens)} tokens" if settings.tokens else "no tokens: loopback only"
    logger.info("%s serves %s (%s)", NAME, address, who)
    if ready is not None:
        ready(address)
    try:
        await _wait_for_signal(config, listening)
    finally:
        listening.close()
        await close_after(caller)


def make_config(app: "Starlette", settings: HttpSettings) -> "uvicorn.Config":
    """How uvicorn serves the application."""
    import uvicorn

    from serving.meta.protocol.connections import make_protocol

    return uvicorn.Config(
        app,
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

    class Quiet(Server):
        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

    running = Quiet(config)

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
        return socket.create_server((settings.host, settings.port), family=family, backlog=128)
    except OSError as error:
        raise CannotServe(
            f"cannot serve {settings.host}:{settings.port}: {error.strerror or error}; choose"
            " another port, or end what serves there"
        ) from None


def _show_host(host: str) -> str:
    return f"[{host}]" if ":" in host else host


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
