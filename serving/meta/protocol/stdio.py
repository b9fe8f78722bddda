"""stdio: one client, which started us and speaks over our standard streams."""

from typing import TYPE_CHECKING, Any

import anyio

from assets.servers.calls.log import Outcomes
from serving.meta.access.policy import MetaPolicy
from serving.meta.context import Caller
from serving.meta.protocol.server import make_server

if TYPE_CHECKING:
    from serving.router import ServedRouter


def run_stdio(
    router: "ServedRouter", caller: Caller | None, policy: MetaPolicy, outcomes: Outcomes
) -> None:
    """Serves until the client closes our standard input."""
    anyio.run(_serve_streams, router, caller, policy, outcomes)


async def _serve_streams(
    router: "ServedRouter", caller: Caller | None, policy: MetaPolicy, outcomes: Outcomes
) -> None:
    from mcp.server.stdio import stdio_server

    server = make_server(router, caller, policy, outcomes)
    try:
        async with stdio_server() as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())
    finally:
        await close_after(caller)


async def close_after(caller: Any) -> None:
    """Ends whatever the caller keeps running."""
    close = getattr(caller, "close", None)
    if close is not None:
        with anyio.CancelScope(shield=True), anyio.move_on_after(10):
            await close()
