"""Whose fault an answer is, from the server's own words."""

import re

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


def classify_tool_error(text: str, code: int | None = None, *, offline: bool = False) -> str:
    """The kind (of KINDS or CALL_KINDS) of a tool's error. code: of a JSON-RPC error, None where
    the tool itself says that it failed. offline: the server runs without a network, by our
    settings."""
    said = text[:_READ]
    if code == METHOD_NOT_FOUND or _UNKNOWN_TOOL.search(said):
        return "tool_gone"
    if offline and _NETWORK.search(said):
        return "needs_network"
    if code == INVALID_PARAMS or _ARGUMENTS.search(said):
        return "invalid_arguments"
    return "needs_secret" if _SECRET.search(said) else "tool_error"
