"""Does one JSON Schema accept every value that another accepted?

Two readings of "a value that was accepted". Of calls (`calls=True`): arguments nobody declared are
no right call, unless the object says explicitly what further arguments are; so a new optional
argument is harmless, and one that is gone is not. Of results: plain JSON Schema.
"""

from collections.abc import Iterator
from typing import Any

from assets.contracts.schema.bounds import BOUNDS, bounds_hold
from assets.contracts.schema.containers import ARRAY, OBJECT, Scope, array_keyword, object_keyword
from assets.contracts.schema.reading import is_open, property_schemas
from assets.contracts.schema.safe_validation import FORMATS, SEALED, dialect_of
from assets.contracts.schema.shapes import (
    NEVER,
    PROSE,
    Schema,
    alike,
    alternatives,
    as_list,
    exclusive,
    finite,
    is_never,
    kinds_of,
    merge,
    plain_of,
    pointed_at,
    references,
)
from assets.contracts.schema.step_budget import TooMuchWork, spend

_STEPS = 20_000
_DEPTH = 40


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
        spend()
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
        if key in OBJECT:
            return "object" not in kinds_of(was) or object_keyword(self, key, was, now, names, d)
        if key in ARRAY:
            return "array" not in kinds_of(was) or array_keyword(self, key, was, now, d)
        if key == "format" and "string" not in kinds_of(was):
            return True
        held = bounds_hold(key, was, now, kinds_of(was))
        return held if held is not None else self.unchanged(key, was, now)

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

    def unchanged(self, key: str, was: Schema, now: Schema) -> bool:
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
            spend()
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
        except TooMuchWork:
            raise
        except Exception:  # a reference that leads nowhere, a pattern that does not compile
            return key == "was"


_ASSERTS = OBJECT | ARRAY | {"enum", "const", "oneOf", "format", "pattern", "$dynamicRef"}
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
