"""Places within a call: the value there, the schema there, and how a place is written."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from assets.contracts.schema.reading import collect_properties, iterate_branches, name_json_type
from warehouse.json_types import JsonObject, Schema
from warehouse.sanitize.escape import shorten_text

Place = Sequence[str | int]
ABSENT = object()
_CHOICES = 1000  # of one schema that are looked at

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_\-]*")
_BOUNDS = {
    "minimum": "at least {}",
    "exclusiveMinimum": "more than {}",
    "maximum": "at most {}",
    "exclusiveMaximum": "less than {}",
    "multipleOf": "a multiple of {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
    "pattern": "matching {}",
}


def format_place(at: Place) -> str:
    """`$.filters[0].name`; a name that is no plain word stands in brackets."""
    text = "$"
    for part in at:
        if isinstance(part, int):
            text += f"[{part}]"
        elif _PLAIN.fullmatch(part):
            text += f".{part}"
        else:
            text += f"[{json.dumps(part[:80])}]"
    return text


def find_value(arguments: Any, at: Place) -> Any:
    """The value at a place, or ABSENT."""
    for part in at:
        if isinstance(arguments, Mapping):
            arguments = arguments.get(part, ABSENT)  # type: ignore[call-overload]
        elif isinstance(arguments, list) and isinstance(part, int) and part < len(arguments):
            arguments = arguments[part]
        else:
            return ABSENT
    return arguments


def find_schema(root: Schema, at: Place) -> Any:
    """The schema of a place; {} where nothing is said about it."""
    schema: Any = root
    for part in at:
        if isinstance(part, int):
            schema = _find_item(schema, root, part)
        else:
            schema = collect_properties(schema, root).get(part, {})
    return schema


def _find_item(schema: Any, root: Schema, place: int) -> Any:
    for branch in iterate_branches(schema, root):
        first, rest = branch.get("prefixItems"), branch.get("items")
        if isinstance(first, list) and place < len(first):
            return first[place]
        if isinstance(rest, list) and place < len(rest):
            return rest[place]
        if isinstance(rest, Mapping):
            return rest
    return {}


def find_types(schema: Any, root: Schema) -> set[str]:
    """The types that some branch of a schema names; none: it does not say."""
    found: set[str] = set()
    for branch in iterate_branches(schema, root):
        named = branch.get("type")
        found |= {named} if isinstance(named, str) else set(named or ())
        if "type" not in branch and isinstance(branch.get("properties"), Mapping):
            found.add("object")
    return found or {name_json_type(value) for value in find_choices(schema, root)}


def find_choices(schema: Any, root: Schema) -> list[Any]:
    """The values that `enum` and `const` of any branch allow, in their order."""
    found: dict[str, Any] = {}
    for branch in iterate_branches(schema, root):
        named = branch.get("enum")
        more = [branch["const"]] if "const" in branch else []
        for value in [*(named[:_CHOICES] if isinstance(named, list) else []), *more]:
            found.setdefault(json.dumps(value, sort_keys=True), value)
    return list(found.values())


def is_required(root: Schema, at: Place) -> bool:
    """Whether some branch of the object around a place requires it; an item always is."""
    if not at or isinstance(at[-1], int):
        return True
    around = find_schema(root, at[:-1])
    return any(
        at[-1] in (branch.get("required") or ()) for branch in iterate_branches(around, root)
    )


def find_declared(root: Schema, at: Place) -> list[str]:
    """The names that the object at a place declares."""
    return list(collect_properties(find_schema(root, at), root))


def is_closed(root: Schema, at: Place) -> bool:
    """Whether the object at a place says `additionalProperties: false`."""
    around = find_schema(root, at)
    return any(
        branch.get("additionalProperties") is False for branch in iterate_branches(around, root)
    )


def describe_expected(schema: Any, root: Schema) -> str:
    """What a schema asks for, in one line."""
    choices = find_choices(schema, root)
    if choices:
        listed = ", ".join(format_value(value, 40) for value in choices[:12])
        more = f" and {len(choices) - 12} more" if len(choices) > 12 else ""
        return f"one of {listed}{more}"
    types = sorted(find_types(schema, root))
    parts = [" or ".join(types) or "any value"]
    if "array" in types:
        inner = sorted(find_types(_find_item(schema, root, 0), root))
        parts = [parts[0] + (f" of {' or '.join(inner)}" if inner else "")]
    for branch in iterate_branches(schema, root):
        if isinstance(branch.get("format"), str):
            parts.append(f"in the format {branch['format'][:40]}")
        for key, words in _BOUNDS.items():
            if key in branch and isinstance(branch[key], int | float | str):
                parts.append(words.format(str(branch[key])[:80]))
    return ", ".join(dict.fromkeys(parts))[:300]


def format_value(value: Any, limit: int = 80) -> str:
    """A value as JSON, cut."""
    if isinstance(value, str | list | dict) and len(value) > 4 * limit:
        value = value[: 4 * limit] if isinstance(value, str | list) else dict(_format_some(value))
    text = json.dumps(value, ensure_ascii=False, default=str)
    return shorten_text(text, limit)


def _format_some(value: JsonObject) -> list[tuple[str, Any]]:
    return [(str(name), value[name]) for name, _ in zip(value, range(40), strict=False)]
