"""How two versions of one JSON Schema differ, keyword by keyword, as a caller feels it.

Belongs here: walking two schemas side by side. Pure functions.
Does not belong here: tools, names and renames (`diff.py`).
"""

from collections.abc import Iterable, Mapping
from typing import Any

from assets.contracts.schemas import json_type, property_schemas, required_names, resolve, types_of
from warehouse.digest import canonical_json

_UPPER = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
_LOWER = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
_EXACT = ("pattern", "format", "multipleOf", "const", "uniqueItems")
_PROSE = ("description", "title", "examples", "deprecated", "$comment")


def compare(old: Mapping[str, Any], new: Mapping[str, Any], label: str) -> dict[str, str]:
    """path -> class (breaking, compatible, wording) of every difference; {} when there is none.

    Seen by who fills the schema in: a value that was accepted and may be refused is breaking.
    Paths look like `inputSchema.properties.limit.maximum` with `label` in front.
    """
    found: dict[str, str] = {}
    _compare(old, new, old, new, label, found, 0)
    return found


def same(a: Any, b: Any) -> bool:
    """JSON equality: unlike Python's, true is not 1."""
    return a is b or canonical_json(a) == canonical_json(b)


def _compare(
    old: Any,
    new: Any,
    old_root: Mapping[str, Any],
    new_root: Mapping[str, Any],
    path: str,
    found: dict[str, str],
    depth: int,
) -> None:
    """Records path -> class for each keyword that differs between two versions of a schema."""
    was, now = resolve(old, old_root), resolve(new, new_root)
    if same(was, now) and (same(old_root, new_root) or "$ref" not in str(was)):
        return
    if depth > 12:
        found[path] = "breaking"
        return
    _compare_keywords(was, now, path, found)
    _compare_types(types_of(was, old_root), types_of(now, new_root), path, found)
    _compare_properties(was, now, old_root, new_root, path, found, depth)
    if isinstance(was.get("items"), Mapping) and isinstance(now.get("items"), Mapping):
        below = f"{path}[]"
        _compare(was["items"], now["items"], old_root, new_root, below, found, depth + 1)
    elif not same(was.get("items"), now.get("items")):
        found[f"{path}.items"] = "breaking" if "items" in now else "compatible"
    for key in ("anyOf", "oneOf", "allOf", "not", "if", "then", "else", "prefixItems"):
        if not same(was.get(key), now.get(key)):
            found[f"{path}.{key}"] = _alternatives(key, was.get(key), now.get(key))


def _compare_keywords(
    was: Mapping[str, Any], now: Mapping[str, Any], path: str, found: dict[str, str]
) -> None:
    for key in (*_UPPER, *_LOWER, *_EXACT, *_PROSE, "default", "enum", "additionalProperties"):
        before, after = was.get(key), now.get(key)
        if (key in was) == (key in now) and same(before, after):
            continue
        found[f"{path}.{key}"] = _keyword_class(key, before, after, key in was, key in now)


def _keyword_class(key: str, before: Any, after: Any, had: bool, has: bool) -> str:
    if key in _PROSE:
        return "wording"
    if key == "default":
        return "compatible"  # a right call stays right; what it means without the argument moved
    if key == "additionalProperties":
        return "compatible" if had and before is False and after is not False else "breaking"
    if not has:
        return "compatible"
    if not had:
        return "breaking"
    if key == "enum" and isinstance(before, list) and isinstance(after, list):
        return "compatible" if _keys(before) <= _keys(after) else "breaking"
    try:
        if key in _UPPER:
            return "compatible" if after >= before else "breaking"
        if key in _LOWER:
            return "compatible" if after <= before else "breaking"
    except TypeError:
        return "breaking"
    return "breaking"


def _compare_types(was: set[str], now: set[str], path: str, found: dict[str, str]) -> None:
    if was == now:
        return
    wider = now | ({"integer"} if "number" in now else set())
    accepts_all = not now or (bool(was) and was <= wider)
    found[f"{path}.type"] = "compatible" if accepts_all else "breaking"


def _compare_properties(
    was: Mapping[str, Any],
    now: Mapping[str, Any],
    old_root: Mapping[str, Any],
    new_root: Mapping[str, Any],
    path: str,
    found: dict[str, str],
    depth: int,
) -> None:
    before, after = property_schemas(was, old_root), property_schemas(now, new_root)
    needed, needs = required_names(was, old_root), required_names(now, new_root)
    for name in sorted(before.keys() | after.keys() | needed | needs):
        where = f"{path}.properties.{name}"
        if name in before and name not in after:
            found[where] = "breaking"
        elif name in after and name not in before:
            found[where] = "breaking" if name in needs else "compatible"
        else:
            if name in needs and name not in needed:
                found[f"{where}.required"] = "breaking"
            elif name in needed and name not in needs:
                found[f"{where}.required"] = "compatible"
            if name in before:
                _compare(before[name], after[name], old_root, new_root, where, found, depth + 1)


def _alternatives(key: str, was: Any, now: Any) -> str:
    """More alternatives accept more; anything else about combinators may refuse a right call."""
    if now is None:
        return "compatible"
    if key == "anyOf" and isinstance(was, list) and isinstance(now, list):
        return "compatible" if _keys(was) <= _keys(now) else "breaking"
    return "breaking"


def _keys(values: Iterable[Any]) -> set[bytes]:
    return {json_type(value).encode() + canonical_json(value) for value in values}
