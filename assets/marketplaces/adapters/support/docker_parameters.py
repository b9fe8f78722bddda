"""Dockerparameters: what an entry of Docker's catalogue says about its `{{parameters}}`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from assets.marketplaces.server_json.inputs import as_object, list_objects, read_string
from warehouse.sanitize.redact import MARK, redact

_DEEPEST = 8


@dataclass(frozen=True)
class Parameter:
    """What the entry says about one of its parameters."""

    required: bool = False
    default: str | None = None


def find_parameter(path: str, stated: dict[str, Parameter]) -> Parameter:
    """The parameter of `{{server.path}}`; the server's own name in front is no part of it."""
    return stated.get(path.partition(".")[2]) or stated.get(path) or Parameter()


def read_parameters(entry: Mapping[str, Any]) -> dict[str, Parameter] | None:
    """Parameters by their paths; None where none are stated."""
    schemas = [one for one in list_objects(entry.get("config")) if one.get("properties")]
    made: dict[str, Parameter] = {}
    for schema in schemas:
        _collect(schema, "", True, made, 0)
    return made if schemas else None


def _collect(
    schema: Mapping[str, Any],
    above: str,
    needed: bool,
    made: dict[str, Parameter],
    depth: int,
) -> None:
    """What is required of an object that is itself optional is not required."""
    required = schema.get("required")
    names = required if needed and isinstance(required, list) else []
    for name, member in as_object(schema.get("properties")).items():
        one, path = as_object(member), f"{above}{name}"
        default = redact(read_string(one.get("default")))
        made[path] = Parameter(name in names, None if MARK in default else default or None)
        if one.get("properties") and depth < _DEEPEST:
            _collect(one, f"{path}.", name in names, made, depth + 1)
