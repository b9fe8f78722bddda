"""One call read through its tool's schema: normal forms, equal for equal values."""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from operator import itemgetter
from typing import Any

from assets.contracts.schema_shapes import (
    TooMuchWork,
    equals_json,
    follow_reference,
    limit_steps,
    matches_pattern,
    name_json_type,
    read_list,
    read_mapping,
    spend_steps,
)
from assets.contracts.schema_shapes import read_default as any_default_of
from warehouse.json_types import JsonObject, Schema

Parts = Sequence[Schema]
_JOINTS = frozenset(
    ("$ref", "allOf", "anyOf", "oneOf", "if", "dependentSchemas", "dependencies", "$dynamicRef")
)
_MANY = (dict, list, tuple, Mapping)
_MAX_PEEK = 4  # how deep one alternative is looked into when it is told from another


def is_plain(schema: Any) -> bool:
    """Whether a schema speaks for itself alone: no alternatives, references or conditions."""
    return isinstance(schema, dict) and _JOINTS.isdisjoint(schema)


def is_simple(root: Schema, name: str, value: Any) -> bool:
    """Whether an argument is read in a few steps, whatever its schema says."""
    properties = root.get("properties")
    if not isinstance(properties, dict) or not is_plain(root):
        return False
    about = properties.get(name)
    default = about.get("default") if isinstance(about, dict) else None
    return is_plain(about) and not isinstance(value, _MANY) and not isinstance(default, _MANY)


def collect_parts(schema: Any, root: Schema, value: Any) -> Parts:
    """Every schema that speaks about this value, the outermost first.

    Of `anyOf` and `oneOf` those alternatives that the value fits by type, listed values, required
    names and the constants of its properties; where it fits none, all of them.
    """
    if not isinstance(schema, Mapping):
        return ()
    if _JOINTS.isdisjoint(schema):
        spend_steps()
        return (schema,)
    declared: list[Schema] = []
    waiting, visited = [schema], set()
    while waiting:
        current = waiting.pop(0)
        spend_steps()
        if not isinstance(current, Mapping) or id(current) in visited:
            continue
        visited.add(id(current))
        declared.append(current)
        waiting.extend(_resolve_next(current, root, value))
    return declared


def _resolve_next(schema: Schema, root: Schema, value: Any) -> list[Any]:
    """The schemas one step from this one that hold for the value too."""
    following: list[Any] = []
    reference = schema.get("$ref", schema.get("$dynamicRef"))
    if isinstance(reference, str):
        following.append(follow_reference(reference, root))
    following.extend(read_list(schema.get("allOf")))
    for key in ("anyOf", "oneOf"):
        alternatives = read_list(schema.get(key))
        following.extend(
            [candidate for candidate in alternatives if _fits_value(candidate, root, value)]
            or alternatives
        )
    if "if" in schema:
        branch = "then" if _fits_value(schema["if"], root, value) else "else"
        following.append(schema.get(branch))
    if isinstance(value, Mapping):
        for key in ("dependentSchemas", "dependencies"):
            dependents = read_mapping(schema.get(key))
            following.extend(candidate for name, candidate in dependents.items() if name in value)
    return following


def _fits_value(schema: Any, root: Schema, value: Any, depth: int = 0) -> bool:
    """Whether nothing that can be seen at a glance speaks against the value."""
    spend_steps()
    if isinstance(schema, bool):
        return schema
    if not isinstance(schema, Mapping) or depth > _MAX_PEEK:
        return True
    if not (_fits_type(schema, value) and _fits_listed(schema, value)):
        return False
    if isinstance(schema.get("$ref"), str) and not _fits_value(
        follow_reference(schema["$ref"], root), root, value, depth + 1
    ):
        return False
    if not all(
        _fits_value(candidate, root, value, depth + 1)
        for candidate in read_list(schema.get("allOf"))
    ):
        return False
    for key in ("anyOf", "oneOf"):
        alternatives = read_list(schema.get(key))
        if alternatives and not any(
            _fits_value(candidate, root, value, depth + 1) for candidate in alternatives
        ):
            return False
    if isinstance(value, Mapping):
        properties = read_mapping(schema.get("properties"))
        needed = read_list(schema.get("required"))
        if any(isinstance(name, str) and name not in value for name in needed):
            return False
        closed = schema.get("additionalProperties") is False and "patternProperties" not in schema
        if closed and any(name not in properties for name in value):
            return False
        return all(
            _fits_value(properties[name], root, item, depth + 1)
            for name, item in value.items()
            if name in properties
        )
    if isinstance(value, list) and value and isinstance(schema.get("items"), Mapping):
        return _fits_value(schema["items"], root, value[0], depth + 1)
    return True


