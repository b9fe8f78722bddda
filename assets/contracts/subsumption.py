"""Does one JSON Schema accept every value that another accepted?

This is proved for what tools use: types, listed values, bounds, `required`, `properties`, `items`,
`additionalProperties`, `anyOf`, `allOf`, local references. Any other keyword has to stay as it was.
What cannot be proved counts as refused.

There are two readings of "a value that was accepted". Of calls (`calls=True`): undeclared arguments
are flaws unless the object says explicitly what further arguments are, so a new optional argument
is harmless, and a removed one is not. Of results: plain JSON Schema.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from assets.contracts.schema_shapes import (
    NEVER,
    TooMuchWork,
    collect_properties,
    equals_json,
    is_never,
    is_number,
    is_open,
    iterate_alternatives,
    iterate_references,
    list_finite_values,
    list_kinds,
    merge_schemas,
    read_list,
    read_mapping,
    resolve_plain,
    spend_steps,
)
from assets.contracts.validate import FORMATS, SEALED, find_dialect
from warehouse.json_types import Schema

_NUMBERS = frozenset({"integer", "number"})
_KINDS = {
    **dict.fromkeys(("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"), _NUMBERS),
    "multipleOf": _NUMBERS,
    **dict.fromkeys(("minLength", "maxLength", "pattern"), frozenset({"string"})),
    **dict.fromkeys(("minItems", "maxItems"), frozenset({"array"})),
    **dict.fromkeys(("minProperties", "maxProperties"), frozenset({"object"})),
}
BOUNDS = frozenset(_KINDS)
_EVERYTHING = ("", ".*")  # patterns that any text matches


def check_bounds(key: str, was: Schema, now: Schema, kinds: frozenset[str]) -> bool | None:
    """Whether `key` of `now` refuses nothing that `was` (of the types `kinds`) accepted; None for a
    keyword that is none of these."""
    if key not in _KINDS:
        return None
    if not kinds & _KINDS[key]:
        return True  # it speaks of other types
    if key == "pattern":
        return now[key] in _EVERYTHING or now[key] == was.get(key)
    if key == "multipleOf":
        return _is_multiple_of(was.get(key), now[key], kinds)
    return _find_limit(key, now, kinds) <= _find_limit(key, was, kinds)


def _is_multiple_of(before: Any, after: Any, kinds: frozenset[str]) -> bool:
    if not is_number(after) or before == after or (after == 1 and "number" not in kinds):
        return True
    whole = type(before) is int and type(after) is int and after > 0
    return whole and before != 0 and before % after == 0


def _find_limit(key: str, schema: Schema, kinds: frozenset[str]) -> tuple[float, bool]:
    """The limit of `key`'s end and whether it is itself excluded, comparable by strictness: of an
    upper one the negative."""
    sign = -1 if "ax" in key else 1
    if _KINDS[key] is not _NUMBERS:
        least = schema.get(key)
        return (sign * least if is_number(least) else 0 if sign > 0 else -math.inf), False
    end = "Minimum" if sign > 0 else "Maximum"
    limit, open_at = schema.get(end.lower()), schema.get(f"exclusive{end}")
    limits = [(-math.inf, False)]
    limits += [(sign * limit, open_at is True)] if is_number(limit) else []
    limits += [(sign * open_at, True)] if is_number(open_at) else []
    bound, excluded = max(limits)
    if "number" not in kinds and abs(bound) < 2**53:  # integers: the first one that is allowed
        return (math.floor(bound) + 1 if excluded else math.ceil(bound)), False
    return bound, excluded


_STEPS = 20_000
_DEPTH = 40
_OBJECT = {
    *("required", "properties", "additionalProperties", "patternProperties", "propertyNames"),
    *("dependentRequired", "dependentSchemas", "dependencies", "unevaluatedProperties"),
}
_ARRAY = {
    *("items", "prefixItems", "additionalItems", "uniqueItems", "contains"),
    *("minContains", "maxContains", "unevaluatedItems"),
}
_OF_KIND = {"object": _OBJECT, "array": _ARRAY, "string": {"format"}}
GROUPS = (  # keywords that mean something only beside each other
    ("minimum", "exclusiveMinimum"),
    ("maximum", "exclusiveMaximum"),
    ("contains", "minContains", "maxContains"),
    ("if", "then", "else"),
    ("items", "prefixItems", "additionalItems"),
)
ASSERTING = {  # keywords that can refuse a value
    *(_OBJECT | _ARRAY | BOUNDS),
    *("type", "enum", "const", "format", "$dynamicRef"),
    *("allOf", "anyOf", "oneOf", "not", "if", "then", "else"),
}


@dataclass(frozen=True)
class NameScope:
    """The names that one object declares in all its branches; None: it takes anything."""

    before: frozenset[str] | None
    after: frozenset[str] | None


class AcceptanceProof:
    """One comparison of two whole schemas; `accepts` is asked about their parts."""

    def __init__(self, was_root: Schema, now_root: Schema, *, calls: bool) -> None:
        self.was_root, self.now_root, self.calls = was_root, now_root, calls
        self._left = _STEPS
        self._open: set[tuple[int, int]] = set()
        self._roots_alike = equals_json(was_root, now_root)

    def accepts(
        self,
        was: Any,
        now: Any,
        scope: NameScope | None = None,
        *,
        depth: int = 0,
        top: bool = False,
    ) -> bool:
        """Whether all that `was` accepted is accepted by `now`. A `scope` is given for a part of an
        object (an alternative, a group of keywords) whose names the whole object declares."""
        spend_steps()
        was, now = self.fold_before(was), self.follow_after(now)
        if top and "type" not in was:
            was = {**was, "type": "object"}  # arguments and structured results are objects
        if is_never(was) or self.is_alike(was, now):
            return True
        self._left -= 1
        if self._left < 0 or depth > _DEPTH:
            return False
        pair = (id(was), id(now))
        if pair in self._open:
            # A schema that holds itself further down: nothing spoke against it so far. One that is
            # its own part never comes to an end, and fits nothing.
            return scope is None
        self._open.add(pair)
        try:
            names = scope or self.declare_scope(was, now, top)
            d = depth + 1
            values = list_finite_values(was)
            if values is not None:
                right = [value for value in values if self._fits_value(value, was, old=True)]
                return all(self._fits_value(value, now, old=False) for value in right)
            if scope is None and not self._is_declared(was, names):
                return False
            if all(
                self._accepts_keyword(key, was, now, names, d) for key in now.keys() & ASSERTING
            ):
                return True
            branches = list(iterate_alternatives(was))
            return bool(branches) and all(self.accepts(p, now, names, depth=d) for p in branches)
        finally:
            self._open.discard(pair)

    def declare_scope(self, was: Any, now: Any, top: bool = False) -> NameScope:
        """The names that two versions of one object declare."""
        if not self.calls:
            return NameScope(None, None)
        return NameScope(_list_names(was, self.was_root, top), _list_names(now, self.now_root, top))

    def _is_declared(self, was: Schema, names: NameScope) -> bool:
        """No argument that was right has become unknown."""
        if names.after is None or "object" not in list_kinds(was):
            return True
        return names.before is not None and names.before <= names.after

    def _accepts_keyword(
        self, key: str, was: Schema, now: Schema, names: NameScope, d: int
    ) -> bool:
        """Whether this one keyword of `now` refuses nothing that `was` accepted."""
        kinds = list_kinds(was)
        if any(key in keys and kind not in kinds for kind, keys in _OF_KIND.items()):
            return True  # it speaks of other types
        match key:
            case "type":
                return kinds <= list_kinds(now)
            case "required":
                return set(read_list(now[key])) <= set(read_list(was.get(key)))
            case "properties":
                return all(self.takes(name, was, now, names, d) for name in read_mapping(now[key]))
            case "additionalProperties":
                # Refuses neither names that were declared before and are no more, nor those nobody
                # declared.
                spare, declared = now["additionalProperties"], read_mapping(now.get("properties"))
                if spare is not True and not self._is_unchanged("patternProperties", was, now):
                    return False
                gone = [part for name, part in read_mapping(was.get("properties")).items()
                        if name not in declared]  # fmt: skip
                return all(self.accepts(part, spare, depth=d)
                           for part in (was.get("additionalProperties", True), *gone))  # fmt: skip
            case "unevaluatedProperties" | "unevaluatedItems":
                return now[key] is True
            case "uniqueItems":
                return now[key] is not True or was.get(key) is True
            case "items" if _holds_plain_items(was) and _holds_plain_items(now):
                return self.accepts(was.get(key, True), now[key], depth=d)
            case "allOf" | "anyOf":
                verdicts = (self.accepts(was, p, names, depth=d) for p in read_list(now[key]))
                if all(verdicts) if key == "allOf" else any(verdicts):
                    return True
                return key == "anyOf" and self._is_unchanged(key, was, now)
        verdict = check_bounds(key, was, now, kinds)
        return verdict if verdict is not None else self._is_unchanged(key, was, now)

    def takes(self, name: str, was: Schema, now: Schema, names: NameScope, depth: int = 0) -> bool:
        """Whether what could stand under `name` is accepted by the property `now` declares."""
        source = read_mapping(was.get("properties")).get(name)
        if source is None:
            if names.before is not None and name not in names.before:
                return True  # nobody could give it
            source = True if "patternProperties" in was else was.get("additionalProperties", True)
        return source is False or self.accepts(source, now["properties"][name], depth=depth)

    def _is_unchanged(self, key: str, was: Schema, now: Schema) -> bool:
        """Whether a keyword, with those that mean something only beside it, is as it was."""
        group = next((group for group in GROUPS if key in group), (key,))
        return all(
            (keyword in was) == (keyword in now)
            and self.is_alike(was.get(keyword), now.get(keyword))
            for keyword in group
        )

    def fold_before(self, schema: Any, depth: int = 0) -> Schema:
        """A schema of the old side with `$ref` and `allOf` folded in. What does not fit into one
        mapping is left out: the old side may only grow by it."""
        schema = resolve_plain(schema, self.was_root, {})
        branches = schema.get("allOf")
        if not isinstance(branches, list):
            return schema
        merged: Schema = {k: v for k, v in schema.items() if k != "allOf"}
        for part in branches[:32] if depth < 8 else ():
            spend_steps()
            merged = merge_schemas(merged, self.fold_before(part, depth + 1))
        return merged

    def follow_after(self, schema: Any) -> Schema:
        """A schema of the new side with `$ref` followed; one that leads nowhere accepts nothing."""
        return resolve_plain(schema, self.now_root, NEVER)

    def is_alike(self, was: Any, now: Any) -> bool:
        """The same text, meaning the same on both sides."""
        return equals_json(was, now) and (
            self._roots_alike or next(iterate_references(was), None) is None
        )

    def _fits_value(self, value: Any, schema: Schema, *, old: bool) -> bool:
        """Whether a value fits. Where that cannot be judged (a reference that leads nowhere, a
        pattern that does not compile) it was right and may be wrong now."""
        if (validator := self._validators[old]) is None:
            return old
        try:
            return validator.evolve(schema=schema).is_valid(value)
        except TooMuchWork:
            raise
        except Exception:
            return old

    @cached_property
    def _validators(self) -> tuple[Any, Any]:
        """Of the new side and the old one; None where the root is no schema."""
        dialects = [(root, *find_dialect(root)) for root in (self.now_root, self.was_root)]
        now, was = [None if problem else dialect(root, registry=SEALED, format_checker=FORMATS)
                    for root, dialect, problem in dialects]  # fmt: skip
        return now, was


def _holds_plain_items(schema: Schema) -> bool:
    return "prefixItems" not in schema and not isinstance(schema.get("items"), list)


def _list_names(schema: Any, root: Schema, top: bool) -> frozenset[str] | None:
    properties = collect_properties(schema, root)
    return frozenset(properties) if (top or properties) and not is_open(schema, root) else None
