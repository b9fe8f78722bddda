"""The conversation with an MCP server over any transport: handshake, lists with caps and cursors.

A probe has all of it; a call opens the session and lists the tools, then sends its requests.
"""

import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import anyio
from pydantic import ValidationError

from assets.contracts.canonical import MOST_TOOLS
from assets.servers.probe.failure_kinds import ConversationEnd, ProbeFailure
from assets.servers.probe.transcript import BREAKS_PROTOCOL, ServerTranscript

_DISCOVER_S = 2.0  # for a server that named the newer revision in a handshake
_SHOWN = 8  # versions that a failure names


async def settle_version(
    session: Any, transcript: ServerTranscript, within_s: float = _DISCOVER_S
) -> None:
    """Three requests at most: `initialize`, `server/discover`, and that once more in a version that
    the server named. Raises Ended where the server speaks another revision only, MCPError with its
    answer to `initialize` where it has neither way, or no answer to the second request within
    `within_s`, and what the SDK raises on garbage."""
    from mcp.shared.exceptions import MCPError
    from mcp_types.version import MODERN_PROTOCOL_VERSIONS

    try:
        await session.initialize()
        if transcript.server.get("protocolVersion") in MODERN_PROTOCOL_VERSIONS:
            with suppress(MCPError, ValueError, RuntimeError), anyio.move_on_after(_DISCOVER_S):
                await session.discover()  # it may mean what it says
        return
    except MCPError as error:
        # Not where the SDK made the error up, for an HTTP status: an SSE server may stand there.
        if not transcript.has_sent(error.error):
            raise
        refused = error
    try:
        with anyio.fail_after(within_s):
            await session.discover()
    except TimeoutError as error:
        raise refused from error
    except MCPError as error:
        _refuse_other_versions(getattr(error.error.data, "get", lambda _: None)("supported"))
        raise refused from error
    except (ValueError, RuntimeError) as error:  # no result of the method; no version of ours in it
        _refuse_other_versions(transcript.server.get("supportedVersions"))
        raise refused from error


def _refuse_other_versions(spoken: Any) -> None:
    """Raises Ended where a server named the versions that it speaks: none of them is ours."""
    from mcp_types.version import MODERN_PROTOCOL_VERSIONS

    if (
        isinstance(spoken, list)
        and spoken
        and not set(MODERN_PROTOCOL_VERSIONS) & set(map(str, spoken))
    ):
        versions = ", ".join(repr(str(version)[:20]) for version in spoken[:_SHOWN])
        raise ConversationEnd(
            ProbeFailure("protocol_error", f"it speaks {versions} of the protocol, none of ours")
        )


def is_stateless(session: Any) -> bool:
    """Whether the server is spoken to without a session, each request on its own."""
    return session.discover_result is not None


def make_call_request(
    session: Any, client: Mapping[str, str], tool: str, arguments: Mapping[str, Any], schema: Any
) -> tuple[dict[str, Any], Any]:
    """(params, options) of a raw `tools/call`. client: name and version of who asks; schema: the
    tool's input schema, which may name arguments that HTTP headers repeat."""
    from mcp.shared.inbound import (
        MCP_METHOD_HEADER,
        MCP_NAME_HEADER,
        MCP_PROTOCOL_VERSION_HEADER,
        encode_header_value,
        find_invalid_x_mcp_header,
        mcp_param_headers,
        x_mcp_header_map,
    )

    params: dict[str, Any] = {"name": tool, "arguments": dict(arguments)}
    headers = {MCP_PROTOCOL_VERSION_HEADER: session.protocol_version}
    if is_stateless(session):
        from mcp_types import (
            CLIENT_CAPABILITIES_META_KEY,
            CLIENT_INFO_META_KEY,
            PROTOCOL_VERSION_META_KEY,
        )

        params["_meta"] = {
            PROTOCOL_VERSION_META_KEY: session.protocol_version,
            CLIENT_CAPABILITIES_META_KEY: {},
            CLIENT_INFO_META_KEY: dict(client),
        }
        headers |= {MCP_METHOD_HEADER: "tools/call", MCP_NAME_HEADER: encode_header_value(tool)}
        if find_invalid_x_mcp_header(schema) is None:
            headers |= mcp_param_headers(x_mcp_header_map(schema), arguments)
    return params, {"headers": headers}


def needs_task(tool: Mapping[str, Any], server: Mapping[str, Any]) -> bool:
    """Whether a raw `tools/list` entry says that a plain call will be refused: it runs as a task
    alone. server: the raw result of `initialize`; the specification (2025-11-25) has a tool's word
    count only where the server announces that it takes tasks for calls."""
    capability: Any = server.get("capabilities")
    for name in ("tasks", "requests", "tools", "call"):
        capability = capability.get(name) if isinstance(capability, Mapping) else None
    execution = tool.get("execution")
    task_support = execution.get("taskSupport") if isinstance(execution, Mapping) else None
    return capability is not None and task_support == "required"


