"""Changes: telling connected clients that a new index is served.

Up to 2025-11-25 a notification goes to every session; from 2026-07-28 on it goes to the streams
that clients opened with `subscriptions/listen`. Both may be lost: clients ask again anyway.
"""

import asyncio
import logging
from typing import Any

import anyio

from serving.meta.context import Desk

logger = logging.getLogger(__name__)
_PATIENCE_S = 5.0  # with a client that does not read what it is sent


class Changes:
    """The clients of one server."""

    def __init__(self) -> None:
        from mcp.server.subscriptions import InMemorySubscriptionBus

        self.bus = InMemorySubscriptionBus()
        self.sessions: dict[int, Any] = {}

    async def note_session(self, ctx: Any, _: Any) -> None:
        """A session is ready (`notifications/initialized`); it is forgotten when it closes."""
        connection = ctx.session._connection
        self.sessions[id(connection)] = ctx.session
        connection.exit_stack.callback(self.sessions.pop, id(connection), None)

    async def announce(self) -> None:
        """Tells every client that tools and resources are others now."""
        from mcp.server.subscriptions import ResourcesListChanged, ToolsListChanged

        await self.bus.publish(ToolsListChanged())
        await self.bus.publish(ResourcesListChanged())
        async with anyio.create_task_group() as group:
            for session in list(self.sessions.values()):
                group.start_soon(_notify_session, session)


async def watch_versions(desk: Desk, changes: Changes) -> None:
    """Announces each new version until it is cancelled. It also makes the router look: without a
    query nobody else would."""
    loop, wake = asyncio.get_running_loop(), asyncio.Event()

    def swapped(_: str) -> None:
        try:
            loop.call_soon_threadsafe(wake.set)
        except RuntimeError:  # the loop has closed: nobody is left to be told
            pass

    desk.served.on_change(swapped)
    known, first = None, True
    while True:
        version = await _read_version(desk)
        if version != known and not first:
            logger.info("index %s is served now", version)
            await changes.announce()
        known, first = version, False
        with anyio.move_on_after(desk.policy.poll_s):
            await wake.wait()
        wake.clear()


async def _read_version(desk: Desk) -> str | None:
    from serving.index.errors import IndexBroken, IndexMissing

    try:
        return (await desk.router()).index.version
    except (IndexMissing, IndexBroken):
        return None  # told to whoever asks for something


async def _notify_session(session: Any) -> None:
    with anyio.move_on_after(_PATIENCE_S):
        try:
            await session.send_tool_list_changed()
            await session.send_resource_list_changed()
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass  # it left meanwhile
