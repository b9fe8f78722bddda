"""Cleaning JSON Schemas, JSON values and prose of the noise that no reader can act on."""

import math
import re
from collections.abc import Mapping
from typing import Any

# Keywords whose value is a schema, a list of schemas, or a mapping from names to schemas. Only
# there is `$schema` noise and `description` prose: below `properties` both may be argument names.
_SPARE = {"additionalProperties", "additionalItems", "unevaluatedProperties", "unevaluatedItems"}
_ONE = _SPARE | {
    *("items", "contains", "propertyNames", "not", "if", "then", "else", "contentSchema"),
}
_MANY = {"allOf", "anyOf", "oneOf", "prefixItems", "items"}
_NAMED = {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"}
_LARGEST_EXACT = 2**53 - 1
_MAX_DEPTH = 64
_NEVER = {"not": {}}
_BLANKS = re.compile(r"(?<=[^ \t])[ \t]+")


class Misfit(Exception):
    """A value without canonical form; `path` grows while it passes up."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        self.path = ""


def normalise_schema(node: Any, depth: int) -> Any:
    """A copy of one schema without noise; booleans are schemas too."""
    if not isinstance(node, Mapping):
        return (
            ({} if node else dict(_NEVER))
            if isinstance(node, bool)
            else normalise_value(node, depth)
        )
    _check_depth(depth)
    out: dict[str, Any] = {}
    for raw, value in node.items():
        if raw == "$schema":
            continue
        key = normalise_string(raw) if isinstance(raw, str) else str(raw)
        try:
            made = _normalise_keyword(key, value, depth)
        except Misfit as error:
            error.path = f".{key}{error.path}"
            raise
        if made is not None or value is None:
            out[key] = made
    return out


def _normalise_keyword(key: str, value: Any, depth: int) -> Any:
    """The canonical value of one keyword; None drops it."""
    if key in _NAMED and isinstance(value, Mapping):
        return {normalise_string(str(k)): normalise_schema(v, depth + 2) for k, v in value.items()}
    if key in _MANY and isinstance(value, list):
        return [normalise_schema(part, depth + 2) for part in value]
    if key in _ONE:
        return _unwrap_single(key, normalise_schema(value, depth + 1))
    if key in ("description", "title") and isinstance(value, str):
        return normalise_prose(value) or None
    if key == "required" and _are_all_strings(value):
        return sorted({normalise_string(v) for v in value}) or None
    if key == "type" and value and _are_all_strings(value):
        kinds = sorted({normalise_string(v) for v in value})
        return kinds if len(kinds) > 1 else kinds[0]
    if key in ("dependentRequired", "dependencies") and isinstance(value, Mapping):
        return {
            normalise_string(str(k)): _normalise_dependency(v, depth + 2) for k, v in value.items()
        }
    return normalise_value(value, depth + 1)


def _unwrap_single(key: str, made: Any) -> Any:
    """`{}` and `{"not": {}}` as booleans where those are the usual form."""
    if made == {} and key in _SPARE:
        return True
    return False if made == _NEVER and (key in _SPARE or key == "items") else made


def _normalise_dependency(value: Any, depth: int) -> Any:
    return (
        sorted({normalise_string(v) for v in value})
        if _are_all_strings(value)
        else normalise_schema(value, depth)
    )


def normalise_value(value: Any, depth: int) -> Any:
    if isinstance(value, str):
        return normalise_string(value)
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return value if abs(value) <= _LARGEST_EXACT else _round_double(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise Misfit(f"{value} is not a JSON number")
        return int(value) if value.is_integer() and abs(value) <= _LARGEST_EXACT else value
    _check_depth(depth)
    if isinstance(value, Mapping):
        return {normalise_string(str(k)): normalise_value(v, depth + 1) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [normalise_value(v, depth + 1) for v in value]
    raise Misfit(f"{type(value).__name__} is not a JSON value")


def _round_double(value: int) -> float:
    try:
        return float(value)
    except OverflowError:
        raise Misfit("an integer too large for any JSON reader") from None


def _check_depth(depth: int) -> None:
    if depth > _MAX_DEPTH:
        raise Misfit(f"nested deeper than {_MAX_DEPTH} levels")


def normalise_string(text: str) -> str:
    """Lone surrogates cannot be written as UTF-8; they become U+FFFD."""
    if text.isascii():
        return text
    return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")


def normalise_prose(text: str) -> str:
    text = normalise_string(text).replace("\r\n", "\n").replace("\r", "\n").strip(" \t\n")
    if "\n" not in text:
        return _BLANKS.sub(" ", text)
    first, *rest = [_BLANKS.sub(" ", line.rstrip(" \t")) for line in text.split("\n")]
    margin = _find_margin([line for line in rest if line])
    lines = [first]
    for line in rest:
        if line or lines[-1]:
            lines.append(line[margin:])
    return "\n".join(lines)


def _find_margin(lines: list[str]) -> int:
    """How much white space all lines begin with, blank for blank."""
    least, most = min(lines), max(lines)  # all others lie between, so share what these two share
    for place, (one, other) in enumerate(zip(least, most, strict=False)):
        if one != other or one not in " \t":
            return place
    return 0


def is_named_within(schema: Any) -> bool:
    """Whether some `$ref` is not of the form `#…`, so that it may rest on the root's `$id`."""
    stack = [schema]
    while stack:
        node = stack.pop()
        if isinstance(node, Mapping):
            target = node.get("$ref")
            if isinstance(target, str) and not target.startswith("#"):
                return True
            stack.extend(node.values())
        elif isinstance(node, list):
            stack.extend(node)
    return False


def _are_all_strings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(v, str) for v in value)
