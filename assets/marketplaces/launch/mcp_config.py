"""Config: an `mcpServers` entry, as pages and READMEs show it, in the listing's normal form."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

from assets.marketplaces.launch.runners import parse_command
from assets.marketplaces.launch.shell_words import (
    find_account_flags,
    find_value_flags,
    make_text,
    read_variables,
)
from assets.marketplaces.listing import EnvVar, HeaderVar, Listing, PackageRef
from warehouse.sanitize.redact import MARK, is_secret_name, redact
from warehouse.sanitize.scrubber import is_unfilled, make_template
from warehouse.storage.digest import Sha256, sha256

_GATEWAYS = ("server.smithery.ai", "run.tools", "api.mcphub.com", "mcp.pipedream.net")
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


def read_launch_facts(entry: Any) -> dict[str, Any]:
    """The launch fields of a Listing (transport, command, args, env, url, headers, package, flags,
    runnable, reason) that one entry of `mcpServers` states. Never raises on odd shapes: what
    cannot be read becomes `runnable: False` with a reason."""
    if not isinstance(entry, Mapping):
        kind = type(entry).__name__
        return make_unrunnable(f"malformed: the entry is {kind}, not an object")
    inner = entry.get("transport")
    both = [*entry.items(), *(inner.items() if isinstance(inner, Mapping) else ())]
    transports = {_normalise_name(key): value for key, value in both if isinstance(value, str)}
    env = tuple(read_variables(_find_member(entry, _ENVS), EnvVar))
    flags = find_value_flags(_find_member(entry, _ENVS))
    url, command = _find_member(entry, _URLS), entry.get("command")
    spelled = next(
        (transports[key] for key in ("type", "transport", "transporttype") if key in transports), ""
    )
    if (
        isinstance(url, str)
        and url.strip()
        and not (command and _read_transport_name(spelled) == "stdio")
    ):
        init = entry.get("requestInit")
        member = _find_member(entry, _HEADERS)
        member = member or (init.get("headers") if isinstance(init, Mapping) else None)
        headers = tuple(read_variables(member, HeaderVar))
        facts = read_remote_facts(url.strip(), str(spelled), headers) | {"env": env}
        flags |= find_value_flags(member) | find_account_flags(env) | _find_query_flags(url)
        return add_flags(facts, flags)
    args = entry.get("args")
    args = entry.get("arguments", []) if args is None else args
    if command is not None and not isinstance(command, str):
        return make_unrunnable(f"malformed: command is {type(command).__name__}, not a text")
    if not isinstance(args, list) or not all(isinstance(arg, str | int | float) for arg in args):
        return make_unrunnable("malformed: args is not a list of texts")
    facts = read_stdio_facts(command, tuple(make_text(arg) for arg in args), env)
    return add_flags(facts, flags)


def read_stdio_facts(
    command: str | None, args: tuple[str, ...], env: tuple[EnvVar, ...]
) -> dict[str, Any]:
    """Launch fields of a command line and its variables."""
    launch = parse_command(command, args)
    names = {item.name for item in env}
    texts = {name: text for name, text in launch.env if name and name not in names}
    more = read_variables(texts, EnvVar)
    added = [item if item.default else item.model_copy(update={"required": True}) for item in more]
    env = tuple(sorted((*env, *added), key=lambda item: item.name)) if added else env
    if launch.url:
        headers = tuple(read_variables(dict(launch.headers), HeaderVar))
        facts = read_remote_facts(launch.url, launch.transport, headers) | {"env": env}
        flags = launch.flags | find_value_flags(dict(launch.headers)) | find_account_flags(env)
        return add_flags(facts, flags | _find_query_flags(launch.url))
    return {
        "transport": "stdio" if command else None,
        "command": redact(launch.command) if launch.command else None,
        "args": tuple(redact(word) for word in launch.args),
        "launch": launch.facts if command else None,
        "env": env,
        "package": launch.package,
        "flags": launch.flags | find_account_flags(env) | find_value_flags(dict(launch.env)),
        "runnable": launch.reason is None,
        "reason": launch.reason,
    }


def read_remote_facts(url: str, kind: str, headers: tuple[HeaderVar, ...]) -> dict[str, Any]:
    """Launch fields of a remote endpoint; `kind` is its transport as the record spells it."""
    secret = redact(url) != url or MARK in url
    url = make_template(url)
    host, path = _split_host_and_path(url)
    gateway = any(host == name or host.endswith("." + name) for name in _GATEWAYS)
    flags = find_account_flags(headers)
    flags |= {"hosted_gateway", "needs_account"} if gateway else set()
    flags |= {"needs_account"} if secret else set()
    flags |= {"placeholder"} if is_unfilled(url) else set()
    reason = None
    if not re.match(r"(?i)https?://", url) or not host:
        reason = "the URL is not http(s)"
    spelled = _read_transport_name(kind)
    if spelled is None and kind.lower() in ("ws", "wss", "websocket"):
        reason = f"no way to speak the transport {kind!r}"
    guess = "sse" if path.rstrip("/").endswith("/sse") else "streamable-http"
    return {
        "transport": spelled if spelled in ("sse", "streamable-http") else guess,
        "url": url,
        "headers": headers,
        "flags": flags,
        "runnable": reason is None,
        "reason": reason,
    }


def read_bundle_facts(
    url: str, sha256: Sha256 | None, version: str | None = None, env: tuple[EnvVar, ...] = ()
) -> dict[str, Any]:
    """Launch fields of an MCPB bundle: its manifest, not the listing, holds the command."""
    digest = f"sha256:{sha256}" if sha256 else None
    return {
        "transport": "stdio",
        "env": env,
        "package": PackageRef(type="mcpb", identifier=url, version=version, digest=digest),
        "flags": find_account_flags(env) | (set() if digest else {"unpinned"}),
        "runnable": True,
    }


def make_unrunnable(reason: str) -> dict[str, Any]:
    """Launch fields of a listing that states no way to run the server."""
    return {"runnable": False, "reason": reason, "flags": set()}


def make_malformed(error: Exception) -> dict[str, Any]:
    """Launch fields of a record that an error says cannot be read."""
    return make_unrunnable(f"malformed: {redact(str(error)).splitlines()[0]}"[:300])


def add_flags(facts: dict[str, Any], flags: Iterable[str]) -> dict[str, Any]:
    """Launch fields with more flags."""
    return facts | {"flags": {*facts["flags"], *flags}}


def _find_query_flags(url: str) -> set[str]:
    """{"needs_account"} where the query leaves a secret to the user: `?apiKey=<your key>`."""
    query = url.partition("?")[2].partition("#")[0]
    pairs = [pair.partition("=") for pair in query.split("&")[:100]]
    is_asked = any(is_secret_name(name) and is_unfilled(value) for name, _, value in pairs)
    return {"needs_account"} if is_asked else set()


def _find_member(entry: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    """The first member of one of these names, however it is spelled, that holds something."""
    plain = {_normalise_name(key): value for key, value in entry.items() if value}
    transport = entry.get("transport")
    if isinstance(transport, Mapping):  # {"transport": {"type": …, "url": …}}
        plain = {_normalise_name(key): value for key, value in transport.items() if value} | plain
    return next((plain[name] for name in names if name in plain), None)


def _read_transport_name(kind: str) -> str | None:
    return _SPELLINGS.get(_normalise_name(kind))


def _normalise_name(name: Any) -> str:
    return re.sub(r"[^a-z]", "", str(name).lower())


def _split_host_and_path(url: str) -> tuple[str, str]:
    try:
        url_parts = urlsplit(url)
        return url_parts.hostname or "", url_parts.path
    except ValueError:  # a broken IPv6 address
        return "", ""


THIN = "the list names no launch facts; they stand on the server's own page"
_FORGES = ("github.com", "gitlab.com", "bitbucket.org", "gitee.com", "codeberg.org")


def make_server_listings(
    identity: Mapping[str, Any], servers: Mapping[str, Any], evidence: str
) -> list[Listing]:
    """One listing of the id `identity` names; where the object names several servers, one each
    with the id `id#key`. `evidence` says where the object stood."""
    several = len(servers) > 1
    results = []
    for key, entry in sorted(servers.items()):
        name = key.replace(MARK, "redacted").strip() or "unnamed"
        facts = dict(identity) | read_launch_facts(entry)
        if several:
            facts = add_flags(facts, ["multi_server"])
            facts["native_id"] = f"{identity['native_id']}#{name}"
        results.append(Listing(**facts, evidence=f"{evidence} mcpServers.{name}"))
    return results


def record_digest(record: Any) -> str:
    """SHA-256 of a third-party JSON value, whatever numbers and texts it holds."""
    text = json.dumps(record, sort_keys=True, default=str)
    return sha256(text.encode("utf-8", "surrogatepass"))


def get_member(raw: Any, name: str) -> Any:
    """A member of a raw record. Raises ValueError where the record is no object or lacks it."""
    if not isinstance(raw, Mapping) or name not in raw:
        raise ValueError(f"the record is {type(raw).__name__} without {name!r}")
    return raw[name]


def is_of_a_forge(url: str) -> bool:
    """Whether a URL is of a host of source code, so that it names a repository."""
    return any(f"://{host}/" in url or f"://www.{host}/" in url for host in _FORGES)


def read_text(value: Any) -> str:
    """A text; "" for any other JSON value."""
    return value.strip() if isinstance(value, str) else ""
