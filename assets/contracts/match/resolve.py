"""Which parts of a schema speak about one value: alternatives, references, names, items."""

from collections.abc import Mapping, Sequence
from typing import Any

from assets.contracts.schema_shapes import (
    equals_json,
    follow_reference,
    matches_pattern,
    name_json_type,
    read_list,
    read_mapping,
)
from assets.contracts.schema_shapes import read_default as any_default_of
from assets.contracts.step_budget import spend_steps
from warehouse.json_types import Schema

Parts = Sequence[Schema]
_JOINTS = frozenset(
    ("$ref", "allOf", "anyOf", "oneOf", "if", "dependentSchemas", "dependencies", "$dynamicRef")
)
_MANY = (dict, list, tuple, Mapping)
_MAX_PEEK = 4  # how deep one alternative is looked into when it is told from another


def is_plain(schema: Any) -> bool:
    """Whether a schema speaks for itself alone: no alternatives, references or conditions."""
    return isinstance(schema, dict) and _JOINTS.isdisjoint(schema)


def is_simple(root: Schema, name: str, value: Any) -> bool:
    """Whether an argument is read in a few steps, whatever its schema says."""
    properties = root.get("properties")
    if not isinstance(properties, dict) or not is_plain(root):
        return False
    about = properties.get(name)
    default = about.get("default") if isinstance(about, dict) else None
    return is_plain(about) and not isinstance(value, _MANY) and not isinstance(default, _MANY)


def collect_parts(schema: Any, root: Schema, value: Any) -> Parts:
    """Every schema that speaks about this value, the outermost first.

    Of `anyOf` and `oneOf` those alternatives that the value fits by type, listed values, required
    names and the constants of its properties; where it fits none, all of them.
    """
    if not isinstance(schema, Mapping):
        return ()
    if _JOINTS.isdisjoint(schema):
        spend_steps()
        return (schema,)
    declared: list[Schema] = []
    waiting, visited = [schema], set()
    while waiting:
        current = waiting.pop(0)
        spend_steps()
        if not isinstance(current, Mapping) or id(current) in visited:
            continue
        visited.add(id(current))
        declared.append(current)
        waiting.extend(_resolve_next(current, root, value))
    return declared


def _resolve_next(schema: Schema, root: Schema, value: Any) -> list[Any]:
    """The schemas one step from this one that hold for the value too."""
    following: list[Any] = []
    reference = schema.get("$ref", schema.get("$dynamicRef"))
    if isinstance(reference, str):
        following.append(follow_reference(reference, root))
    following.extend(read_list(schema.get("allOf")))
    for key in ("anyOf", "oneOf"):
        alternatives = read_list(schema.get(key))
        following.extend(
            [candidate for candidate in alternatives if _fits_value(candidate, root, value)]
            or alternatives
        )
    if "if" in schema:
        branch = "then" if _fits_value(schema["if"], root, value) else "else"
        following.append(schema.get(branch))
    if isinstance(value, Mapping):
        for key in ("dependentSchemas", "dependencies"):
            dependents = read_mapping(schema.get(key))
            following.extend(candidate for name, candidate in dependents.items() if name in value)
    return following


