"""Does one scalar keyword of a schema (a bound, a pattern) refuse anything new?"""

import math
from typing import Any, TypeGuard

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
    if not _is_number(after) or before == after or (after == 1 and "number" not in kinds):
        return True
    whole = type(before) is int and type(after) is int and after > 0
    return whole and before != 0 and before % after == 0


def _find_limit(key: str, schema: Schema, kinds: frozenset[str]) -> tuple[float, bool]:
    """The limit of `key`'s end and whether it is itself excluded, comparable by strictness: of an
    upper one the negative."""
    sign = -1 if "ax" in key else 1
    if _KINDS[key] is not _NUMBERS:
        least = schema.get(key)
        return (sign * least if _is_number(least) else 0 if sign > 0 else -math.inf), False
    end = "Minimum" if sign > 0 else "Maximum"
    limit, open_at = schema.get(end.lower()), schema.get(f"exclusive{end}")
    found = [(-math.inf, False)]
    found += [(sign * limit, open_at is True)] if _is_number(limit) else []
    found += [(sign * open_at, True)] if _is_number(open_at) else []
    bound, excluded = max(found)
    if "number" not in kinds and abs(bound) < 2**53:  # integers: the first one that is allowed
        return (math.floor(bound) + 1 if excluded else math.ceil(bound)), False
    return bound, excluded


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
