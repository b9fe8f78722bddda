"""Whose fault an answer is, from the server's own words."""

import re
from dataclasses import dataclass

from assets.servers.calls.result import Blame

INVALID_PARAMS = -32602
METHOD_NOT_FOUND = -32601
_READ = 4000  # characters of an answer that are judged

_ARGUMENTS = re.compile(
    r"input validation error|invalid arguments?\b|invalid (params|parameters|input)\b"
    r"|\d+ validation errors? for|is a required property|is not of type '"
    r"|missing (?:\d+ )?required (?:positional |keyword-only )?(?:argument|parameter|propert|field)"
    r"|unexpected keyword argument|field required|\"code\": ?\"invalid_type\""
    r"|-32602|must have required property|additional propert(?:y|ies)\b.{0,40}not allowed"
    r"|unrecognized key|required parameter|parameter '?\w+'? is required|expected \w+, received",
    re.IGNORECASE,
)
_SECRET = re.compile(
    r"\b401\b|unauthori[sz]ed|invalid (?:api|access|auth\w*|bearer)[ _-]?(?:key|token)"
    r"|(?:api|access|auth\w*)[ _-]?(?:key|token) (?:is )?"
    r"(?:required|missing|invalid|not set|expired)"
    r"|missing (?:api|access)[ _-]?(?:key|token)|authentication (?:failed|required)"
    r"|not authenticated|bad credentials",
    re.IGNORECASE,
)
_NETWORK = re.compile(
    r"ENETUNREACH|EHOSTUNREACH|EAI_AGAIN|ENOTFOUND|ECONNREFUSED|getaddrinfo|name resolution"
    r"|name or service not known|network is unreachable|fetch failed|failed to fetch"
    r"|no route to host|could not resolve host|all connection attempts failed|ERR_INTERNET_"
    r"|ERR_NAME_NOT_RESOLVED|failed to establish a new connection",
    re.IGNORECASE,
)
_UNKNOWN_TOOL = re.compile(r"unknown tool|tool .{0,80}not found|no such tool", re.IGNORECASE)


@dataclass(frozen=True)
class Fault:
    """kind: of the taxonomy or CALL_KINDS."""

    kind: str
    blame: Blame


def fault_of(text: str, *, code: int | None = None, offline: bool = False) -> Fault:
    """The fault behind a tool's error. code: of a JSON-RPC error, None where the tool itself says
    that it failed. offline: the server runs without a network, by our settings."""
    said = text[:_READ]
    if code == METHOD_NOT_FOUND or _UNKNOWN_TOOL.search(said):
        return Fault("tool_gone", "server")
    if offline and _NETWORK.search(said):
        return Fault("needs_network", "us")
    if code == INVALID_PARAMS or _ARGUMENTS.search(said):
        return Fault("invalid_arguments", "caller")
    if _SECRET.search(said):
        return Fault("needs_secret", "us")
    return Fault("tool_error", "tool")
