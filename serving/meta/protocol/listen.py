"""Listening: one web application on one address, until the process is told to end."""

import logging
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import anyio

from serving.meta.access.policy import HttpSettings

if TYPE_CHECKING:
    import uvicorn
    from starlette.applications import Starlette
    from starlette.types import ASGIApp

logger = logging.getLogger(__name__)


class CannotServe(RuntimeError):
    """The address cannot be served, with the fix."""


async def serve_app(
    app: "Starlette | ASGIApp",
    settings: HttpSettings,
    name: str,
    ready: Callable[[str], None] | None = None,
) -> None:
    """Serves an application until SIGINT or SIGTERM. `ready` gets the address once it is bound.

    Raises CannotServe when the address is taken or not ours.
    """
    listening = _bind_socket(settings)
    address = f"http://{_show_host(settings.host)}:{listening.getsockname()[1]}{settings.path}"
    who = f"{len(settings.tokens)} tokens" if settings.tokens else "no tokens: loopback only"
    logger.info("%s serves %s (%s)", name, address, who)
    if ready is not None:
        ready(address)
    try:
        await _wait_for_signal(make_config(app, settings), listening)
    finally:
        listening.close()


def make_config(app: "Starlette | ASGIApp", settings: HttpSettings) -> "uvicorn.Config":
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
        bound = socket.create_server((settings.host, settings.port), family=family, backlog=128)
        # asyncio sets it only on sockets that name their protocol: small answers took 40 ms more.
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return bound
    except OSError as error:
        raise CannotServe(
            f"cannot serve {settings.host}:{settings.port}: {error.strerror or error}; choose"
            " another port, or end what serves there"
        ) from None


def _show_host(host: str) -> str:
    return f"[{host}]" if ":" in host else host
