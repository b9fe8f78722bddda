"""Server JSON: a record as server.json in the registry's five dated schemas."""

import re
from typing import Any

from demo.world.record import Input, Record

_HINTS = {"npm": "npx", "pypi": "uvx", "oci": "docker"}
_SCHEMAS = "https://static.modelcontextprotocol.io/schemas"


def make_server_json(record: Record) -> dict[str, Any]:
    """The record in the schema of its time."""
    body: dict[str, Any] = {
        "$schema": f"{_SCHEMAS}/{record.schema}/server.schema.json",
        "name": record.registry_name,
        "description": record.description,
        "version": record.version,
    }
    if record.repository:
        body["repository"] = {"url": record.repository, "source": "github"}
    if record.schema >= "2025-10-17":
        body["title"] = record.title
    if record.package:
        body["packages"] = [_make_package(record)]
    if record.remote:
        body["remotes"] = [_make_remote(record)]
    if record.odd == "malformed" and record.package:
        body["packages"] = f"npx -y {record.package.identifier}"
    return _convert_to_snake(body) if record.schema == "2025-07-09" else body


def _make_package(record: Record) -> dict[str, Any]:
    found = record.package
    assert found is not None
    package: dict[str, Any] = {
        "registryType": found.kind,
        "identifier": found.url or found.identifier,
        "version": found.version,
        "transport": {"type": "stdio"},
    }
    if found.sha256:
        package["fileSha256"] = found.sha256
    if found.kind in _HINTS:
        package["runtimeHint"] = _HINTS[found.kind]
    if found.kind == "oci" and record.schema >= "2025-10-17":
        package["identifier"] = f"{found.identifier}:{package.pop('version')}"
    if found.kind == "npm":
        package["runtimeArguments"] = [{"type": "positional", "value": "-y"}]
    if record.args:
        package["packageArguments"] = [_read_argument(arg) for arg in record.args]
    if record.inputs:
        package["environmentVariables"] = [_make_variable(one) for one in record.inputs]
    return package


def _make_remote(record: Record) -> dict[str, Any]:
    found = record.remote
    assert found is not None
    remote: dict[str, Any] = {"type": found.transport, "url": found.url}
    if found.auth == "api_key":
        header = Input("Authorization", "Bearer token", required=True, secret=True)
        remote["headers"] = [_make_variable(header)]
    return remote


def _make_variable(one: Input) -> dict[str, Any]:
    default = {"default": one.default} if one.default else {}
    return {
        "name": one.name,
        "description": one.description,
        "isRequired": one.required,
        "isSecret": one.secret,
        **default,
    }


def _read_argument(one: Any) -> dict[str, Any]:
    if isinstance(one, str):
        return {"type": "positional", "value": one}
    return {
        "type": "positional",
        "valueHint": one["name"],
        "format": one["format"],
        "description": one["description"],
        "isRequired": True,
    }


def _convert_to_snake(value: Any) -> Any:
    """The record as the first dated schema spelt its members."""
    if isinstance(value, list):
        return [_convert_to_snake(item) for item in value]
    if isinstance(value, dict):
        return {
            re.sub("([A-Z])", r"_\1", key).lower(): _convert_to_snake(v) for key, v in value.items()
        }
    return value
