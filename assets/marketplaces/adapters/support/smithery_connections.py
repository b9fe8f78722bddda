"""Connections: how a Smithery record says its server is reached, as launch fields of a listing."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from assets.marketplaces.launch.mcp_config import (
    add_flags,
    make_malformed,
    make_unrunnable,
    read_bundle_facts,
    read_launch_facts,
    read_remote_facts,
)
from assets.marketplaces.launch.variables import find_account_flags
from assets.marketplaces.listing import EnvVar, Header
from assets.marketplaces.server_json.inputs import as_object, read_schema_inputs, read_string
from warehouse.sanitize.redact import redact

Facts = dict[str, Any]

_SCRIPT = "the stdio connection is a JavaScript function, which is never evaluated"


def read_connection_facts(record: Mapping[str, Any]) -> Facts:
    """Launch fields of the first connection that needs no account of ours, else of the first that
    can be launched at all, else why there is none."""
    connections = record.get("connections")
    if connections is not None and not isinstance(connections, list):
        return make_unrunnable("malformed: connections is not a list")
    offers = [(f"connections[{at}]", _read(one)) for at, one in enumerate(connections or [])]
    if not any(facts["runnable"] for _, facts in offers) and _is_address(record):
        stated = [one for one in connections or [] if isinstance(one, Mapping)]
        # A bundle that cannot be launched asks for the same settings as the hosted server.
        schemas = [one.get("configSchema") for one in sorted(stated, key=_is_http, reverse=True)]
        schema = next((one for one in schemas if one), None)
        whole = {"deploymentUrl": record["deploymentUrl"], "configSchema": schema}
        offers.append(("deploymentUrl", _read(whole | {"type": "http"})))
    if not offers:
        return make_unrunnable("the record names no connection")
    place, facts = min(offers, key=lambda offer: _rank_facts(offer[1]))
    return facts | {"evidence": place}


def _rank_facts(facts: Facts) -> int:
    if not facts["runnable"]:
        return 2
    return 1 if "hosted_gateway" in facts["flags"] else 0


def _read(connection: Any) -> Facts:
    """A malformed connection does not hide the others."""
    if not isinstance(connection, Mapping):
        return make_unrunnable("malformed: the connection is not an object")
    kind = read_string(connection.get("type")) or read_string(connection.get("kind"))
    try:
        if _is_http(connection) or kind == "sse":
            return _read_remote(connection, kind)
        if kind == "stdio":
            return _read_stdio(connection)
    except (ValueError, TypeError, AttributeError) as error:
        return make_malformed(error)
    return make_unrunnable(f"malformed: a connection of type {kind[:40]!r}")


def _read_stdio(connection: Mapping[str, Any]) -> Facts:
    """A bundle, else a command line that is stated as data."""
    env = tuple(variable for variable, _ in read_schema_inputs(connection.get("configSchema")))
    bundle = read_string(connection.get("bundleUrl")).strip()
    if bundle.startswith(("http://", "https://")):
        return read_bundle_facts(redact(bundle), None, None, env) | {"reason": None}
    script = connection.get("stdioFunction")
    stated = script if isinstance(script, Mapping) else connection
    if stated.get("command"):
        facts = read_launch_facts(stated)
        named = {variable.name for variable in facts.get("env", ())}
        both = (*facts.get("env", ()), *(one for one in env if one.name not in named))
        return add_flags(facts, find_account_flags(both)) | {"env": both}
    flags = find_account_flags(env)
    reason = _SCRIPT if isinstance(script, str) else "bundleUrl is not an http(s) URL"
    if not bundle and not script:
        reason = "the stdio connection names no bundle"
    return make_unrunnable(reason) | {"transport": "stdio", "env": env, "flags": flags}


def _read_remote(connection: Mapping[str, Any], kind: str) -> Facts:
    """An endpoint with what travels in its query and headers. A setting that does not say how it
    travels stands in `env`, with those of the query: the listing has no other place for them."""
    url = read_string(connection.get("deploymentUrl") or connection.get("url")).strip()
    headers: list[Header] = []
    env: list[EnvVar] = []
    for variable, schema in read_schema_inputs(connection.get("configSchema")):
        travels = as_object(schema.get("x-from"))
        if name := read_string(travels.get("header")):
            facts: Facts = variable.model_dump() | {"name": redact(name)}
            headers.append(Header(**facts))
            continue
        env.append(variable)
        if (name := read_string(travels.get("query"))) and (variable.required or variable.default):
            url = _add_query(url, name, variable)
    facts = read_remote_facts(url, kind, tuple(headers))
    flags = find_account_flags((*env, *headers))
    return add_flags(facts, flags) | {"env": tuple(env)}


def _add_query(url: str, name: str, variable: EnvVar) -> str:
    value = _quote_text(variable.default) if variable.default else f"{{{variable.name}}}"
    return f"{url}{'&' if '?' in url else '?'}{_quote_text(name)}={value}"


def _quote_text(text: str) -> str:
    return quote(text, safe="", errors="replace")


def _is_http(connection: Any) -> bool:
    kinds = ("http", "streamable-http", "streamable_http", "shttp")
    return isinstance(connection, Mapping) and (
        connection.get("type") in kinds or connection.get("kind") in kinds
    )


def _is_address(record: Mapping[str, Any]) -> bool:
    """Whether the record itself names the endpoint that its connection should."""
    return read_string(record.get("deploymentUrl")).startswith(("http://", "https://"))
