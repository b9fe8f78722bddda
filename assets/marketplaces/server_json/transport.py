"""Served: how a package of a server.json is reached once it runs."""

from typing import Any

from assets.marketplaces.launch.variables import find_account_flags
from assets.marketplaces.listing import Header
from assets.marketplaces.server_json.inputs import (
    as_object,
    fill,
    read_declared,
    read_string,
    require_objects,
)
from warehouse.sanitize.placeholders import find_placeholder
from warehouse.sanitize.redact import MARK

_LOCAL_TRANSPORTS = {
    "": "stdio",
    "stdio": "stdio",
    "streamable-http": "streamable-http",
    "streamable_http": "streamable-http",
    "http": "streamable-http",
    "sse": "sse",
}


def read_served_facts(package: dict[str, Any]) -> dict[str, Any]:
    """Transport, URL and headers; the URL's `{names}` are inputs of the package."""
    transport = package.get("transport")
    transport = {"type": transport} if isinstance(transport, str) else transport
    if transport is not None and not isinstance(transport, dict):
        raise ValueError("transport is not an object")
    transport = transport or {}
    kind = _LOCAL_TRANSPORTS.get(read_string(transport.get("type")).lower())
    if kind is None:
        raise ValueError(f"transport type {read_string(transport.get('type'))[:40]!r}")
    if kind == "stdio":
        return {"transport": "stdio", "flags": set()}
    filled = fill(
        read_string(transport.get("url")).strip(),
        _read_names(package) | as_object(transport.get("variables")),
    )
    headers = read_inputs(transport.get("headers"), Header, "headers")
    flags = find_account_flags(headers)
    if filled.open or find_placeholder(filled.text) or MARK in filled.text:
        flags |= {"placeholder"}
    return {
        "transport": kind,
        "url": filled.text or None,
        "headers": headers,
        "flags": flags,
    }


def _read_names(package: dict[str, Any]) -> dict[str, Any]:
    """Inputs of a package by the names its URL may use: hint, option or variable."""
    made: dict[str, Any] = {}
    for key in ("runtimeArguments", "packageArguments", "environmentVariables"):
        for one in require_objects(package.get(key), key):
            for name in (read_string(one.get("valueHint")), read_string(one.get("name"))):
                made |= {label: one for label in (name, name.lstrip("-")) if label}
            made |= as_object(one.get("variables"))
    return made


def read_inputs(found: Any, kind: Any, what: str) -> tuple[Any, ...]:
    """Declared variables or headers, one for each name."""
    made: dict[str, Any] = {}
    for one in require_objects(found, what):
        read = read_declared(one, kind)
        made.setdefault(read.name, read)
    return tuple(made.values())
