"""Does one scalar keyword of a schema (a bound, a pattern, an enum) refuse anything new?"""

import math
from collections.abc import Mapping
from typing import Any

Schema = Mapping[str, Any]
_NUMBERS = frozenset({"integer", "number"})
_TEXTS, _ARRAYS, _OBJECTS = frozenset({"string"}), frozenset({"array"}), frozenset({"object"})
_KINDS = {
    **dict.fromkeys(("minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"), _NUMBERS),
    "multipleOf": _NUMBERS,
    **dict.fromkeys(("minLength", "maxLength", "pattern"), _TEXTS),
    **dict.fromkeys(("minItems", "maxItems"), _ARRAYS),
    **dict.fromkeys(("minProperties", "maxProperties"), _OBJECTS),
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
    if key in ("minimum", "exclusiveMinimum"):
        return _find_lower(now, kinds) <= _find_lower(was, kinds)
    if key in ("maximum", "exclusiveMaximum"):
        return _find_upper(now, kinds) <= _find_upper(was, kinds)
    if key == "pattern":
        return now[key] in _EVERYTHING or now[key] == was.get(key)
    after, before = _read_number(now[key]), _read_number(was.get(key))
    if after is None:
        return True
    if key == "multipleOf":
        return _check_multiple(before, after, kinds)
    if key.startswith("min"):
        return after <= (before or 0)
    return before is not None and before <= after


def _check_multiple(before: float | None, after: float, kinds: frozenset[str]) -> bool:
    if after == 1 and "number" not in kinds:
        return True
    whole = isinstance(before, int) and isinstance(after, int) and after > 0
    return before == after or (whole and bool(before) and before % after == 0)


def _find_lower(schema: Schema, kinds: frozenset[str]) -> tuple[float, bool]:
    """The lower bound and whether it is itself excluded, comparable by strictness."""
    least, open_at = _read_number(schema.get("minimum")), schema.get("exclusiveMinimum")
    found = (-math.inf, False) if least is None else (least, open_at is True)
    limit = _read_number(open_at)
    found = found if limit is None else max(found, (limit, True))
    if "number" not in kinds and abs(found[0]) < 2**53:  # integers: the first one that is allowed
        found = ((math.floor(found[0]) + 1) if found[1] else math.ceil(found[0]), False)
    return found


def _find_upper(schema: Schema, kinds: frozenset[str]) -> tuple[float, bool]:
    """The upper bound, mirrored: a larger pair refuses more."""
    turned = {
        "minimum": _negate_number(schema.get("maximum")),
        "exclusiveMinimum": _negate_number(schema.get("exclusiveMaximum")),
    }
    return _find_lower(turned, kinds)


def _negate_number(value: Any) -> Any:
    number = _read_number(value)
    return value if number is None else -number


def _read_number(value: Any) -> float | int | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None