def _fits_type(schema: Schema, value: Any) -> bool:
    types = schema.get("type")
    kinds = [types] if isinstance(types, str) else read_list(types)
    kind = name_json_type(value)
    if not kinds or kind in kinds or (kind == "integer" and "number" in kinds):
        return True
    return kind == "null" and schema.get("nullable") is True


def _fits_listed(schema: Schema, value: Any) -> bool:
    if "const" in schema and not _equals_value(schema["const"], value):
        return False
    choices = schema.get("enum")
    if not isinstance(choices, list):
        return True
    spend_steps(len(choices) // 64)
    return any(_equals_value(candidate, value) for candidate in choices)


def _equals_value(a: Any, b: Any) -> bool:
    if isinstance(a, str) or isinstance(b, str) or a is None or b is None:
        return a is b or (type(a) is type(b) and a == b)
    if isinstance(a, int | float) and isinstance(b, int | float):
        return a == b and isinstance(a, bool) == isinstance(b, bool)
    return equals_json(a, b)


def find_items(schemas: Parts) -> tuple[list[Any], Any, bool]:
    """(schemas by place, schema of the rest, whether the order means nothing) of an array.

    The order means nothing where the items are unique, or the schema says `format: set` or
    `x-unordered: true`; a tuple keeps its order.
    """
    places: list[Any] = []
    rest_schemas: list[Any] = []
    unordered = False
    for part in schemas:
        items = part.get("items")
        if isinstance(items, list):
            places, items = places or items, part.get("additionalItems")
        elif isinstance(part.get("prefixItems"), list):
            places = places or part["prefixItems"]
        if isinstance(items, Mapping):
            rest_schemas.append(items)
        loose = part.get("uniqueItems") is True or part.get("x-unordered") is True
        unordered = unordered or loose or part.get("format") == "set"
    rest_schema = (
        rest_schemas[0]
        if len(rest_schemas) == 1
        else {"allOf": rest_schemas}
        if rest_schemas
        else {}
    )
    return places, rest_schema, unordered and not places


def find_default(schema: Any, root: Schema) -> tuple[bool, Any]:
    """(whether there is a default, the default) of a property, whichever part states it."""
    if not isinstance(schema, Mapping):
        return False, None
    if _JOINTS.isdisjoint(schema):
        return "default" in schema, schema.get("default")
    spend_steps(8)
    return any_default_of(schema, root)


_EXACT_NAMES = re.compile(
    r"(^|_| )(id|ids|uuid|path|paths|file|filename|dir|directory|folder|url|uri|code|key|token|hash"
    r"|sha|ref|branch|sql|regex|pattern|glob|command|cmd|script|selector|xpath|slug|handle|email"
    r"|username|host|port|timezone|locale|lang|language|currency|symbol|ticker|format|version)"
    r"(_| |$)"
)
_EXACT_KEYWORDS = frozenset(
    ("enum", "const", "format", "pattern", "contentEncoding", "contentMediaType")
)
_LOOKS_EXACT = re.compile(r"^\S+$|[/\\][\w.\-]|://|[{}<>=;`$|]|\(\)|^[\d\W]+$")
_CURLY = str.maketrans("‘’“”", "''\"\"")
_MAX_DEPTH = 48


def normalise_value(value: Any, schema: Any, root: Schema, name: str, depth: int = 0) -> str:
    """The normal form of a value; its first letter is its type (n, b, z, s, o, a)."""
    spend_steps()
    if isinstance(value, str) and depth <= _MAX_DEPTH:
        schemas = collect_parts(schema, root, value)
        exact = _is_exact_name(name)
        for part in schemas:
            if part.get("format") == "date-time":
                instant = _parse_instant(value)
                return f"st{instant}" if instant else f"s={_quote_text(value)}"
            exact = exact or not _EXACT_KEYWORDS.isdisjoint(part)
        if exact or _LOOKS_EXACT.search(value.strip()):
            return f"s={_quote_text(value)}"
        return f"s~{_quote_text(_fold_text(value))}"
    if value is None or isinstance(value, bool | int | float):
        return _format_scalar(value)
    if depth > _MAX_DEPTH or not isinstance(value, dict | list | Mapping | tuple):
        return normalise_exactly(value)
    schemas = collect_parts(schema, root, value)
    if isinstance(value, list | tuple):
        places, rest_schema, unordered = find_items(schemas)
        forms = [
            normalise_value(
                item, places[i] if i < len(places) else rest_schema, root, name, depth + 1
            )
            for i, item in enumerate(value)
        ]
        return "a[" + ",".join(sorted(forms) if unordered else forms) + "]"
    properties = ((format_key(key), item) for key, item in value.items())
    properties = {
        name: normalise_property(item, name, schemas, root, depth) for name, item in properties
    }
    members = [
        f"{_quote_text(key)}:{form}" for key, (form, usual) in properties.items() if not usual
    ]
    return "o{" + ",".join(sorted(members)) + "}"


def normalise_property(
    value: Any, name: str, schemas: Parts, root: Schema, depth: int = 0
) -> tuple[str, bool]:
    """(Normal form, whether it says no more than the schema's default)."""
    # Declared, else by pattern, else of all others; several parts that declare it hold together.
    declared = []
    for part in schemas:
        properties = part.get("properties")
        if isinstance(properties, Mapping) and name in properties:
            declared.append(properties[name])
            continue
        patterns = read_mapping(part.get("patternProperties"))
        fitting = [
            candidate for pattern, candidate in patterns.items() if matches_pattern(pattern, name)
        ]
        other = part.get("additionalProperties", part.get("unevaluatedProperties"))
        if fitting:
            declared.extend(fitting)
        elif isinstance(other, Mapping):
            declared.append(other)
    about = declared[0] if len(declared) == 1 else {"allOf": declared} if declared else {}
    form = normalise_value(value, about, root, name, depth + 1)
    has_default, default = find_default(about, root)
    return form, has_default and normalise_value(default, about, root, name, depth + 1) == form


def normalise_exactly(value: Any) -> str:
    """The form without a schema: only numbers and the order of keys are read by meaning. Not
    recursive, so that no depth is too deep."""
    out: list[str] = []
    waiting: list[Any] = [(value, True)]
    while waiting:
        item, is_value = waiting.pop()
        spend_steps()
        if not is_value:
            out.append(item)
        elif isinstance(item, Mapping):
            members = sorted(
                ((format_key(key), item_value) for key, item_value in item.items()),
                key=itemgetter(0),
            )
            waiting.append(("}", False))
            for key, item_value in reversed(members):
                waiting.extend(((",", False), (item_value, True), (f"{_quote_text(key)}:", False)))
            out.append("o{")
        elif isinstance(item, list | tuple):
            waiting.append(("]", False))
            for item_value in reversed(item):
                waiting.extend(((",", False), (item_value, True)))
            out.append("a[")
        else:
            out.append(f"s={_quote_text(item)}" if isinstance(item, str) else _format_scalar(item))
    return "".join(out)


def _format_scalar(value: Any) -> str:
    """Of a number, boolean or null; an integral float is that integer, whatever its size."""
    if value is None:
        return "z"
    if isinstance(value, bool):
        return f"b{value}"
    if isinstance(value, float):
        if not value.is_integer():
            return f"n{value!r}"
        value = int(value)
    # Decimal digits of an integer are refused beyond 4,300; hexadecimal ones never are.
    return f"n{value:x}." if isinstance(value, int) else f"?{type(value).__name__}:{value!r}"


@lru_cache(4096)
def _is_exact_name(name: str) -> bool:
    """Whether values of that name are codes, paths and the like, whatever they look like."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    return _EXACT_NAMES.search(re.sub(r"[^a-z0-9]+", "_", words)) is not None


def _fold_text(text: str) -> str:
    """Free text without what nobody means: case, runs of white space, curly quotes, the full stop
    at the end. Signs, decimal points and slashes inside words stay."""
    return " ".join(text.translate(_CURLY).casefold().split()).rstrip(".!? ")


def _parse_instant(text: str) -> str | None:
    try:
        parsed = datetime.fromisoformat(text)
        return (parsed.astimezone(UTC) if parsed.tzinfo else parsed).isoformat()
    except (ValueError, OverflowError):
        return None


def _quote_text(text: str) -> str:
    """A text that cannot be taken for two, or for the signs around it."""
    return f"{len(text)}:{text}"


def format_key(key: Any) -> str:
    """A key as JSON would write it; one that is no text cannot be told from that text."""
    return key if isinstance(key, str) else _format_scalar(key)[1:] if key is not None else "null"


def count_values(value: Any) -> int:
    """How many values stand in a value, itself included."""
    if not isinstance(value, dict | list | Mapping):
        return 1
    count, waiting = 0, [value]
    while waiting:
        item = waiting.pop()
        count += 1
        if isinstance(item, list | tuple):
            waiting.extend(item)
        elif isinstance(item, dict | Mapping):
            waiting.extend(item.values())
    return count


# Steps for one call: some 0.2 s, and what its own size may need (a value takes 3 to 8). The largest
# call of a real contract takes a few thousand.
_MAX_STEPS, _STEPS_A_VALUE = 20_000, 32


class ReadCall:
    """One call, read through its tool's schema; `given` is None where it holds no arguments."""

    def __init__(self, schema: Any, call: Any) -> None:
        self.is_call = isinstance(call, dict | Mapping)
        name, arguments = (call.get("name"), call.get("arguments")) if self.is_call else ("", "")
        self.name = name if isinstance(name, str) else f"{type(name).__name__} {name!r:.80}"
        self.root: Schema = schema if isinstance(schema, dict | Mapping) else {}
        self.given: dict[str, Any] | None = None
        if arguments is None or isinstance(arguments, dict | Mapping):
            self.given = {format_key(key): value for key, value in (arguments or {}).items()}
            self.parts = (
                (self.root,)
                if is_plain(self.root)
                else self._within(lambda: collect_parts(self.root, self.root, arguments or {}), ())
            )
        self._forms: dict[str, tuple[str, bool]] = {}

    def form(self, name: str) -> tuple[str, bool]:
        """(Normal form of an argument, whether it is the default); for two sides that match, and
        only for them, it is the same."""
        if name not in self._forms:
            value = (self.given or {})[name]
            if is_simple(self.root, name, value):
                self._forms[name] = normalise_property(value, name, self.parts, self.root)
            else:
                self._forms[name] = self._within(
                    lambda: normalise_property(value, name, self.parts, self.root),
                    None,
                    count_values(value),
                ) or (normalise_exactly(value), False)
        return self._forms[name]

    def _within(self, work: Callable[[], Any], otherwise: Any, size: int = 1) -> Any:
        """What the work gives, or `otherwise` where a schema makes it too much."""
        steps = _MAX_STEPS // (len(self.given or ()) or 1) + _STEPS_A_VALUE * size
        try:
            with limit_steps(steps):
                return work()
        except (TooMuchWork, RecursionError):
            return otherwise

    @cached_property
    def key(self) -> tuple[Any, ...]:
        """The same for two calls that match, and only for them."""
        forms = [(name, *self.form(name)) for name in self.given or ()]
        keyed_forms = sorted((name, form) for name, form, usual in forms if not usual)
        return (self.name, self.given is None, *keyed_forms)

    def all(self, verdict: str) -> dict[str, str]:
        return dict.fromkeys(self.given or (), verdict)


def read_call(schemas: Mapping[str, JsonObject], call: Any) -> ReadCall:
    """A call, read through the schema of the tool that it names."""
    name = call.get("name") if isinstance(call, Mapping) else None
    return ReadCall(schemas.get(name, {}) if isinstance(name, str) else {}, call)
