"""Reading a JSON Schema: types, listed values, alternatives, references; and the steps it may take.

Steps are counted, so that the same schemas get the same answer on any machine; only a slow pattern
is charged by the clock. A step is some 20 µs. Without a limit two contracts of 3 kB whose `allOf`
doubles at each of 18 levels took 59 s to compare.
"""

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeGuard
from urllib.parse import unquote

import regex

from warehouse.json_types import JsonObject, Schema

_STEPS_PER_SECOND = 50_000
_FREE_S = 0.002  # what any search may take before it is charged by the clock


class TooMuchWork(Exception):
    """The steps of a limit are spent."""


@dataclass
class StepLimit:
    """Steps that are left."""

    left: int


_LIMITS: ContextVar[tuple[StepLimit, ...]] = ContextVar("limits", default=())


@contextmanager
def limit_steps(steps: int | StepLimit) -> Iterator[StepLimit]:
    """Within the block at most so many steps are taken, those of outer limits included.

    Raises TooMuchWork at the step that goes beyond.
    """
    limit = steps if isinstance(steps, StepLimit) else StepLimit(steps)
    token = _LIMITS.set((*_LIMITS.get(), limit))
    try:
        yield limit
    finally:
        _LIMITS.reset(token)


def spend_steps(steps: int = 1) -> None:
    """Takes steps from every limit that holds here; without one there is nothing to count."""
    spent = False
    for limit in _LIMITS.get():
        limit.left -= steps
        spent = spent or limit.left < 0
    if spent:
        raise TooMuchWork


def spend_seconds(seconds: float) -> None:
    """Takes the steps that a slow search has cost."""
    if seconds > _FREE_S:
        spend_steps(int(seconds * _STEPS_PER_SECOND))


NEVER: dict[str, Any] = {"not": {}}
KINDS = ("null", "boolean", "integer", "number", "string", "array", "object")
PROSE = {
    *("description", "title", "examples", "example", "deprecated", "$comment", "default"),
    *("readOnly", "writeOnly", "contentMediaType", "contentEncoding", "contentSchema"),
    *("$defs", "definitions", "$schema", "$id", "$anchor", "nullable"),
}
_ENTANGLED = {  # keywords that cannot be carried over from one schema to another by themselves
    *("patternProperties", "unevaluatedProperties", "unevaluatedItems", "prefixItems"),
    *("additionalItems", "if", "then", "else", "contains", "minContains", "maxContains"),
}
_FINITE = 256
_MAX_HOPS = 16


def equals_json(a: Any, b: Any) -> bool:
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


def list_kinds(schema: Schema) -> frozenset[str]:
    """The types a schema names, numbers with their integers; all when it names none."""
    type_keyword = schema.get("type")
    kinds = (
        {type_keyword} if isinstance(type_keyword, str) else set(map(str, read_list(type_keyword)))
    )
    return frozenset(kinds | ({"integer"} if "number" in kinds else set()) or KINDS)


def list_finite_values(schema: Schema) -> list[Any] | None:
    """Every value that could fit, when they are few and listed."""
    if "const" in schema:
        return [schema["const"]]
    listed_values = schema.get("enum")
    if isinstance(listed_values, list):
        return listed_values if len(listed_values) <= _FINITE else None
    if list_kinds(schema) <= {"null", "boolean"}:
        return [None, True, False]
    return None


def iterate_alternatives(was: Schema) -> Iterator[Schema]:
    """Schemas of which each accepted value fits at least one: its alternatives, or its types."""
    for key in ("anyOf", "oneOf"):
        alternatives = was.get(key)
        if isinstance(alternatives, list) and alternatives:
            base = {k: v for k, v in was.items() if k != key}
            yield from ({"allOf": [base, part]} for part in alternatives)
            return
    kinds = list_kinds(was)
    split = sorted(kinds - ({"integer"} if "number" in kinds else set()))
    if "type" in was and len(split) > 1:
        yield from ({**was, "type": kind} for kind in split)


def merge_schemas(base: Schema, part: Schema) -> Schema:
    """Both at once, as one mapping; where that cannot be said, looser."""
    if part.keys() & _ENTANGLED:
        return {**base, "additionalProperties": True}
    out = {**base, **part}
    if "properties" in base and "properties" in part:
        out["properties"] = {**read_mapping(base["properties"]), **read_mapping(part["properties"])}
    if "required" in base and "required" in part:
        out["required"] = sorted({*read_list(base["required"]), *read_list(part["required"])})
    if "type" in base and "type" in part:
        out["type"] = sorted(list_kinds(base) & list_kinds(part)) or ["null"]
    return out


