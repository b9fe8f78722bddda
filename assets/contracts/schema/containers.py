"""The keywords about objects and arrays: does each refuse anything that was accepted?"""

from dataclasses import dataclass
from typing import Any, Protocol

from assets.contracts.schema.shapes import PROSE, Schema, as_list, as_mapping, matches, tuple_of

OBJECT = {
    *("required", "properties", "additionalProperties", "patternProperties", "propertyNames"),
    *("dependentRequired", "dependentSchemas", "dependencies", "unevaluatedProperties"),
}
ARRAY = {
    *("items", "prefixItems", "additionalItems", "uniqueItems", "contains"),
    *("minContains", "maxContains", "unevaluatedItems"),
}
_ABSENT = object()


@dataclass(frozen=True)
class Scope:
    """What one object declares in all its branches; None: it takes anything."""

    before: frozenset[str] | None
    after: frozenset[str] | None


class Prover(Protocol):
    """Who answers for the schemas below; see `Acceptance`."""

    def accepts(
        self, was: Any, now: Any, scope: Scope | None = None, *, depth: int = 0
    ) -> bool: ...

    def after(self, schema: Any) -> Schema: ...

    def unchanged(self, key: str, was: Schema, now: Schema) -> bool: ...


def object_keyword(proof: Prover, key: str, was: Schema, now: Schema, names: Scope, d: int) -> bool:
    """One keyword about objects."""
    value = now[key]
    if key == "required":
        return set(as_list(value)) <= set(as_list(was.get("required")))
    if key == "properties":
        return all(takes(proof, name, was, now, names, d) for name in as_mapping(value))
    if key == "additionalProperties":
        return closes_nothing(proof, was, now, d)
    if key == "patternProperties":
        return all(_pattern(proof, p, was, now, names, d) for p in as_mapping(value))
    if key == "propertyNames":
        return key in was and proof.accepts(was[key], value, depth=d + 1)
    if key == "dependentRequired":
        before = as_mapping(was.get(key))
        return all(
            set(as_list(needs)) <= {*as_list(before.get(name)), *as_list(was.get("required"))}
            for name, needs in as_mapping(value).items()
        )
    return proof.unchanged(key, was, now)


def takes(proof: Prover, name: str, was: Schema, now: Schema, names: Scope, d: int = 0) -> bool:
    """Whether what could stand under `name` is accepted by the property `now` declares."""
    source = _source(proof, name, was, names)
    return source is _ABSENT or proof.accepts(source, now["properties"][name], depth=d + 1)


def _source(proof: Prover, name: str, was: Schema, names: Scope) -> Any:
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


def closes_nothing(proof: Prover, was: Schema, now: Schema, d: int = 0) -> bool:
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
    return all(proof.accepts(schema, spare, depth=d + 1) for schema in left)


def _pattern(proof: Prover, pattern: str, was: Schema, now: Schema, names: Scope, d: int) -> bool:
    schema, before = now["patternProperties"][pattern], as_mapping(was.get("patternProperties"))
    if pattern in before:
        return proof.accepts(before[pattern], schema, depth=d + 1)
    listed = {
        name: about
        for name, about in as_mapping(was.get("properties")).items()
        if matches(pattern, name) is not False
    }
    if not all(proof.accepts(about, schema, depth=d + 1) for about in listed.values()):
        return False
    if was.get("additionalProperties") is False and not before:
        return True
    if names.before is not None:
        return not any(matches(pattern, name) is not False for name in names.before - {*listed})
    return not proof.after(schema).keys() - PROSE


def array_keyword(proof: Prover, key: str, was: Schema, now: Schema, d: int) -> bool:
    if key in ("items", "prefixItems", "additionalItems"):
        before, rest_before = tuple_of(was)
        after, rest_after = tuple_of(now)
        most = was.get("maxItems")
        places = max(len(before), len(after))
        return all(
            proof.accepts(_at(before, i, rest_before), _at(after, i, rest_after), depth=d + 1)
            for i in range(min(places, most) if isinstance(most, int) else places)
        ) and proof.accepts(rest_before, rest_after, depth=d + 1)
    if key == "uniqueItems":
        return now[key] is not True or was.get(key) is True
    if key == "contains" and not now.keys() & {"maxContains", "minContains"}:
        least = was.get("minContains", 1)
        held = key in was and isinstance(least, int) and least >= 1
        return held and proof.accepts(was[key], now[key], depth=d + 1)
    return proof.unchanged(key, was, now)


def _at(places: list[Any], index: int, rest: Any) -> Any:
    return places[index] if index < len(places) else rest