async def check_alive(session: Any) -> None:
    """Returns once the server answers: `ping`, which 2026-07-28 took away, or `server/discover`."""
    if is_stateless(session):
        await session.send_discover(session.protocol_version)
    else:
        await session.send_ping()


_EXTRA_PAGES = 20  # of prompts and resources, each


@dataclass(frozen=True)
class ProbePolicy:
    """Limits of the conversation, in seconds and counts, and who asks.

    A server that used no processor time for `idle_s` and still owes its first answer is taken to
    hang. lists: how often the tools are listed within one session. extras_s: for prompts and
    resources together; 0 asks for neither.
    """

    start_s: float = 30.0
    idle_s: float = 10.0
    list_s: float = 30.0
    extras_s: float = 5.0
    lists: int = 1
    max_pages: int = 200
    max_tools: int = MOST_TOOLS
    client_name: str = "toolmill"
    client_version: str = "0.1"


@dataclass
class ProbeProgress:
    """How far the conversation got; times in seconds since `began` (time.monotonic)."""

    began: float
    answered: bool = False
    pages: int = 0
    initialize_s: float | None = None
    listed_s: float | None = None  # the last page of the first listing
    failure: ProbeFailure | None = None
    missed: tuple[str, ...] = ()  # lists that were announced and could not be had
    protocol: str | None = None  # the revision that is spoken


Idle = Callable[[], float]


async def hold_conversation(
    read: Any,
    write: Any,
    transcript: ServerTranscript,
    limits: ProbePolicy,
    progress: ProbeProgress,
    idle: Idle,
) -> None:
    """Fills `progress` and, through the transport, `transcript`. idle: seconds since the server
    last did anything that shows. Whatever the server does ends up as `progress.failure`."""
    try:
        async with open_session(read, write, transcript, limits, idle) as (session, _):
            stated = session.protocol_version if is_stateless(session) else None
            progress.answered = True
            progress.protocol = stated or transcript.server.get("protocolVersion")
            progress.initialize_s = time.monotonic() - progress.began
            transcript.greeted = transcript.noise
            await list_tools(session, transcript, limits, progress)
            progress.listed_s = time.monotonic() - progress.began
            for _ in range(limits.lists - 1):
                transcript.begin_listing()
                try:
                    await list_tools(session, transcript, limits, progress)
                except Exception:  # a time-out, an error answer, a bad page: the first one stands
                    transcript.take_back()
            if limits.extras_s > 0:
                await _list_extras(session, transcript, limits, progress)
    except Exception as error:  # the SDK raises many types on malformed answers
        progress.failure = classify_exception(
            error, "`tools/list`" if progress.answered else "`initialize`"
        )


@asynccontextmanager
async def open_session(
    read: Any, write: Any, transcript: ServerTranscript, limits: ProbePolicy, idle: Idle
) -> AsyncGenerator[tuple[Any, Any]]:
    """The SDK's session over two streams once a version is agreed on, and its dispatcher, which
    hands out raw results. Raises Ended."""
    from mcp import ClientSession
    from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
    from mcp_types import Implementation

    info = Implementation(name=limits.client_name, version=limits.client_version)
    dispatcher = JSONRPCDispatcher(read, write)
    async with ClientSession(dispatcher=dispatcher, client_info=info) as session:
        # Settles the version, bounded by the clock and by idleness. Halfway to these a server that
        # does nothing is asked without a handshake: it may not answer `initialize`. Raises Ended.
        reason = ""

        async def discover() -> None:
            with suppress(Exception):  # of many types; the handshake may still be answered
                await session.discover()
                tasks.cancel_scope.cancel()

        async def watch() -> None:
            nonlocal reason
            began, asked = time.monotonic(), False
            while not reason:
                await anyio.sleep(0.1)
                waited, idle_s = time.monotonic() - began, idle()
                if waited > limits.start_s:
                    reason = f"{waited:.0f} s"
                elif waited > limits.idle_s and idle_s > limits.idle_s:
                    reason = f"{waited:.0f} s, the last {idle_s:.0f} s idle"
                elif not asked and min(waited, idle_s) > limits.idle_s / 2:
                    asked = True
                    tasks.start_soon(discover)
            tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch)
            await settle_version(session, transcript, min(_DISCOVER_S, limits.idle_s / 2))
            tasks.cancel_scope.cancel()
        if reason:
            raise ConversationEnd(ProbeFailure("timeout_start", reason))
        yield session, dispatcher