def matches_pattern(pattern: str, name: str) -> bool | None:
    """Whether a property's name fits a pattern; None where nobody can tell."""
    begun = time.perf_counter()
    try:
        return regex.search(pattern, name, timeout=0.1) is not None
    except (regex.error, TimeoutError, TypeError, ValueError, OverflowError, RecursionError):
        return None
    finally:
        spend_seconds(time.perf_counter() - begun)


def resolve_plain(schema: Any, root: Schema, lost: Schema) -> Schema:
    """The mapping behind booleans and references; `lost` for one that leads nowhere."""
    spend_steps()
    for _ in range(_MAX_HOPS):
        if isinstance(schema, bool):
            return {} if schema else NEVER
        if not isinstance(schema, Mapping):
            return {}
        if not isinstance(schema.get("$ref"), str):
            return schema
        target = follow_reference(schema["$ref"], root)
        if target is None:
            return lost
        others = {key: value for key, value in schema.items() if key != "$ref"}
        if others.keys() - PROSE:
            return {"allOf": [target, others]}
        schema = {**target, **others} if others and isinstance(target, Mapping) else target
    return lost


def find_lost_references(root: Schema) -> set[str]:
    """The `$ref`s of a schema that lead nowhere within it; nothing is ever fetched."""
    return {target for target in iterate_references(root) if follow_reference(target, root) is None}


def iterate_references(schema: Any) -> Iterator[str]:
    """Every `$ref` in a schema, at any depth."""
    stack: list[Any] = [schema]
    while stack:
        node = stack.pop()
        if isinstance(node, Mapping):
            spend_steps()
            if isinstance(node.get("$ref"), str):
                yield node["$ref"]
            stack.extend(node.values())
        elif isinstance(node, list):
            stack.extend(node)


def follow_reference(reference: str, root: Schema) -> JsonObject | bool | None:
    """The schema that a local reference or anchor leads to, or None; nothing is ever fetched."""
    if not reference.startswith("#"):
        return None
    if reference[1:2] not in ("", "/"):
        name = unquote(reference[1:])
        for key in ("$defs", "definitions"):
            for schema in read_mapping(root.get(key)).values():
                spend_steps()
                if isinstance(schema, Mapping) and name in (
                    schema.get("$anchor"),
                    schema.get("$dynamicAnchor"),
                ):
                    return schema
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


def is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def read_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def read_mapping(value: Any) -> JsonObject:
    return value if isinstance(value, Mapping) else {}


_COMBINATORS = ("allOf", "anyOf", "oneOf")
_BRANCHES = ("then", "else")
_EXPLICIT = ("additionalProperties", "unevaluatedProperties", "patternProperties")


def resolve(schema: Any, root: Schema) -> JsonObject:
    """The schema a chain of local `$ref`s leads to; {} for anything that cannot be followed."""
    visited: set[str] = set()
    while isinstance(schema, Mapping) and isinstance(schema.get("$ref"), str):
        reference = schema["$ref"]
        if reference in visited or not reference.startswith("#"):
            return {}
        visited.add(reference)
        siblings = {k: v for k, v in schema.items() if k != "$ref"}
        followed = follow_reference(reference, root)
        target = {} if followed is None else followed
        schema = {**target, **siblings} if isinstance(target, Mapping) and siblings else target
    return schema if isinstance(schema, Mapping) else {}


def iterate_branches(schema: Any, root: Schema, limit: int = 64) -> Iterator[JsonObject]:
    """The schema itself and every schema that may apply to the same value (allOf, anyOf, …)."""
    stack, visited = [schema], 0
    while stack and visited < limit:
        current = resolve(stack.pop(), root)
        visited += 1
        yield current
        for key in _COMBINATORS:
            if isinstance(current.get(key), list):
                stack.extend(current[key])
        stack.extend(current[key] for key in _BRANCHES if key in current)


def collect_properties(schema: Any, root: Schema) -> dict[str, Any]:
    """Name -> schema of every property that any branch knows."""
    declared: dict[str, Any] = {}
    for branch in iterate_branches(schema, root):
        properties = branch.get("properties")
        if isinstance(properties, Mapping):
            for name, value in properties.items():
                declared.setdefault(name, value)
    return declared


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
