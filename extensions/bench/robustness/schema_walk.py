"""Walking a JSON Schema, and renaming the properties of its root."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

_NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_ONE = (
    "items", "additionalItems", "additionalProperties", "unevaluatedItems",
    "unevaluatedProperties", "contains", "propertyNames", "not", "if", "then", "else",
)  # fmt: skip
_SEVERAL = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
_SAME_INSTANCE = ("allOf", "anyOf", "oneOf"), ("not", "if", "then", "else")
_MAX_DEPTH = 48


def map_schemas(
    schema: Any, change: Callable[[Mapping[str, Any]], dict[str, Any]], depth: int = 0
) -> Any:
    """A copy of a schema with `change` applied to it and every schema in it, inner ones first."""
    if not isinstance(schema, Mapping) or depth > _MAX_DEPTH:
        return schema
    out: dict[str, Any] = {}
    for key, held in schema.items():
        if key in _NAMED and isinstance(held, Mapping):
            out[key] = {name: map_schemas(each, change, depth + 1) for name, each in held.items()}
        elif key in _SEVERAL and isinstance(held, list):
            out[key] = [map_schemas(each, change, depth + 1) for each in held]
        elif key in _ONE:
            out[key] = map_schemas(held, change, depth + 1)
        else:
            out[key] = held
    return change(out)


def has_pattern_names(schema: Any) -> bool:
    """Whether a root schema's parameters cannot be renamed: it matches their names by pattern, or
    refers elsewhere for them or into them, or is too deep to tell."""
    if any("/properties/" in reference for reference in _iterate_references(schema, 0)):
        return True
    return any(
        key in level
        for level in _iterate_root_schemas(schema, 0)
        for key in ("patternProperties", "propertyNames", "$ref", "$dynamicRef", "enum", "const")
    )


def rename_level_properties(schema: Any, names: Mapping[str, str], depth: int = 0) -> Any:
    """A copy with the properties of the root instance renamed, in every schema that applies to it
    (allOf, anyOf, if …); nested objects' properties keep their names."""
    if not isinstance(schema, Mapping) or depth > _MAX_DEPTH:
        return schema
    out = dict(schema)
    combined, single = _SAME_INSTANCE
    for key, held in schema.items():
        if key == "properties" and isinstance(held, Mapping):
            out[key] = {names.get(name, name): each for name, each in held.items()}
        elif key == "required" and isinstance(held, list):
            out[key] = [names.get(name, name) if isinstance(name, str) else name for name in held]
        elif key in ("dependentRequired", "dependentSchemas", "dependencies"):
            out[key] = _rename_dependents(held, names, depth)
        elif key in combined and isinstance(held, list):
            out[key] = [rename_level_properties(each, names, depth + 1) for each in held]
        elif key in single:
            out[key] = rename_level_properties(held, names, depth + 1)
        elif key in ("default", "examples"):
            out[key] = _rename_instance_keys(held, names)
    return out


def _rename_dependents(held: Any, names: Mapping[str, str], depth: int) -> Any:
    if not isinstance(held, Mapping):
        return held
    return {
        names.get(name, name): [names.get(each, each) for each in then]
        if isinstance(then, list)
        else rename_level_properties(then, names, depth + 1)
        for name, then in held.items()
    }


def _rename_instance_keys(held: Any, names: Mapping[str, str]) -> Any:
    if isinstance(held, list):
        return [_rename_instance_keys(each, names) for each in held]
    if isinstance(held, Mapping):
        return {names.get(name, name): value for name, value in held.items()}
    return held


def _iterate_root_schemas(schema: Any, depth: int) -> Iterator[Mapping[str, Any]]:
    """The schemas that apply to the root instance itself."""
    if not isinstance(schema, Mapping):
        return
    if depth > _MAX_DEPTH:
        yield {"$ref": "too deep to tell"}
        return
    yield schema
    combined, single = _SAME_INSTANCE
    inner = [schema[key] for key in single if key in schema]
    inner += [e for key in combined if isinstance(schema.get(key), list) for e in schema[key]]
    for key in ("dependentSchemas", "dependencies"):
        if isinstance(schema.get(key), Mapping):
            inner += list(schema[key].values())
    for each in inner:
        yield from _iterate_root_schemas(each, depth + 1)


def _iterate_references(held: Any, depth: int) -> Iterator[str]:
    if depth > 2 * _MAX_DEPTH:
        yield "/properties/"
        return
    if isinstance(held, Mapping):
        for key, value in held.items():
            if key in ("$ref", "$dynamicRef") and isinstance(value, str):
                yield value
            else:
                yield from _iterate_references(value, depth + 1)
    elif isinstance(held, list):
        for value in held:
            yield from _iterate_references(value, depth + 1)
