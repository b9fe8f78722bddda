"""One call read through its tool's schema: normal forms, equal for equal values."""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from typing import Any

from assets.contracts.match.resolve import (
    Parts,
    collect_parts,
    find_default,
    find_items,
    find_property,
    is_plain,
    is_simple,
)
from assets.contracts.step_budget import TooMuchWork, limit_steps, spend_steps
from warehouse.json_types import JsonObject, Schema

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
        return _normalise_text(value, collect_parts(schema, root, value), name)
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
    properties = normalise_object(value, schemas, root, depth)
    members = [
        f"{_quote_text(key)}:{form}" for key, (form, usual) in properties.items() if not usual
    ]
    return "o{" + ",".join(sorted(members)) + "}"


def normalise_object(
    value: Mapping[Any, Any], schemas: Parts, root: Schema, depth: int
) -> dict[str, tuple[str, bool]]:
    """Name -> `property_form` of everything an object gives."""
    properties = ((format_key(key), item) for key, item in value.items())
    return {name: normalise_property(item, name, schemas, root, depth) for name, item in properties}


def normalise_property(
    value: Any, name: str, schemas: Parts, root: Schema, depth: int = 0
) -> tuple[str, bool]:
    """(Normal form, whether it says no more than the schema's default)."""
    about = find_property(schemas, name)
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
                ((format_key(key), item_value) for key, item_value in item.items()), key=_take_first
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


def _normalise_text(value: str, schemas: Parts, name: str) -> str:
    exact = _is_exact_name(name)
    for part in schemas:
        if part.get("format") == "date-time":
            instant = _parse_instant(value)
            return f"st{instant}" if instant else f"s={_quote_text(value)}"
        exact = exact or not _EXACT_KEYWORDS.isdisjoint(part)
    if exact or _LOOKS_EXACT.search(value.strip()):
        return f"s={_quote_text(value)}"
    return f"s~{_quote_text(_fold_text(value))}"


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


def _take_first(pair: tuple[str, Any]) -> str:
    return pair[0]


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
