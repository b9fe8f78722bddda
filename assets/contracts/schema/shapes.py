"""What a JSON Schema says about values as a whole: its types, its few values, its alternatives."""

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

import regex

from assets.contracts.schema.reading import json_type
from assets.contracts.schema.step_budget import spend, spend_seconds

Schema = Mapping[str, Any]
NEVER: dict[str, Any] = {"not": {}}
KINDS = ("null", "boolean", "integer", "number", "string", "array", "object")
PROSE = {
    *("description", "title", "examples", "example", "deprecated", "$comment", "default"),
    *("readOnly", "writeOnly", "contentMediaType", "contentEncoding", "contentSchema"),
    *("$defs", "definitions", "$schema", "$id", "$anchor", "nullable"),
}
_FINITE = 256
_MAX_HOPS = 16


def alike(a: Any, b: Any) -> bool:
    """JSON equality: unlike Python's, true is not 1."""
    if a is b:
        return True
    # The text decides; the order of keys seldom differs, and `repr` is the faster of the two.
    return a == b and (
        repr(a) == repr(b) or json.dumps(a, sort_keys=True) == json.dumps(b, sort_keys=True)
    )


def is_never(schema: Schema) -> bool:
    """Whether no value fits, plainly so."""
    return schema.get("not", None) in ({}, True) or schema.get("enum") == []


def kinds_of(schema: Schema) -> frozenset[str]:
    """The types a schema names, numbers with their integers; all when it names none."""
    named = schema.get("type")
    listed = {named} if isinstance(named, str) else set(map(str, as_list(named)))
    return frozenset(listed | ({"integer"} if "number" in listed else set()) or KINDS)


def finite(schema: Schema) -> list[Any] | None:
    """Every value that could fit, when they are few and listed."""
    if "const" in schema:
        return [schema["const"]]
    listed = schema.get("enum")
    if isinstance(listed, list):
        return listed if len(listed) <= _FINITE else None
    if kinds_of(schema) <= {"null", "boolean"}:
        return [None, True, False]
    return None


def alternatives(was: Schema) -> Iterator[Schema]:
    """Schemas of which each accepted value fits at least one: its alternatives, or its types."""
    for key in ("anyOf", "oneOf"):
        parts = was.get(key)
        if isinstance(parts, list) and parts:
            base = {k: v for k, v in was.items() if k != key}
            yield from ({"allOf": [base, part]} for part in parts)
            return
    kinds = kinds_of(was)
    split = sorted(kinds - ({"integer"} if "number" in kinds else set()))
    if "type" in was and len(split) > 1:
        yield from ({**was, "type": kind} for kind in split)


def exclusive(parts: list[Any], follow: Any) -> bool:
    """Whether no value fits two of these alternatives, plainly so (by type, or by the listed values
    of themselves or of a property all of them require)."""
    spend(len(parts) * len(parts) // 8)
    seen = [follow(part) for part in parts]
    return all(_apart(a, b) for i, a in enumerate(seen) for b in seen[:i])


def _apart(a: Schema, b: Schema) -> bool:
    if not kinds_of(a) & kinds_of(b):
        return True
    if _values(a) and _values(b):
        return not _values(a) & _values(b)
    if not kinds_of(a) & kinds_of(b) <= {"object"}:
        return False
    both = set(as_list(a.get("required"))) & set(as_list(b.get("required")))
    ours, theirs = as_mapping(a.get("properties")), as_mapping(b.get("properties"))
    return any(
        bool(_values(ours[name]) and _values(theirs[name]))
        and not _values(ours[name]) & _values(theirs[name])
        for name in both & ours.keys() & theirs.keys()
    )


def _values(schema: Any) -> set[str]:
    if not isinstance(schema, Mapping):
        return set()
    listed = [schema["const"]] if "const" in schema else as_list(schema.get("enum"))
    return {json_type(value) + json.dumps(value, sort_keys=True) for value in listed}


def merge(base: Schema, part: Schema) -> Schema:
    """Both at once, as one mapping; where that cannot be said, looser."""
    out = {**base, **part}
    out.pop("unevaluatedItems", None)
    if out.pop("unevaluatedProperties", False) is not False:
        out.setdefault("additionalProperties", True)
    if "items" in base and "items" in part:
        out.pop("additionalItems", None)
    for group in (("if", "then", "else"), ("contains", "minContains", "maxContains")):
        if base.keys() & set(group) and part.keys() & set(group):
            for key in group:
                out.pop(key, None)
    for key in ("properties", "patternProperties"):
        if key in base and key in part:
            out[key] = {**as_mapping(base[key]), **as_mapping(part[key])}
    if "required" in base and "required" in part:
        out["required"] = sorted({*as_list(base["required"]), *as_list(part["required"])})
    if "type" in base and "type" in part:
        out["type"] = sorted(kinds_of(base) & kinds_of(part)) or ["null"]
    return out


def tuple_of(schema: Schema) -> tuple[list[Any], Any]:
    """(schemas by place, schema of the rest) of an array, in either draft's words."""
    items = schema.get("items", True)
    if isinstance(items, list):
        return items, schema.get("additionalItems", True)
    return as_list(schema.get("prefixItems")), items


def matches(pattern: str, name: str) -> bool | None:
    """Whether a property's name fits a pattern; None where nobody can tell."""
    begun = time.perf_counter()
    try:
        return regex.search(pattern, name, timeout=0.1) is not None
    except (regex.error, TimeoutError, TypeError, ValueError, OverflowError, RecursionError):
        return None
    finally:
        spend_seconds(time.perf_counter() - begun)


def plain_of(schema: Any, root: Schema, lost: Schema) -> Schema:
    """The mapping behind booleans and references; `lost` for one that leads nowhere."""
    spend()
    for _ in range(_MAX_HOPS):
        if isinstance(schema, bool):
            return {} if schema else NEVER
        if not isinstance(schema, Mapping):
            return {}
        if not isinstance(schema.get("$ref"), str):
            return schema
        target = pointed_at(schema["$ref"], root)
        if target is None:
            return lost
        others = {key: value for key, value in schema.items() if key != "$ref"}
        if others.keys() - PROSE:
            return {"allOf": [target, others]}
        schema = {**target, **others} if others and isinstance(target, Mapping) else target
    return lost


def lost_references(root: Schema) -> set[str]:
    """The `$ref`s of a schema that lead nowhere within it; nothing is ever fetched."""
    return {target for target in references(root) if pointed_at(target, root) is None}


def references(schema: Any) -> Iterator[str]:
    """Every `$ref` in a schema, at any depth."""
    stack: list[Any] = [schema]
    while stack:
        node = stack.pop()
        if isinstance(node, Mapping):
            spend()
            if isinstance(node.get("$ref"), str):
                yield node["$ref"]
            stack.extend(node.values())
        elif isinstance(node, list):
            stack.extend(node)


def pointed_at(reference: str, root: Schema) -> Mapping[str, Any] | bool | None:
    """The schema that a local reference leads to, or None."""
    if not reference.startswith("#"):
        return None
    node: Any = root
    for part in unquote(reference[1:]).split("/")[1:]:
        part = part.replace("~1", "/").replace("~0", "~")
        if isinstance(node, Mapping) and part in node:
            node = node[part]
        elif isinstance(node, list) and part.isdigit() and int(part) < len(node):
            node = node[int(part)]
        else:
            return None
    return node if isinstance(node, Mapping | bool) else None


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def as_mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
