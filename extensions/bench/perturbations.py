"""Schemas that say the same in another way: does a caller read them, or remember them?

    renamed_tool          get_file -> file_get: the words of its name in another order and style
    renamed_parameters    path -> path_value: all its words stay, so that what a value is compared
                          by (an id exactly, free text loosely) stays too
    reordered_parameters  the properties in another order, at every depth

A changed schema accepts a changed call exactly where the old one accepts the old call. What cannot
be changed without doubt is left as it is: a tool whose root schema matches parameters by pattern
or refers into its own properties.
"""

import json
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from training.evaluation.renaming import (
    IDENTIFIER,
    ChangedTools,
    hash_to_number,
    make_name_replacer,
    make_new_names,
    rename_tools,
)
from warehouse.json_types import Contract

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


Call = Mapping[str, Any]
_PARAMETER_MARKS = ("value", "input", "given")


def perturb_tools(
    kind: str, tools: Sequence[Contract], expected: Sequence[Call], seed: int = 0
) -> ChangedTools:
    """The same question with its schemas changed. A function of its arguments."""
    if kind == "renamed_tool":
        return rename_tools(
            tools, expected, make_new_names([str(tool["name"]) for tool in tools], seed)
        )
    made = {str(tool["name"]): _CHANGES[kind](tool, seed) for tool in tools}
    names = {tool: renames for tool, (_, renames) in made.items()}
    calls = [
        {
            **call,
            "arguments": _rename_instance_keys(
                call.get("arguments"), names.get(str(call["name"]), {})
            ),
        }
        for call in expected
    ]
    changed = frozenset(
        str(tool["name"])
        for tool in tools
        if json.dumps(tool) != json.dumps(made[str(tool["name"])][0])  # the order of keys counts
    )
    return ChangedTools([contract for contract, _ in made.values()], calls, changed)


def _rename_parameters(tool: Contract, seed: int) -> tuple[dict[str, Any], dict[str, str]]:
    schema = tool.get("inputSchema", {})
    properties = schema.get("properties")
    if not isinstance(properties, Mapping) or not properties or has_pattern_names(schema):
        return dict(tool), {}
    held = {str(name) for name in properties}
    names: dict[str, str] = {}
    for name in properties:
        mark = _PARAMETER_MARKS[
            hash_to_number(f"{seed}|{tool['name']}|{name}") % len(_PARAMETER_MARKS)
        ]
        fresh = f"{name}{mark.capitalize()}" if re.search("[a-z][A-Z]", name) else f"{name}_{mark}"
        while fresh in held:
            fresh += "_"
        held.add(fresh)
        names[name] = fresh
    replace_names = make_name_replacer(
        {old: new for old, new in names.items() if IDENTIFIER.search(old)}, names
    )
    renamed = map_schemas(
        rename_level_properties(schema, names),
        lambda held: _change_description(held, replace_names),
    )
    made = {**_change_description(tool, replace_names), "inputSchema": renamed}
    return made, names


def _reorder_schema(tool: Contract, seed: int) -> tuple[dict[str, Any], dict[str, str]]:
    def shuffled(schema: Mapping[str, Any]) -> dict[str, Any]:
        properties = schema.get("properties")
        if not isinstance(properties, Mapping) or len(properties) < 2:
            return dict(schema)
        names = list(properties)
        order = random.Random(hash_to_number(f"{seed}|{names}")).sample(names, len(names))
        order = order if order != names else names[::-1]
        return {**schema, "properties": {name: properties[name] for name in order}}

    return {**tool, "inputSchema": map_schemas(tool.get("inputSchema", {}), shuffled)}, {}


_CHANGES: dict[str, Callable[[Contract, int], tuple[dict[str, Any], dict[str, str]]]] = {
    "renamed_parameters": _rename_parameters,
    "reordered_parameters": _reorder_schema,
}


def _change_description(
    held: Mapping[str, Any], change_text: Callable[[str], str]
) -> dict[str, Any]:
    text = held.get("description")
    return {**held, "description": change_text(text)} if isinstance(text, str) else dict(held)
