"""Config: an `mcpServers` entry, as pages and READMEs show it, in the listing's normal form."""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from assets.marketplaces.launch.command import understand
from assets.marketplaces.launch.variables import account_flags, as_text, value_flags, variables
from assets.marketplaces.listing import EnvVar, Header, Package
from warehouse.sanitize.placeholders import templated, unfilled
from warehouse.sanitize.redact import MARK, is_secret_name, redact

__all__ = [
    "account_flags",
    "bundle_facts",
    "launch_facts",
    "remote_facts",
    "stdio_facts",
    "unrunnable",
    "variables",
]

_GATEWAYS = (
    "server.smithery.ai",
    "run.tools",
    "api.mcphub.com",
    "mcp.pipedream.net",
)
_SPELLINGS = {
    "http": "streamable-http",
    "https": "streamable-http",
    "streamablehttp": "streamable-http",
    "streamable": "streamable-http",
    "httpstream": "streamable-http",
    "httpstreamable": "streamable-http",
    "sse": "sse",
    "stdio": "stdio",
}
_URLS = ("url", "serverurl", "httpurl", "sseurl", "endpoint", "uri")  # spelled without _ and -
_HEADERS = ("headers", "httpheaders", "requestheaders")
_ENVS = ("env", "environment", "envs")


def launch_facts(entry: Any) -> dict[str, Any]:
    """The launch fields of a Listing (transport, command, args, env, url, headers, package, flags,
    runnable, reason) that one entry of `mcpServers` states. Never raises on odd shapes: what
    cannot be read becomes `runnable: False` with a reason."""
    if not isinstance(entry, Mapping):
        return unrunnable(f"malformed: the entry is {_kind(entry)}, not an object")
    said = _transport_member(entry)
    env = tuple(variables(_member(entry, _ENVS), EnvVar))
    flags = value_flags(_member(entry, _ENVS))
    url, command = _member(entry, _URLS), entry.get("command")
    spelled = next((said[key] for key in ("type", "transport", "transporttype") if key in said), "")
    if isinstance(url, str) and url.strip() and not (command and _spelled(spelled) == "stdio"):
        found = _member(entry, _HEADERS) or _request_headers(entry)
        headers = tuple(variables(found, Header))
        facts = remote_facts(url.strip(), str(spelled), headers) | {"env": env}
        flags |= value_flags(found) | account_flags(env) | _query_flags(url)
        return _flagged(facts, flags)
    args = entry.get("args")
    args = entry.get("arguments", []) if args is None else args
    if command is not None and not isinstance(command, str):
        return unrunnable(f"malformed: command is {_kind(command)}, not a text")
    if not isinstance(args, list) or not all(isinstance(arg, str | int | float) for arg in args):
        return unrunnable("malformed: args is not a list of texts")
    facts = stdio_facts(command, tuple(as_text(arg) for arg in args), env)
    return _flagged(facts, flags)


def stdio_facts(
    command: str | None, args: tuple[str, ...], env: tuple[EnvVar, ...]
) -> dict[str, Any]:
    """Launch fields of a command line and its variables."""
    launch = understand(command, args)
    env = _with_words(env, launch.env)
    if launch.url:
        headers = tuple(variables(dict(launch.headers), Header))
        facts = remote_facts(launch.url, launch.transport, headers) | {"env": env}
        flags = launch.flags | value_flags(dict(launch.headers)) | account_flags(env)
        flags |= _query_flags(launch.url)
        return _flagged(facts, flags)
    flags = set(launch.flags) | account_flags(env) | value_flags(dict(launch.env))
    return {
        "transport": "stdio" if command else None,
        "command": redact(launch.command) if launch.command else None,
        "args": tuple(redact(word) for word in launch.args),
        "env": env,
        "package": launch.package,
        "flags": tuple(sorted(flags)),
        "runnable": launch.reason is None,
        "reason": launch.reason,
    }