async def list_tools(
    session: Any, transcript: ServerTranscript, limits: ProbePolicy, progress: ProbeProgress
) -> None:
    """All pages of `tools/list`, within the time for them. Raises Ended."""
    with anyio.move_on_after(limits.list_s) as clock:
        pages = 0
        async for _ in _iter_pages(session.list_tools, transcript, is_stateless(session)):
            pages += 1
            progress.pages += 1
            if transcript.malformed_page:
                failure = ProbeFailure("protocol_error", transcript.malformed_page, BREAKS_PROTOCOL)
                raise ConversationEnd(failure)
            if len(transcript.tools) > limits.max_tools:
                raise ConversationEnd(
                    ProbeFailure("oversize", f"more than {limits.max_tools} tools")
                )
            if pages >= limits.max_pages:
                raise ConversationEnd(
                    ProbeFailure("oversize", f"more than {limits.max_pages} pages of tools")
                )
    if clock.cancelled_caught:
        raise ConversationEnd(ProbeFailure("timeout_list", f"{limits.list_s:.0f} s"))


async def _list_extras(
    session: Any, transcript: ServerTranscript, limits: ProbePolicy, progress: ProbeProgress
) -> None:
    """Prompts and resources, where the server announces them. They decide nothing: a server whose
    prompts cannot be had has its tools all the same."""
    capabilities = transcript.server.get("capabilities")
    announced = capabilities if isinstance(capabilities, dict) else {}
    asks = (
        ("prompts", "prompts", session.list_prompts),
        ("resources", "resources", session.list_resources),
        ("resources", "resourceTemplates", session.list_resource_templates),
    )
    requests = [(name, ask) for capability, name, ask in asks if capability in announced]
    missed = dict.fromkeys(name for name, _ in requests)
    with anyio.move_on_after(limits.extras_s):
        for name, ask in requests:
            try:
                pages = 0
                async for _ in _iter_pages(ask, transcript, is_stateless(session)):
                    pages += 1
                    if (
                        pages >= _EXTRA_PAGES
                        or len(transcript.lists.get(name, ())) > limits.max_tools
                    ):
                        break
                else:
                    missed.pop(name)
            except Exception:  # an error answer, a bad page, a cursor that comes twice
                continue
    progress.missed = tuple(missed)


async def _iter_pages(
    ask: Callable[..., Awaitable[Any]], transcript: ServerTranscript, stateless: bool
) -> AsyncGenerator[Any, None]:
    """Yields after each page; ends with the last, or at a cursor that comes twice. stateless: since
    2026-07-28 an empty cursor leads to a page too."""
    from mcp_types import PaginatedRequestParams

    cursor: str | None = None
    cursors: set[str] = set()
    while True:
        params = PaginatedRequestParams(cursor=cursor) if cursor is not None else None
        page = await ask(params=params)
        cursor = page.next_cursor
        if cursor in cursors:
            transcript.note_fault(f"the cursor {cursor[:40]!r} came twice")
            transcript.drop_repeated_page()
            cursor = None
        yield page
        if cursor is None or not (cursor or stateless):
            return
        cursors.add(cursor)


def classify_exception(error: BaseException, asked: str = "us") -> ProbeFailure:
    """The failure behind an exception of the SDK; groups are opened. asked: what was sent."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    if isinstance(error, ConversationEnd):
        return error.failure
    code = getattr(getattr(error, "error", None), "code", None)
    text = " ".join(str(error).split())[:200] or type(error).__name__
    if code is not None:
        advice = f"the server speaks MCP and answered {asked} with an error of its own"
        return ProbeFailure("protocol_error", f"{text} (code {code})", advice)
    if isinstance(error, ValidationError):
        return ProbeFailure("protocol_error", describe_invalid(error), BREAKS_PROTOCOL)
    return ProbeFailure("protocol_error", text)


def describe_invalid(error: ValidationError) -> str:
    """What a model of the SDK misses in an answer: `serverInfo has no version`."""
    fault = next(iter(error.errors(include_url=False, include_context=False)))
    *path, last = [str(step) for step in fault["loc"]] or ["it"]
    if fault["type"] == "missing":
        return f"{'.'.join(path) or 'its answer'} has no {last}"[:200]
    expected = _EXPECTED.get(fault["type"].partition("_")[0], fault["msg"].lower())
    found = "null" if fault["input"] is None else type(fault["input"]).__name__
    return f"{'.'.join([*path, last])} is {found}, expected {expected}"[:200]


_EXPECTED = {"dict": "an object", "model": "an object", "string": "a text", "list": "a list"}
