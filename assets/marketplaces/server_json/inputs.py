"""Inputs: what a user must give a server, as a marketplace declares it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from assets.marketplaces.listing import EnvVar
from warehouse.sanitize.redact import MARK, is_secret_name, redact

Input = TypeVar("Input", bound=EnvVar)

_BRACED = re.compile(r"\{([A-Za-z_][\w.\-]{0,80})\}")


@dataclass(frozen=True)
class InputValue:
    """A template with its declared variables filled in; `open` ones are left for the user."""

    text: str
    open: tuple[str, ...] = ()
    required: bool = False  # an open one is
    secret: bool = False  # one of its variables is


def read_string(value: Any) -> str:
    """A JSON scalar as a text, "" for anything else."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | int | float) else ""


def as_object(value: Any) -> dict[str, Any]:
    """A JSON object, or an empty one for any other value."""
    return value if isinstance(value, dict) else {}


def list_objects(value: Any) -> list[dict[str, Any]]:
    """The objects of a JSON list, none for any other value."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def require_objects(value: Any, what: str) -> list[dict[str, Any]]:
    """A list of JSON objects; absent is empty. Raises ValueError that names `what` it is not."""
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise ValueError(f"{what} is not a list of objects")
    return value


def is_secret(name: str, declared: Any, value: str = "", kind: str = "") -> bool:
    """Whether an input is secret: as declared, else by its name, always by a value that is one."""
    if declared is True or (value and redact(value) != value):
        return True
    harmless = value.lower() in ("true", "false") or value.isdigit()
    if declared is False or harmless or kind in ("boolean", "number", "integer", "filepath"):
        return False
    return is_secret_name(name)


def is_needed(one: Mapping[str, Any]) -> bool:
    """Whether an input is required; some authors write `required`."""
    required = one.get("isRequired")
    return (one.get("required") if required is None else required) is True


def read_declared(one: Mapping[str, Any], kind: type[Input]) -> Input:
    """One environment variable or header of server.json. Raises ValueError where it has no name."""
    name = read_string(one.get("name")).strip()
    if not name:
        raise ValueError("an input has no name")
    value = read_stated(one)
    filled = fill(value, one.get("variables"))
    secret = (
        is_secret(name, one.get("isSecret"), value, read_string(one.get("format"))) or filled.secret
    )
    keep = value and not (secret or filled.open or MARK in filled.text)
    about = read_string(one.get("description"))
    if filled.open and secret:  # `Bearer {token}`: how the secret is sent, without the secret
        about = f"{about} (sent as {filled.text!r})".strip()
    return kind(
        name=redact(name),
        required=is_needed(one) or filled.required,
        secret=secret,
        default=filled.text if keep else None,
        description=redact(about) or None,
    )


def fill(template: str, variables: Any) -> InputValue:
    """A template with each declared variable replaced by its value or default. A secret is never
    filled in, and a name that is not declared stays as it is."""
    known = variables if isinstance(variables, Mapping) else {}
    left: list[str] = []
    secrets: list[str] = []

    def put(found: re.Match[str]) -> str:
        name, one = found[1], known.get(found[1])
        if not isinstance(one, Mapping):
            return found[0]
        value = read_stated(one)
        if is_secret(name, one.get("isSecret"), value, read_string(one.get("format"))):
            secrets.append(name)
        elif value:
            return value
        left.append(name)
        return found[0]

    filled = _BRACED.sub(put, template)
    required = any(known[name].get("isRequired") is True for name in left)
    return InputValue(redact(filled), tuple(left), required, bool(secrets))


def read_schema_inputs(schema: Any) -> list[tuple[EnvVar, Mapping[str, Any]]]:
    """Each property of a JSON Schema of settings as an input, with the property itself."""
    required = as_object(schema).get("required")
    needed = (
        [item for item in required if isinstance(item, str)] if isinstance(required, list) else []
    )
    results = []
    for name, member in as_object(as_object(schema).get("properties")).items():
        one = as_object(member)
        value, kind = read_string(one.get("default")), read_string(one.get("type"))
        marked = one.get("format") == "password" or one.get("writeOnly") is True
        secret = is_secret(name, marked or None, value, kind)
        results.append(
            (
                EnvVar(
                    name=redact(name),
                    required=name in needed,
                    secret=secret,
                    default=value if value and not secret and MARK not in value else None,
                    description=redact(read_string(one.get("description"))) or None,
                ),
                one,
            )
        )
    return results


def read_stated(one: Mapping[str, Any]) -> str:
    """The value that is set, else the default."""
    return read_string(one.get("value")) or read_string(one.get("default"))