def remote_facts(url: str, kind: str, headers: tuple[Header, ...]) -> dict[str, Any]:
    """Launch fields of a remote endpoint; `kind` is its transport as the record spells it."""
    secret = redact(url) != url or MARK in url
    url = templated(url)
    host, path = _host_and_path(url)
    gateway = any(host == name or host.endswith("." + name) for name in _GATEWAYS)
    flags = account_flags(headers)
    flags |= {"hosted_gateway", "needs_account"} if gateway else set()
    flags |= {"needs_account"} if secret else set()
    flags |= {"placeholder"} if unfilled(url) else set()
    reason = None
    if not re.match(r"(?i)https?://", url) or not host:
        reason = "the URL is not http(s)"
    spelled = _spelled(kind)
    if spelled is None and kind.lower() in ("ws", "wss", "websocket"):
        reason = f"no way to speak the transport {kind!r}"
    guess = "sse" if path.rstrip("/").endswith("/sse") else "streamable-http"
    return {
        "transport": spelled if spelled in ("sse", "streamable-http") else guess,
        "url": url,
        "headers": headers,
        "flags": tuple(sorted(flags)),
        "runnable": reason is None,
        "reason": reason,
    }


def bundle_facts(
    url: str, sha256: str | None, version: str | None = None, env: tuple[EnvVar, ...] = ()
) -> dict[str, Any]:
    """Launch fields of an MCPB bundle: its manifest, not the listing, holds the command."""
    digest = f"sha256:{sha256.lower()}" if sha256 else None
    flags = account_flags(env) | (set() if digest else {"unpinned"})
    return {
        "transport": "stdio",
        "env": env,
        "package": Package(type="mcpb", identifier=url, version=version, digest=digest),
        "flags": tuple(sorted(flags)),
        "runnable": True,
    }


def unrunnable(reason: str) -> dict[str, Any]:
    """Launch fields of a listing that states no way to run the server."""
    return {"runnable": False, "reason": reason}


def _with_words(env: tuple[EnvVar, ...], said: tuple[tuple[str, str], ...]) -> tuple[EnvVar, ...]:
    """The variables and those that the command line names: `-e NAME` asks for a value."""
    known = {one.name for one in env}
    named = {name: text for name, text in said if name and name not in known}
    more = variables(named, EnvVar)
    asked = [one if one.default else one.model_copy(update={"required": True}) for one in more]
    return tuple(sorted((*env, *asked), key=lambda one: one.name)) if asked else env


def _query_flags(url: str) -> set[str]:
    """{"needs_account"} where the query leaves a secret to the user: `?apiKey=<your key>`."""
    query = url.partition("?")[2].partition("#")[0]
    pairs = [pair.partition("=") for pair in query.split("&")[:100]]
    asked = any(is_secret_name(name) and unfilled(value) for name, _, value in pairs)
    return {"needs_account"} if asked else set()


def _flagged(facts: dict[str, Any], flags: set[str] | frozenset[str]) -> dict[str, Any]:
    return facts | {"flags": tuple(sorted({*facts.get("flags", ()), *flags}))}


def _member(entry: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    """The first member of one of these names, however it is spelled, that holds something."""
    plain = {_plain(key): value for key, value in entry.items() if value}
    transport = entry.get("transport")
    if isinstance(transport, Mapping):  # {"transport": {"type": …, "url": …}}
        plain = {_plain(key): value for key, value in transport.items() if value} | plain
    return next((plain[name] for name in names if name in plain), None)


def _transport_member(entry: Mapping[str, Any]) -> dict[str, str]:
    inner = entry.get("transport")
    both = [*entry.items(), *(inner.items() if isinstance(inner, Mapping) else ())]
    return {_plain(key): value for key, value in both if isinstance(value, str)}


def _request_headers(entry: Mapping[str, Any]) -> Any:
    init = entry.get("requestInit")
    return init.get("headers") if isinstance(init, Mapping) else None


def _spelled(kind: str) -> str | None:
    return _SPELLINGS.get(_plain(kind))


def _plain(name: Any) -> str:
    return re.sub(r"[^a-z]", "", str(name).lower())


def _host_and_path(url: str) -> tuple[str, str]:
    try:
        parts = urlsplit(url)
        return parts.hostname or "", parts.path
    except ValueError:  # a broken IPv6 address
        return "", ""


def _kind(value: Any) -> str:
    return type(value).__name__
