"""Does one JSON Schema accept every value that another accepted?

Belongs here: the proof, keyword by keyword, at any depth. It is one-sided: `accepts` says yes only
where it can show it; what it cannot follow (too deep, too large, two different `if`s) is no.
Does not belong here: which fields changed and what that means (`schema_diff.py`), judging one value
(`validate.py`).

Two readings of "a value that was accepted". Of calls (`calls=True`): arguments nobody declared are
no right call, unless the object says explicitly what further arguments are; so a new optional
argument is harmless, and one that is gone is not. Of results: plain JSON Schema.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from assets.contracts.bounds import BOUNDS, bounds_hold
from assets.contracts.guards import FORMATS, SEALED, dialect_of
from assets.contracts.schemas import is_open, property_schemas
from assets.contracts.shapes import (
    NEVER,
    PROSE,
    Schema,
    alike,
    alternatives,
    as_list,
    as_mapping,
    exclusive,
    finite,
    is_never,
    kinds_of,
    matches,
    merge,
    plain_of,
    pointed_at,
    references,
    tuple_of,
)

_STEPS = 20_000
_DEPTH = 40
_ABSENT = object()


@dataclass(frozen=True)
class Scope:
    """What one object declares in all its branches; None: it takes anything."""

    before: frozenset[str] | None
    after: frozenset[str] | None


class Acceptance:
    """One comparison of two whole schemas; `accepts` is asked about their parts."""

    def __init__(
        self, was_root: Schema, now_root: Schema, *, calls: bool, steps: Iterator[int] | None = None
    ) -> None:
        self.was_root, self.now_root, self.calls = was_root, now_root, calls
        self._steps = iter(range(_STEPS)) if steps is None else steps
        self._open: set[tuple[int, int]] = set()
        self._validators: dict[str, Any] = {}
        self._roots_alike = alike(was_root, now_root)

    def accepts(
        self, was: Any, now: Any, scope: Scope | None = None, *, depth: int = 0, top: bool = False
    ) -> bool:
        """Whether all that `was` accepted is accepted by `now`. A `scope` is given for a part of an
        object (an alternative, a group of keywords) whose names the whole object declares."""
        was, now = self.before(was), self.after(now)
        if top and "type" not in was:
            was = {**was, "type": "object"}  # arguments and structured results are objects
        if is_never(was) or self.alike(was, now):
            return True
        if next(self._steps, None) is None or depth > _DEPTH:
            return False
        pair = (id(was), id(now))
        if pair in self._open:
            # A schema that holds itself further down: nothing spoke against it so far. One that is
            # its own part never comes to an end, and fits nothing.
            return scope is None
        self._open.add(pair)
        try:
            return self._accepts(was, now, scope or self.scope(was, now, top), scope, depth)
        finally:
            self._open.discard(pair)

    def _accepts(self, was: Schema, now: Schema, names: Scope, part: Scope | None, d: int) -> bool:
        values = finite(was)
        if values is not None:
            right = [value for value in values if self._fits(value, was, self.was_root)]
            return all(self._fits(value, now, self.now_root) for value in right)
        if part is None and not self._declared(was, names):
            return False
        if all(self._keyword(key, was, now, names, d) for key in now.keys() - PROSE):
            return True
        parts = list(alternatives(was))
        return bool(parts) and all(self.accepts(p, now, names, depth=d + 1) for p in parts)

    def scope(self, was: Any, now: Any, top: bool = False) -> Scope:
        """The names that two versions of one object declare."""
        if not self.calls:
            return Scope(None, None)
        return Scope(_names(was, self.was_root, top), _names(now, self.now_root, top))

    def _declared(self, was: Schema, names: Scope) -> bool:
        """No argument that was right has become unknown."""
        if names.after is None or "object" not in kinds_of(was):
            return True
        return names.before is not None and names.before <= names.after

    def _keyword(self, key: str, was: Schema, now: Schema, names: Scope, d: int) -> bool:
        """Whether this one keyword of `now` refuses nothing that `was` accepted."""
        value = now[key]
        if key == "type":
            return kinds_of(was) <= kinds_of(now)
        if key == "allOf":
            return all(self.accepts(was, part, names, depth=d + 1) for part in as_list(value))
        if key == "anyOf" or (key == "oneOf" and exclusive(as_list(value), self.after)):
            return any(self.accepts(was, part, names, depth=d + 1) for part in as_list(value))
        if key == "oneOf":
            return self._equals(was.get("oneOf"), value, d)
        if key == "not":
            if not kinds_of(was) & kinds_of(self.after(value)):
                return True
            return "not" in was and self._turned().accepts(value, was["not"], depth=d + 1)
        if key in ("if", "then", "else"):
            return self._conditional(was, now, d)
        if key in _OBJECT:
            return "object" not in kinds_of(was) or self.object_keyword(key, was, now, names, d)
        if key in _ARRAY:
            return "array" not in kinds_of(was) or self._array_keyword(key, was, now, d)
        if key == "format" and "string" not in kinds_of(was):
            return True
        held = bounds_hold(key, was, now, kinds_of(was))
        return held if held is not None else self._unknown(key, was, now)

    def _conditional(self, was: Schema, now: Schema, d: int) -> bool:
        if "if" not in now:
            return True
        if "if" not in was or not self._equal(was["if"], now["if"], d):
            return False
        return all(
            self.accepts(was.get(key, {}), now.get(key, {}), Scope(None, None), depth=d + 1)
            for key in ("then", "else")
        )

    def _turned(self) -> "Acceptance":
        """The question the other way round, as plain JSON Schema, out of the same budget."""
        return Acceptance(self.now_root, self.was_root, calls=False, steps=self._steps)

    def _equal(self, was: Any, now: Any, d: int) -> bool:
        plain = Scope(None, None)
        there = self.accepts(was, now, plain, depth=d + 1)
        return there and self._turned().accepts(now, was, plain, depth=d + 1)

    def _equals(self, was: Any, now: Any, d: int) -> bool:
        """Whether two lists hold equal schemas, in any order."""
        left = list(as_list(was))
        if len(left) != len(as_list(now)):
            return False
        for part in now:
            twin = next((i for i, one in enumerate(left) if self._equal(one, part, d)), None)
            if twin is None:
                return False
            del left[twin]
        return True

    def object_keyword(self, key: str, was: Schema, now: Schema, names: Scope, d: int) -> bool:
        """One keyword about objects."""
        value = now[key]
        if key == "required":
            return set(as_list(value)) <= set(as_list(was.get("required")))
        if key == "properties":
            return all(self.takes(name, was, now, names, d) for name in as_mapping(value))
        if key == "additionalProperties":
            return self.closes_nothing(was, now, d)
        if key == "patternProperties":
            return all(self._pattern(p, was, now, names, d) for p in as_mapping(value))
        if key == "propertyNames":
            return key in was and self.accepts(was[key], value, depth=d + 1)
        if key == "dependentRequired":
            before = as_mapping(was.get(key))
            return all(
                set(as_list(needs)) <= {*as_list(before.get(name)), *as_list(was.get("required"))}
                for name, needs in as_mapping(value).items()
            )
        return self._unknown(key, was, now)

    def takes(self, name: str, was: Schema, now: Schema, names: Scope, d: int = 0) -> bool:
        """Whether what could stand under `name` is accepted by the property `now` declares."""
        source = self._source(name, was, names)
        return source is _ABSENT or self.accepts(source, now["properties"][name], depth=d + 1)

    def _source(self, name: str, was: Schema, names: Scope) -> Any:
        """The schema of what could stand under `name`; _ABSENT when nothing could."""
        properties = as_mapping(was.get("properties"))
        if name in properties:
            return properties[name]
        if names.before is not None and name not in names.before:
            return _ABSENT
        for pattern, schema in as_mapping(was.get("patternProperties")).items():
            hit = matches(pattern, name)
            if hit is not False:
                return schema if hit else {}
        spare = was.get("additionalProperties", True)
        return _ABSENT if spare is False else spare

    def closes_nothing(self, was: Schema, now: Schema, d: int = 0) -> bool:
        """Whether `additionalProperties` refuses nothing: neither names that were declared before
        and are no more, nor those nobody declared."""
        spare, listed = now["additionalProperties"], as_mapping(now.get("properties"))
        patterns = as_mapping(now.get("patternProperties"))
        left = [was.get("additionalProperties", True)]
        for name, schema in as_mapping(was.get("properties")).items():
            if name not in listed and not any(matches(pattern, name) for pattern in patterns):
                left.append(schema)
        for pattern, schema in as_mapping(was.get("patternProperties")).items():
            if pattern not in patterns:
                left.append(schema)
        return all(self.accepts(schema, spare, depth=d + 1) for schema in left)

    def _pattern(self, pattern: str, was: Schema, now: Schema, names: Scope, d: int) -> bool:
        schema, before = now["patternProperties"][pattern], as_mapping(was.get("patternProperties"))
        if pattern in before:
            return self.accepts(before[pattern], schema, depth=d + 1)
        listed = {
            name: about
            for name, about in as_mapping(was.get("properties")).items()
            if matches(pattern, name) is not False
        }
        if not all(self.accepts(about, schema, depth=d + 1) for about in listed.values()):
            return False
        if was.get("additionalProperties") is False and not before:
            return True
        if names.before is not None:
            return not any(matches(pattern, name) is not False for name in names.before - {*listed})
        return not self.after(schema).keys() - PROSE

    def _array_keyword(self, key: str, was: Schema, now: Schema, d: int) -> bool:
        if key in ("items", "prefixItems", "additionalItems"):
            before, rest_before = tuple_of(was)
            after, rest_after = tuple_of(now)
            most = was.get("maxItems")
            places = max(len(before), len(after))
            return all(
                self.accepts(_at(before, i, rest_before), _at(after, i, rest_after), depth=d + 1)
                for i in range(min(places, most) if isinstance(most, int) else places)
            ) and self.accepts(rest_before, rest_after, depth=d + 1)
        if key == "uniqueItems":
            return now[key] is not True or was.get(key) is True
        if key == "contains" and not now.keys() & {"maxContains", "minContains"}:
            least = was.get("minContains", 1)
            held = key in was and isinstance(least, int) and least >= 1
            return held and self.accepts(was[key], now[key], depth=d + 1)
        return self._unknown(key, was, now)

    def _unknown(self, key: str, was: Schema, now: Schema) -> bool:
        """A keyword without a rule here: only the same is the same."""
        if key not in _ASSERTS:
            return True  # no validator knows it
        related = _TOGETHER.get(key, (key,))
        return all((k in was) == (k in now) for k in related) and all(
            self.alike(was[k], now[k]) for k in related if k in was
        )

    def before(self, schema: Any, depth: int = 0) -> Schema:
        """A schema of the old side with `$ref` and `allOf` folded in. What does not fit into one
        mapping is left out: the old side may only grow by it."""
        schema = plain_of(schema, self.was_root, {})
        parts = schema.get("allOf")
        if not isinstance(parts, list):
            return schema
        merged: Schema = {k: v for k, v in schema.items() if k != "allOf"}
        for part in parts[:32] if depth < 8 else ():
            merged = merge(merged, self.before(part, depth + 1))
        return merged

    def after(self, schema: Any) -> Schema:
        """A schema of the new side with `$ref` followed; one that leads nowhere accepts nothing."""
        return plain_of(schema, self.now_root, NEVER)

    def alike(self, was: Any, now: Any) -> bool:
        """The same text, meaning the same on both sides."""
        return alike(was, now) and (self._roots_alike or self._refer_alike(was))

    def _refer_alike(self, schema: Any) -> bool:
        """Whether all that a schema refers to, there and further on, is the same on both sides."""
        seen: set[str] = set()
        due = list(references(schema))
        while due:
            reference = due.pop()
            if reference in seen:
                continue
            seen.add(reference)
            target = pointed_at(reference, self.was_root)
            if not alike(target, pointed_at(reference, self.now_root)):
                return False
            due.extend(references(target))
        return True

    def _fits(self, value: Any, schema: Schema, root: Schema) -> bool:
        key = "now" if root is self.now_root else "was"
        if key not in self._validators:
            dialect, problem = dialect_of(root)
            self._validators[key] = (
                None if problem else dialect(root, registry=SEALED, format_checker=FORMATS)
            )
        validator = self._validators[key]
        if validator is None:
            return key == "was"  # not to be judged: a value that was right and may be wrong now
        try:
            return validator.evolve(schema=schema).is_valid(value)
        except Exception:  # a reference that leads nowhere, a pattern that does not compile
            return key == "was"


_OBJECT = {
    *("required", "properties", "additionalProperties", "patternProperties", "propertyNames"),
    *("dependentRequired", "dependentSchemas", "dependencies", "unevaluatedProperties"),
}
_ARRAY = {
    *("items", "prefixItems", "additionalItems", "uniqueItems", "contains"),
    *("minContains", "maxContains", "unevaluatedItems"),
}
_ASSERTS = _OBJECT | _ARRAY | {"enum", "const", "oneOf", "format", "pattern", "$dynamicRef"}
ASSERTING = {  # keywords that can refuse a value
    *(_ASSERTS | BOUNDS),
    *("type", "allOf", "anyOf", "not", "if", "then", "else"),
}
_TOGETHER = {
    **dict.fromkeys(("contains", "minContains", "maxContains"),
                    ("contains", "minContains", "maxContains")),
    "unevaluatedProperties": ("unevaluatedProperties", "properties", "patternProperties",
                              "additionalProperties", "allOf", "anyOf", "oneOf", "if", "then",
                              "else", "dependentSchemas", "not"),
    "unevaluatedItems": ("unevaluatedItems", "items", "prefixItems", "contains", "allOf", "anyOf",
                         "oneOf", "if", "then", "else", "not"),
}  # fmt: skip


def _names(schema: Any, root: Schema, top: bool) -> frozenset[str] | None:
    known = property_schemas(schema, root)
    return frozenset(known) if (top or known) and not is_open(schema, root) else None


def _at(places: list[Any], index: int, rest: Any) -> Any:
    return places[index] if index < len(places) else rest
