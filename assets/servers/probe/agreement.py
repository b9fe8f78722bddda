"""Agreement: which revision of the protocol a server speaks, and what its requests carry.

Up to 2025-11-25 a session begins with `initialize`; 2026-07-28 has no handshake: each request names
its version and the client in `_meta`, and `server/discover` says what the server speaks. The older
way is tried first, since nearly all servers speak it: one that answers is asked nothing more.
"""

from collections.abc import Mapping
from typing import Any

from assets.servers.probe.failure_kinds import Ended, Failure
from assets.servers.probe.transcript import Transcript

# What a server without a handshake answers to `initialize`: no such method, no version in `_meta`
# or in the headers, a version that it does not speak.
_NO_HANDSHAKE = (-32601, -32602, -32600, -32020, -32022)
_SHOWN = 8  # versions that a failure names


async def settle_version(session: Any, transcript: Transcript) -> None:
    """Three requests at most: `initialize`, `server/discover`, and that once more in a version that
    the server named. Raises Ended where the server speaks another revision only, MCPError with its
    answer to `initialize` where it has neither way, and what the SDK raises on garbage."""
    from mcp.shared.exceptions import MCPError

    try:
        await session.initialize()
        return
    except MCPError as error:
        # Not where the SDK made the error up, for an HTTP status: an SSE server may stand there.
        if error.code not in _NO_HANDSHAKE or not transcript.has_sent(error.error):
            raise
        refused = error
    try:
        await session.discover()
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
        named = ", ".join(repr(str(one)[:20]) for one in spoken[:_SHOWN])
        raise Ended(Failure("protocol_error", f"it speaks {named} of the protocol, none of ours"))


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
        params["_meta"] = _make_envelope(session, client)
        headers |= {MCP_METHOD_HEADER: "tools/call", MCP_NAME_HEADER: encode_header_value(tool)}
        if find_invalid_x_mcp_header(schema) is None:
            headers |= mcp_param_headers(x_mcp_header_map(schema), arguments)
    return params, {"headers": headers}


def _make_envelope(session: Any, client: Mapping[str, str]) -> dict[str, Any]:
    """What every request says since 2026-07-28. We offer nothing that a server could ask for."""
    from mcp_types import (
        CLIENT_CAPABILITIES_META_KEY,
        CLIENT_INFO_META_KEY,
        PROTOCOL_VERSION_META_KEY,
    )

    return {
        PROTOCOL_VERSION_META_KEY: session.protocol_version,
        CLIENT_CAPABILITIES_META_KEY: {},
        CLIENT_INFO_META_KEY: dict(client),
    }


def needs_task(tool: Mapping[str, Any], server: Mapping[str, Any]) -> bool:
    """Whether a raw `tools/list` entry says that a plain call will be refused: it runs as a task
    alone. server: the raw result of `initialize`; the specification (2025-11-25) has a tool's word
    count only where the server announces that it takes tasks for calls."""
    found: Any = server.get("capabilities")
    for name in ("tasks", "requests", "tools", "call"):
        found = found.get(name) if isinstance(found, Mapping) else None
    execution = tool.get("execution")
    wanted = execution.get("taskSupport") if isinstance(execution, Mapping) else None
    return found is not None and wanted == "required"


async def check_alive(session: Any) -> None:
    """Returns once the server answers: `ping`, which 2026-07-28 took away, or `server/discover`."""
    if is_stateless(session):
        await session.send_discover(session.protocol_version)
    else:
        await session.send_ping()
