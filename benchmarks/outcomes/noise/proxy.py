"""The proxy: an MCP server of ours before a real one, which spoils what it passes on."""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from random import Random
from typing import Any

from assets.outcomes.worlds.session import join_texts
from assets.outcomes.worlds.task import replace_leaf, walk_leaves
from assets.servers.calls.result import CallResult
from benchmarks.outcomes.noise.endpoints import ToolEndpoint

RANDOM, TRUNCATED, STALE = "random", "truncated", "stale"
SLOW, UNIT, EMPTY = "slow", "wrong unit", "silent empty"
# Share of the calls that each hits. The first three are ToolFlix's; the others are ours.
RATES = {RANDOM: 0.35, TRUNCATED: 1.0, STALE: 0.6, SLOW: 0.5, UNIT: 1.0, EMPTY: 0.5}
FAULTS = tuple(RATES)
NOT_CARRIED_OUT = (RANDOM, STALE, SLOW, EMPTY)  # a call that is hit does not reach the real tool
CUT = 80  # characters that are left of a truncated answer
LIMIT_S, DELAY_S = 0.25, 0.3  # of a call of a slow tool; they stand for seconds
_FACTORS = (10, 100, 1000)
_NUMBER = re.compile(r"(?<![\w.\-/])\d+(?:\.\d+)?(?![\w.\-/])")


def is_hit(fault: str | None, rng: Random) -> bool:
    """Whether the fault strikes at one call."""
    return fault is not None and rng.random() < RATES[fault]


def change_answer(fault: str, text: str, rng: Random) -> str:
    """What of a real answer the caller gets to see."""
    if fault == TRUNCATED:
        return text[:CUT]
    if fault == UNIT:
        factor = rng.choice(_FACTORS)
        return _NUMBER.sub(lambda match: scale_number(match[0], factor), text)
    return text


def change_arguments(fault: str, arguments: Mapping[str, Any], rng: Random) -> dict[str, Any]:
    """What the real tool is asked; by a tool of the wrong unit, other numbers."""
    changed = dict(arguments)
    if fault == UNIT:
        factor = rng.choice(_FACTORS)
        for path, value in walk_leaves(arguments):
            if isinstance(value, int | float) and not isinstance(value, bool):
                changed = replace_leaf(changed, path, value * factor)
    return changed


def scale_number(number: str, factor: int) -> str:
    """A decimal number in another unit, as text."""
    if "." in number:
        return f"{float(number) * factor:g}"
    return str(int(number) * factor)


Forward = Callable[[str, dict[str, Any]], Awaitable[CallResult]]  # base tool, arguments
FAILURE = "Error: upstream request failed"
PATIENCE_S = 60.0
NOTHING_YET = "Error: cached response expired"  # what a stale tool says before it has an answer


@dataclass(frozen=True)
class ProxyAnswer:
    """What an actor sees of a call. kind: ok, tool_error, timeout, or as a call's status."""

    texts: tuple[str, ...]
    kind: str
    seconds: float


@dataclass
class FaultProxy:
    """One endpoint as an MCP server. hit: whether its fault strikes at the next call,
    which decides with `draw` what it does."""

    endpoint: ToolEndpoint
    forward: Forward = field(repr=False)
    hit: bool = False
    draw: Random = field(default_factory=Random)
    canned: str = NOTHING_YET

    def make_server(self) -> Any:
        """The SDK's server, with this one tool."""
        from mcp.server.lowlevel.server import Server

        name = self.endpoint.server_id
        return Server(name, version="1", on_list_tools=self.list_tools, on_call_tool=self.call_tool)

    async def list_tools(self, _: Any, __: Any) -> Any:
        from mcp_types import ListToolsResult

        listed = self.endpoint.contract
        kept = {name: listed[name] for name in ("name", "description", "inputSchema")}
        return ListToolsResult.model_validate({"tools": [kept]})

    async def call_tool(self, _: Any, params: Any) -> Any:
        from mcp_types import CallToolResult

        texts, failed = await self.answer_call(params.arguments or {})
        content = [{"type": "text", "text": text} for text in texts]
        return CallToolResult.model_validate({"content": content, "isError": failed})

    async def answer_call(self, arguments: Mapping[str, Any]) -> tuple[list[str], bool]:
        """(texts, whether it says that it failed) of one call, the fault's part in it done."""
        fault = self.endpoint.fault if self.hit else None
        if fault == RANDOM:
            return [FAILURE], True
        if fault == EMPTY:
            return [""], False
        if fault == STALE:
            return [self.canned], False
        if fault == SLOW:
            await asyncio.sleep(DELAY_S)  # who asked has gone by then
            return [FAILURE], True
        own = change_arguments(fault, arguments, self.draw) if fault else dict(arguments)
        result = await self.forward(self.endpoint.base, own)
        texts = join_texts([result])
        if fault:
            texts = [change_answer(fault, text, self.draw) for text in texts]
        if result.status == "ok" and self.canned == NOTHING_YET:
            self.canned = "\n".join(texts)
        return texts, result.status != "ok"


class ProxyPool:
    """The proxies of one real server, each connected at its first call and kept. Use as an async
    context manager, entered and left by one task."""

    def __init__(self, forward: Forward) -> None:
        self._forward, self._stack = forward, AsyncExitStack()
        self._open: dict[str, tuple[FaultProxy, Any]] = {}

    async def __aenter__(self) -> "ProxyPool":
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._stack.aclose()

    async def call(
        self, endpoint: ToolEndpoint, arguments: dict[str, Any], draw: Random
    ) -> ProxyAnswer:
        """One call over MCP; `draw` decides whether the fault strikes. What fails is told."""
        from mcp.shared.exceptions import MCPError

        proxy, client = await self._connect(endpoint)
        fault = endpoint.fault
        proxy.hit, proxy.draw = is_hit(fault, draw), draw
        limit = LIMIT_S if proxy.hit and fault == SLOW else PATIENCE_S
        began = time.perf_counter()
        try:
            result = await client.call_tool(endpoint.tool, arguments, read_timeout_seconds=limit)
        except MCPError as error:
            kind = "timeout" if "timed out" in str(error).lower() else "protocol_error"
            return ProxyAnswer((), kind, time.perf_counter() - began)
        texts = tuple(str(getattr(item, "text", "")) for item in result.content)
        kind = "tool_error" if result.is_error else "ok"
        return ProxyAnswer(texts, kind, time.perf_counter() - began)

    async def _connect(self, endpoint: ToolEndpoint) -> tuple[FaultProxy, Any]:
        from mcp import Client

        if endpoint.id not in self._open:
            proxy = FaultProxy(endpoint, self._forward)
            # The handshake and JSON-RPC, as with a server of another process.
            made = Client(proxy.make_server(), mode="legacy", cache=None)
            client = await self._stack.enter_async_context(made)
            await client.list_tools()
            self._open[endpoint.id] = proxy, client
        return self._open[endpoint.id]
