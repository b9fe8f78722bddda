"""Schemas within the subsets of OpenAI's strict mode and of Gemini's function declarations.

The rules and their sources are in `vendor_rules.py`.
"""

import json
from collections.abc import Mapping
from typing import Any

from assets.contracts.schema_shapes import (
    is_number,
    merge_schemas,
    name_json_type,
    read_list,
    read_mapping,
    resolve,
)
from assets.contracts.vendor_rules import list_types, write_schema
from warehouse.json_types import Schema

_DEFINITIONS = ("$defs", "definitions")


class _OutsideSubset(ValueError):
    """A schema that a vendor's subset cannot say."""


_STRICT_KEYS = ("type", "description", "title", "enum", "pattern", "multipleOf", "minimum",
                "maximum", "exclusiveMinimum", "exclusiveMaximum", "minItems",
                "maxItems")  # fmt: skip
_STRICT_FORMATS = ("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6",
                   "uuid")  # fmt: skip
_STRICT_MOST = {"properties": 5_000, "levels": 10, "choices": 1_000, "characters": 120_000}


def write_strict_schema(schema: Any) -> dict[str, Any] | None:
    """The schema for a function of OpenAI with `strict: true`: an optional parameter may be null.
    None where the subset cannot say it, such as an object of any properties."""
    count, root = dict.fromkeys(_STRICT_MOST, 0), write_schema(schema)
    try:
        result = _write_strict(root, root, 1, count)
    except _OutsideSubset:
        return None
    return result if all(count[name] <= most for name, most in _STRICT_MOST.items()) else None


def _write_strict(node: Any, root: Schema, level: int, count: dict[str, int]) -> dict[str, Any]:
    node = _settle(node, root)
    if level > _STRICT_MOST["levels"]:
        raise _OutsideSubset
    count["levels"] = max(count["levels"], level)
    out = {key: node[key] for key in _STRICT_KEYS if key in node}
    out |= {"format": node["format"]} if node.get("format") in _STRICT_FORMATS else {}
    choices = read_list(node.get("enum"))
    count["choices"] += len(choices)
    characters = sum(len(str(choice)) for choice in choices)
    count["characters"] += characters
    if len(choices) > 250 and characters > 15_000:
        raise _OutsideSubset
    if "$ref" in node:
        return {"$ref": node["$ref"]}  # it must stand alone
    if "anyOf" in node:
        out["anyOf"] = [_write_strict(part, root, level, count) for part in node["anyOf"]]
    if "object" in list_types(node):
        properties, required = read_mapping(node.get("properties")), read_list(node.get("required"))
        free = not properties and level > 1  # a nested object that lists nothing takes anything
        if node.get("additionalProperties", free) or "patternProperties" in node:
            raise _OutsideSubset
        count["properties"] += len(properties)
        count["characters"] += sum(map(len, properties))
        members = {
            key: _write_strict(part, root, level + 1, count) for key, part in properties.items()
        }
        members |= {key: _allow_null(part) for key, part in members.items() if key not in required}
        out |= {"properties": members, "required": list(members), "additionalProperties": False}
    if "array" in list_types(node):
        out["items"] = _write_strict(node.get("items"), root, level + 1, count)
    for key in _DEFINITIONS if level == 1 else ():
        parts = read_mapping(node.get(key)).items()
        out |= {key: {name: _write_strict(part, root, 2, count) for name, part in parts}}
    if not out.keys() & {"type", "anyOf"}:
        raise _OutsideSubset
    return {key: value for key, value in out.items() if value or key not in _DEFINITIONS}


def _allow_null(schema: dict[str, Any]) -> dict[str, Any]:
    if "type" not in schema:
        inner = schema["anyOf"] if schema.keys() <= {"anyOf", "description"} else [schema]
        about = {key: value for key, value in schema.items() if key == "description"}
        return {**about, "anyOf": [*inner, {"type": "null"}]}
    listed = {"enum": [*schema["enum"], None]} if None not in schema.get("enum", [None]) else {}
    return {**schema, "type": list(dict.fromkeys([*list_types(schema), "null"])), **listed}


