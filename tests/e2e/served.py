"""A client of `toolmill serve`: what an agent's host does, over standard input and output."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.support.paths import ROOT
from tests.support.python_process import find_python


@asynccontextmanager
async def serving(place: Path, home: Path, **settings: str) -> AsyncIterator[Any]:
    """A session with the meta-server of `place`; packages of `home` are launched."""
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client

    parameters = StdioServerParameters(
        command=find_python(),
        args=["-m", "orchestration", "serve", "--place", str(place)],
        env={"PATH": os.environ["PATH"], "TOOLMILL_HOME": str(home), **settings},
        cwd=ROOT,
    )
    async with stdio_client(parameters) as streams, ClientSession(*streams[:2]) as session:
        await session.initialize()
        yield session


async def call_json(session: Any, tool: str, **arguments: Any) -> dict[str, Any]:
    result = await session.call_tool(tool, arguments)
    return result.structured_content or {}
