"""The canonical form of one tool's contract, its digest, and the one text made from it.

Belongs here: what of a `tools/list` entry is identity (name, title, description, input and output
schema, annotations), what is noise (key order, `$schema`, the order of `required`, white space at
line ends), and the digest over the rest. Everything a model reads is identity.
Does not belong here: judging a schema or a call (`validate.py`), comparing two contracts
(`diff.py`), reading a server (`assets/servers`).
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from warehouse.digest import digest

CANON_VERSION = 1
DIGEST_PREFIX = "c1:"

FIELDS = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")
SCHEMA_FIELDS = ("inputSchema", "outputSchema")

# Keywords whose value is a schema, a list of schemas, or a mapping from names to schemas. Only
# there is `$schema` noise and `description` prose: below `properties` both may be argument names.
_ONE = {
    *("items", "additionalItems", "additionalProperties", "unevaluatedItems"),
    *("unevaluatedProperties", "contains", "propertyNames", "not", "if", "then", "else"),
}
_MANY = {"allOf", "anyOf", "oneOf", "prefixItems", "items"}
_NAMED = {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"}
_LARGEST_EXACT = 2**53 - 1
_MAX_DEPTH = 64


class ContractError(ValueError):
    """A tool that has no contract: the message says which part is missing or malformed."""


def contract(tool: Mapping[str, Any]) -> dict[str, Any]:
    """The contract of one raw `tools/list` entry: a new dict with canonical content.

    Absent and null fields are dropped, text is normalised at line ends only, integers that no
    double can hold become the nearest double (as every JavaScript peer reads them). A contract
    given back in is returned unchanged.
    Raises ContractError when there is no name, no object schema, or a value JSON cannot hold.
    """
    name = tool.get("name")
    if not isinstance(name, str) or not name.strip():
        raise ContractError(f"tool without a usable name: found {name!r}, expected a string")
    kept: dict[str, Any] = {}
    for field in FIELDS:
        value = tool.get(field)
        if value is None:
            continue
        if field in SCHEMA_FIELDS:
            if not isinstance(value, Mapping):
                raise ContractError(f"tool {name!r}: {field} is {_kind(value)}, expected an object")
            kept[field] = _schema(value, f"{name}.{field}", 0)
        elif field == "annotations":
            if isinstance(value, Mapping):
                kept[field] = _value(value, f"{name}.annotations", 0)
        elif isinstance(value, str):
            text = _string(value) if field == "name" else _prose(value)
            if text:
                kept[field] = text
    if "inputSchema" not in kept:
        raise ContractError(f"tool {name!r}: no inputSchema, expected an object schema")
    return kept


def contract_digest(tool: Mapping[str, Any]) -> str:
    """`c1:<sha256>` over the canonical JSON of the tool's contract."""
    return DIGEST_PREFIX + digest(contract(tool))


def tool_text(contract: Mapping[str, Any], view: str = "full") -> str:
    """The one text of a tool for every embedding and index.

    view: "name" (the name, split into words), "brief" (name and description) or "full" (also
    parameter names with their descriptions).
    """
    words = " ".join(_words(contract["name"]))
    if view == "name":
        return words
    title = contract.get("title", "")
    head = words if title.lower() in ("", words.lower()) else f"{words}: {title}"
    lines = [head, contract.get("description", "")]
    if view == "full":
        for name, schema in parameters(contract):
            about = schema.get("description", "") if isinstance(schema, Mapping) else ""
            lines.append(f"{name}: {' '.join(str(about).split())}".rstrip(": "))
    elif view != "brief":
        raise ValueError(f"unknown view {view!r}: expected 'name', 'brief' or 'full'")
    return "\n".join(line for line in lines if line)


def parameters(contract: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """(name, schema) of each top-level parameter, in the order of the canonical form."""
    properties = contract.get("inputSchema", {}).get("properties")
    if isinstance(properties, Mapping):
        yield from sorted(properties.items())


def _schema(node: Any, path: str, depth: int) -> Any:
    """A copy of one schema without noise; booleans are schemas too."""
    if not isinstance(node, Mapping):
        return _value(node, path, depth)
    _deep_enough(path, depth)
    out: dict[str, Any] = {}
    for raw, value in node.items():
        key, where = _string(str(raw)), f"{path}.{raw}"
        if key == "$schema":
            continue
        if key in _NAMED and isinstance(value, Mapping):
            out[key] = {
                _string(str(k)): _schema(v, f"{where}.{k}", depth + 2) for k, v in value.items()
            }
        elif key in _MANY and isinstance(value, list):
            out[key] = [_schema(v, f"{where}[{i}]", depth + 2) for i, v in enumerate(value)]
        elif key in _ONE:
            out[key] = _schema(value, where, depth + 1)
        elif key in ("description", "title") and isinstance(value, str):
            out[key] = _prose(value)
        elif key == "required" and _all_strings(value):
            out[key] = sorted({_string(v) for v in value})
        else:
            out[key] = _value(value, where, depth + 1)
    return out


def _value(value: Any, path: str, depth: int) -> Any:
    _deep_enough(path, depth)
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, int):
        return value if abs(value) <= _LARGEST_EXACT else _double(value, path)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ContractError(f"{path}: {value} is not a JSON number")
        return int(value) if value.is_integer() and abs(value) <= _LARGEST_EXACT else value
    if isinstance(value, Mapping):
        return {_string(str(k)): _value(v, f"{path}.{k}", depth + 1) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_value(v, f"{path}[{i}]", depth + 1) for i, v in enumerate(value)]
    raise ContractError(f"{path}: {_kind(value)} is not a JSON value")


def _double(value: int, path: str) -> float:
    try:
        return float(value)
    except OverflowError:
        raise ContractError(f"{path}: an integer too large for any JSON reader") from None


def _deep_enough(path: str, depth: int) -> None:
    if depth > _MAX_DEPTH:
        raise ContractError(f"{path[:80]}…: nested deeper than {_MAX_DEPTH} levels")


def _string(text: str) -> str:
    """Lone surrogates cannot be written as UTF-8; they become U+FFFD."""
    return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")


def _prose(text: str) -> str:
    lines = _string(text).replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return "\n".join(line.rstrip(" \t") for line in lines).strip(" \t\n")


def _words(name: str) -> list[str]:
    """`getUserByID`, `get-user_by.id` -> get user by id (letters and digits kept)."""
    out, current = [], ""
    for before, char, after in zip(" " + name, name, name[1:] + " ", strict=False):
        if not char.isalnum():
            out, current = [*out, current], ""
            continue
        starts = char.isupper() and (before.islower() or (before.isupper() and after.islower()))
        if starts:
            out, current = [*out, current], ""
        current += char.lower()
    return [word for word in [*out, current] if word]


def _all_strings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(v, str) for v in value)


def _kind(value: Any) -> str:
    return type(value).__name__