def _settle(node: Any, root: Schema) -> Schema:
    """The schema with its `allOf` merged, `const` and `oneOf` in other words, and a type where what
    it lists names one."""
    out: dict[str, Any] = dict(node) if isinstance(node, Mapping) else {}
    for part in read_list(out.pop("allOf", None)) if out.get("allOf") else ():
        out = dict(merge_schemas(out, resolve(part, root)))
    if "const" in out:
        out["enum"] = [out.pop("const")]
    if "oneOf" in out:
        out.setdefault("anyOf", out.pop("oneOf"))
    if "type" not in out and isinstance(out.get("enum"), list):
        kinds = list(dict.fromkeys(map(name_json_type, out["enum"])))
        out["type"] = kinds if len(kinds) > 1 else kinds[0]
    elif "type" not in out and "anyOf" not in out:
        shape = next((key for key in ("properties", "items") if key in out), None)
        out |= {"type": "object" if shape == "properties" else "array"} if shape else {}
    return node if out == node else out


_GEMINI_KEYS = ("title", "description", "minItems", "maxItems", "minProperties", "maxProperties",
                "minLength", "maxLength", "pattern", "default", "minimum", "maximum")  # fmt: skip
_GEMINI_FORMATS = {"string": ("enum", "date-time"), "number": ("float", "double"),
                   "integer": ("int32", "int64")}  # fmt: skip
_GEMINI_LEVELS = 8  # a schema that holds itself is written out so often


def write_gemini_schema(schema: Any) -> dict[str, Any] | None:
    """The schema as `parameters` of a function of Gemini; None for a tool without parameters, whose
    `parameters` are left unset. Choices that are no texts, and limits that Schema has no field for,
    are said in the description."""
    root = write_schema(schema)
    return _write_gemini(root, root, 0) if root["properties"] else None


def _write_gemini(node: Any, root: Schema, level: int) -> dict[str, Any]:
    node = _settle(resolve(node, root), root)
    kinds = [kind for kind in list_types(node) if kind != "null"]
    out = {key: node[key] for key in _GEMINI_KEYS if key in node}
    nullable = {"nullable": True} if len(kinds) < len(list_types(node)) else {}
    alternatives = read_list(node.get("anyOf"))
    if not alternatives and len(kinds) > 1:
        alternatives = [{**node, "type": kind} for kind in kinds]
    if alternatives and level < _GEMINI_LEVELS and level:
        return {**_join_gemini(alternatives, out, root, level), **nullable}
    kind = kinds[0] if kinds else "string"
    choices = [choice for choice in read_list(node.get("enum")) if choice is not None]
    notes = []
    if kind == "string" and choices and all(isinstance(choice, str) for choice in choices):
        out["enum"] = [choice for choice in choices if choice]  # an empty text is refused
    elif choices:
        notes.append(f"one of {json.dumps(choices)[1:-1]}")
    for bound in ("Minimum", "Maximum"):
        if is_number(limit := node.get(f"exclusive{bound}")):
            step = 1 if bound == "Minimum" else -1
            out.setdefault(bound.lower(), limit + step if kind == "integer" else limit)
            notes += [f"{'more' if step > 0 else 'less'} than {limit}"] * (kind != "integer")
    if node.get("format") in _GEMINI_FORMATS.get(kind, ()):
        out["format"] = node["format"]
    elif isinstance(node.get("format"), str):
        notes.append(f"format {node['format']}")
    if kind == "array":
        places = read_list(node.get("prefixItems"))
        items = {"anyOf": places} if places and not node.get("items") else node.get("items")
        out["items"] = _write_gemini(items if level < _GEMINI_LEVELS else {}, root, level + 1)
    properties = read_mapping(node.get("properties")) if level < _GEMINI_LEVELS else {}
    if kind == "object" and properties:
        written = {name: _write_gemini(part, root, level + 1) for name, part in properties.items()}
        required = [name for name in read_list(node.get("required")) if name in properties]
        out |= {"properties": written, **({"required": required} if required else {})}
    if notes:
        out["description"] = " ".join(
            [*filter(None, [out.get("description")]), f"({'; '.join(notes)})"]
        )
    return {"type": kind, **out, **nullable}


def _join_gemini(
    alternatives: list[Any], about: dict[str, Any], root: Schema, level: int
) -> dict[str, Any]:
    """The alternatives, which stand alone in their schema: its description goes into each."""
    written = [
        _write_gemini(part, root, level + 1) for part in alternatives if part != {"type": "null"}
    ]
    nullable = {"nullable": True} if len(written) < len(alternatives) else {}
    told = {key: about[key] for key in ("title", "description") if key in about}
    distinct = [{**told, **part} for part in written]
    return {**(distinct[0] if len(distinct) == 1 else {"anyOf": distinct}), **nullable}
