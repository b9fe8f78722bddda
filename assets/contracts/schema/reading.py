"""Reading a JSON Schema: local references, the names an object allows, defaults."""

from collections.abc import Iterator, Mapping
from typing import Any

from assets.contracts.schema.shapes import follow_reference
from warehouse.json_types import JsonObject, Schema

_COMBINATORS = ("allOf", "anyOf", "oneOf")
_BRANCHES = ("then", "else")
_EXPLICIT = ("additionalProperties", "unevaluatedProperties", "patternProperties")


def resolve(schema: Any, root: Schema) -> JsonObject:
    """The schema a chain of local `$ref`s leads to; {} for anything that cannot be followed."""
    seen: set[str] = set()
    while isinstance(schema, Mapping) and isinstance(schema.get("$ref"), str):
        reference = schema["$ref"]
        if reference in seen or not reference.startswith("#"):
            return {}
        seen.add(reference)
        siblings = {k: v for k, v in schema.items() if k != "$ref"}
        found = follow_reference(reference, root)
        target = {} if found is None else found
        schema = {**target, **siblings} if isinstance(target, Mapping) and siblings else target
    return schema if isinstance(schema, Mapping) else {}


def iterate_branches(schema: Any, root: Schema, limit: int = 64) -> Iterator[JsonObject]:
    """The schema itself and every schema that may apply to the same value (allOf, anyOf, …)."""
    stack, seen = [schema], 0
    while stack and seen < limit:
        current = resolve(stack.pop(), root)
        seen += 1
        yield current
        for key in _COMBINATORS:
            if isinstance(current.get(key), list):
                stack.extend(current[key])
        stack.extend(current[key] for key in _BRANCHES if key in current)


def collect_properties(schema: Any, root: Schema) -> dict[str, Any]:
    """Name -> schema of every property that any branch knows."""
    known: dict[str, Any] = {}
    for branch in iterate_branches(schema, root):
        properties = branch.get("properties")
        if isinstance(properties, Mapping):
            for name, value in properties.items():
                known.setdefault(name, value)
    return known


def is_open(schema: Any, root: Schema) -> bool:
    """Whether any branch says explicitly what further arguments are (true, a schema, a pattern)."""
    for branch in iterate_branches(schema, root):
        for key in _EXPLICIT:
            if key in branch and branch[key] is not False:
                return True
    return False


def read_default(schema: Any, root: Schema) -> tuple[bool, Any]:
    """(whether there is a default, the default)."""
    for branch in iterate_branches(schema, root):
        if "default" in branch:
            return True, branch["default"]
    return False, None


def name_json_type(value: Any) -> str:
    """The JSON Schema type of a Python value; an integral float is an integer."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        return "integer"
    if isinstance(value, float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "object" if isinstance(value, Mapping) else "array"