def _fits_value(schema: Any, root: Schema, value: Any, depth: int = 0) -> bool:
    """Whether nothing that can be seen at a glance speaks against the value."""
    spend_steps()
    if isinstance(schema, bool):
        return schema
    if not isinstance(schema, Mapping) or depth > _MAX_PEEK:
        return True
    if not (_fits_type(schema, value) and _fits_listed(schema, value)):
        return False
    if isinstance(schema.get("$ref"), str) and not _fits_value(
        follow_reference(schema["$ref"], root), root, value, depth + 1
    ):
        return False
    if not all(
        _fits_value(candidate, root, value, depth + 1)
        for candidate in read_list(schema.get("allOf"))
    ):
        return False
    for key in ("anyOf", "oneOf"):
        alternatives = read_list(schema.get(key))
        if alternatives and not any(
            _fits_value(candidate, root, value, depth + 1) for candidate in alternatives
        ):
            return False
    if isinstance(value, Mapping):
        properties = read_mapping(schema.get("properties"))
        needed = read_list(schema.get("required"))
        if any(isinstance(name, str) and name not in value for name in needed):
            return False
        closed = schema.get("additionalProperties") is False and "patternProperties" not in schema
        if closed and any(name not in properties for name in value):
            return False
        return all(
            _fits_value(properties[name], root, item, depth + 1)
            for name, item in value.items()
            if name in properties
        )
    if isinstance(value, list) and value and isinstance(schema.get("items"), Mapping):
        return _fits_value(schema["items"], root, value[0], depth + 1)
    return True


def _fits_type(schema: Schema, value: Any) -> bool:
    types = schema.get("type")
    kinds = [types] if isinstance(types, str) else read_list(types)
    kind = name_json_type(value)
    if not kinds or kind in kinds or (kind == "integer" and "number" in kinds):
        return True
    return kind == "null" and schema.get("nullable") is True


def _fits_listed(schema: Schema, value: Any) -> bool:
    if "const" in schema and not _equals_value(schema["const"], value):
        return False
    choices = schema.get("enum")
    if not isinstance(choices, list):
        return True
    spend_steps(len(choices) // 64)
    return any(_equals_value(candidate, value) for candidate in choices)


def _equals_value(a: Any, b: Any) -> bool:
    if isinstance(a, str) or isinstance(b, str) or a is None or b is None:
        return a is b or (type(a) is type(b) and a == b)
    if isinstance(a, int | float) and isinstance(b, int | float):
        return a == b and isinstance(a, bool) == isinstance(b, bool)
    return equals_json(a, b)


def find_property(schemas: Parts, name: str) -> Any:
    """The schema of one named property: declared, else by pattern, else of all others; several
    parts that declare it hold together."""
    declared = []
    for part in schemas:
        properties = part.get("properties")
        if isinstance(properties, Mapping) and name in properties:
            declared.append(properties[name])
            continue
        patterns = read_mapping(part.get("patternProperties"))
        fitting = [
            candidate for pattern, candidate in patterns.items() if matches_pattern(pattern, name)
        ]
        other = part.get("additionalProperties", part.get("unevaluatedProperties"))
        if fitting:
            declared.extend(fitting)
        elif isinstance(other, Mapping):
            declared.append(other)
    return declared[0] if len(declared) == 1 else {"allOf": declared} if declared else {}


def find_items(schemas: Parts) -> tuple[list[Any], Any, bool]:
    """(schemas by place, schema of the rest, whether the order means nothing) of an array.

    The order means nothing where the items are unique, or the schema says `format: set` or
    `x-unordered: true`; a tuple keeps its order.
    """
    places: list[Any] = []
    rest_schemas: list[Any] = []
    unordered = False
    for part in schemas:
        items = part.get("items")
        if isinstance(items, list):
            places, items = places or items, part.get("additionalItems")
        elif isinstance(part.get("prefixItems"), list):
            places = places or part["prefixItems"]
        if isinstance(items, Mapping):
            rest_schemas.append(items)
        loose = part.get("uniqueItems") is True or part.get("x-unordered") is True
        unordered = unordered or loose or part.get("format") == "set"
    rest_schema = (
        rest_schemas[0]
        if len(rest_schemas) == 1
        else {"allOf": rest_schemas}
        if rest_schemas
        else {}
    )
    return places, rest_schema, unordered and not places


def find_default(schema: Any, root: Schema) -> tuple[bool, Any]:
    """(whether there is a default, the default) of a property, whichever part states it."""
    if not isinstance(schema, Mapping):
        return False, None
    if _JOINTS.isdisjoint(schema):
        return "default" in schema, schema.get("default")
    spend_steps(8)
    return any_default_of(schema, root)
