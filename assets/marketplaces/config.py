"""Config: an `mcpServers` entry, as pages and READMEs show it, in the listing's normal form.

What belongs here: commands, URLs, variables and headers of one entry.
What does not: finding the JSON in a page (`page.py`) and what a command line means (`command.py`).
"""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from assets.marketplaces.command import placeholder, understand
from assets.marketplaces.listing import EnvVar, Header, Package
from assets.marketplaces.redact import MARK, is_secret_name, redact

_GATEWAYS = (
    "server.smithery.ai",
    "run.tools",
    "api.mcphub.com",
    "mcp.pipedream.net",
    "remote.mcp.pipedream.net",
)
_REMOTE_TYPES = {
    "http": "streamable-http",
    "streamable-http": "streamable-http",
    "streamable_http": "streamable-http",
    "streamableHttp": "streamable-http",
    "sse": "sse",
}


def launch_facts(entry: Mapping[str, Any]) -> dict[str, Any]:
    """The launch fields of a Listing (transport, command, args, env, url, headers, package, flags,
    runnable, reason) that one entry of `mcpServers` states. Never raises on odd shapes: what
    cannot be read becomes `runnable: False` with a reason."""
    if not isinstance(entry, Mapping):
        return unrunnable(f"malformed: the entry is {type(entry).__name__}, not an object")
    env = tuple(variables(entry.get("env"), EnvVar))
    url = entry.get("url") or entry.get("serverUrl")
    if isinstance(url, str) and url:
        headers = tuple(variables(entry.get("headers"), Header))
        return remote_facts(url, str(entry.get("type") or ""), headers) | {"env": env}
    command, args = entry.get("command"), entry.get("args", [])
    if command is not None and not isinstance(command, str):
        return unrunnable(f"malformed: command is {type(command).__name__}, not a text")
    if not isinstance(args, list) or not all(isinstance(arg, str | int | float) for arg in args):
        return unrunnable("malformed: args is not a list of texts")
    return stdio_facts(command, tuple(redact(str(arg)) for arg in args), env)


def stdio_facts(
    command: str | None, args: tuple[str, ...], env: tuple[EnvVar, ...]
) -> dict[str, Any]:
    """Launch fields of a command line and its variables."""
    launch = understand(command, args)
    if launch.url:
        return remote_facts(launch.url, "", ()) | {"env": env}
    flags = set(launch.flags) | account_flags(env)
    return {
        "transport": "stdio" if command else None,
        "command": redact(launch.command) if launch.command else None,
        "args": launch.args,
        "env": env,
        "package": launch.package,
        "flags": tuple(sorted(flags)),
        "runnable": launch.reason is None,
        "reason": launch.reason,
    }


def remote_facts(url: str, kind: str, headers: tuple[Header, ...]) -> dict[str, Any]:
    """Launch fields of a remote endpoint."""
    url = redact(url)
    host = urlsplit(url).hostname or ""
    flags = account_flags(headers)
    flags |= {"hosted_gateway"} if host.endswith(_GATEWAYS) else set()
    flags |= {"placeholder"} if placeholder(url) or MARK in url else set()
    reason = None if url.startswith(("http://", "https://")) and host else "the URL is not http(s)"
    guess = "sse" if url.rstrip("/").endswith("/sse") else "streamable-http"
    return {
        "transport": _REMOTE_TYPES.get(kind, guess),
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


def variables(found: Any, kind: type[EnvVar] | type[Header]) -> list[Any]:
    """The variables of an `env` or `headers` object. A secret or an unfilled value becomes a
    required variable without a value; any other value is the default."""
    if not isinstance(found, Mapping):
        return []
    made = []
    for name, value in found.items():
        text = "" if value is None else str(value)
        unfilled = placeholder(text.strip()) is not None or MARK in text
        secret = is_secret_name(str(name)) or redact(text) != text
        keep = not secret and not unfilled and text
        made.append(
            kind(
                name=redact(str(name)),
                required=secret or unfilled,
                secret=secret,
                default=text if keep else None,
            )
        )
    return sorted(made, key=lambda variable: variable.name)


def account_flags(inputs: tuple[EnvVar, ...] | tuple[Header, ...]) -> set[str]:
    """{"needs_account"} where a secret is required."""
    return {"needs_account"} if any(one.secret and one.required for one in inputs) else set()


def unrunnable(reason: str) -> dict[str, Any]:
    """Launch fields of a listing that states no way to run the server."""
    return {"runnable": False, "reason": reason}
