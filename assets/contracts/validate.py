"""Calls against untrusted schemas, flaw by flaw: nothing is fetched, and every check is bounded.

Work is bounded by steps, by a time limit for patterns and by depth. Python's recursion limit does
not help with depth: reached inside the Rust map in which `referencing` looks up a `$ref`, it
surfaces as a panic, a BaseException that `except Exception` does not catch. A nested check takes at
most five frames of the 1,000.
"""

import ipaddress
import json
import threading
import time as clock
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from itertools import islice
from typing import Any, cast
from urllib.parse import urlsplit

import attrs
import regex
from jsonschema import FormatChecker, exceptions, protocols, validators
from referencing import Registry
from referencing.exceptions import NoSuchResource, Unresolvable

from assets.contracts.schema_shapes import (
    TooMuchWork,
    collect_properties,
    is_number,
    is_open,
    limit_steps,
    resolve,
    spend_seconds,
    spend_steps,
)
from warehouse.json_types import Contract, Schema


class _CheckDepth(threading.local):
    nested = 0


_DEPTH = _CheckDepth()


def limit_depth(check: Callable[..., Any], levels: int) -> Callable[..., Iterator[Any]]:
    """The check of a keyword (`jsonschema` calls it with validator, value, instance and schema),
    refusing to nest in more than `levels` others of this thread. Raises RecursionError."""

    def limited(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
        if _DEPTH.nested >= levels:
            raise RecursionError(f"nested deeper than {levels} checks")
        _DEPTH.nested += 1
        try:
            yield from check(validator, value, instance, schema) or ()
        finally:
            _DEPTH.nested -= 1

    return limited


PATTERN_TIMEOUT_S = 0.1
_STEP_OF_TEXT = 12_000  # characters that are written into a message in one step
_REMEMBERED = 100_000  # characters of the longest schema that is remembered
_CALL_DEPTH = 100  # checks nested in each other for one call: 50 levels of objects behind a `$ref`
_SCHEMA_DEPTH = (
    150  # the same against a meta-schema: 30 levels of a schema in 2020-12, 50 in draft 7
)
_NEWER = (
    *('"prefixItems"', '"dependentSchemas"', '"dependentRequired"', '"unevaluated', '"$dynamic'),
    *('"minContains"', '"maxContains"', '"$anchor"', '"$vocabulary"'),
)


def find_dialect(schema: Schema) -> tuple[Any, str | None]:
    """(validator class, None), or (None, why no dialect accepts the schema)."""
    try:
        text = json.dumps(schema, sort_keys=True)
        short = len(text) <= _REMEMBERED  # many huge ones would fill the memory
        return _find_accepting_dialect(text) if short else _find_accepting_dialect.__wrapped__(text)
    except (TypeError, ValueError, RecursionError) as error:
        return None, f"the schema is not JSON: {error}"[:200]


@lru_cache(maxsize=4096)
def _find_accepting_dialect(text: str) -> tuple[Any, str | None]:
    """The dialect `$schema` names, else 2020-12; older ones when only they accept the schema.

    A contract carries no `$schema` (it is noise to a model), so a tuple-typed `items` or a boolean
    `exclusiveMinimum` is recognised by being valid in its own draft only.
    """
    schema = json.loads(text)
    if _is_plain(schema):
        return _guard_dialect(validators.Draft202012Validator), None
    first = validators.validator_for(schema, default=validators.Draft202012Validator)
    problem = None
    for dialect in (first, validators.Draft7Validator, validators.Draft4Validator):
        try:
            error = next(_judge_schemas(dialect).iter_errors(schema), None)
            if error is None:
                return _guard_dialect(dialect), None
            where = ".".join(str(part) for part in error.absolute_path)
            problem = problem or f"invalid schema at {where or '$'}: {error.message}"[:200]
        except RecursionError:
            problem = problem or "the schema is nested too deep"
    return None, problem


def _is_plain(schema: Schema) -> bool:
    """Whether the schema is one in every draft since 7. Its meta-schema is checked ten times faster
    than 2020-12's; what it would not look into goes the long way."""
    text = json.dumps(schema)
    if "$schema" in schema or any(word in text for word in _NEWER):
        return False
    schema = {"definitions" if key == "$defs" else key: value for key, value in schema.items()}
    try:
        return _judge_schemas(validators.Draft7Validator).is_valid(schema) and not _has_tuples(
            schema
        )
    except RecursionError:
        return False


def _has_tuples(node: Any) -> bool:
    """Whether an `items` holds a list somewhere, which only old drafts allow."""
    stack = [node]
    while stack:
        current = stack.pop()
        if isinstance(current, Mapping):
            if isinstance(current.get("items"), list):
                return True
            stack.extend(current.values())
        elif isinstance(current, list):
            stack.extend(current)
    return False


def _guarded_pattern(_: Any, pattern: str, instance: Any, __: Any) -> Iterator[Any]:
    if isinstance(instance, str):
        hit = _search(pattern, instance)
        if hit is False:
            yield exceptions.ValidationError(f"{instance[:60]!r} does not match {pattern[:80]!r}")
        elif hit is None:
            yield exceptions.ValidationError(
                f"pattern {pattern[:80]!r} takes longer than {PATTERN_TIMEOUT_S} s on the value"
            )


def _search(pattern: str, text: str) -> bool | None:
    """True / False, or None when the pattern backtracks beyond the time limit.

    A pattern in another dialect (JavaScript's) that does not compile here forbids nothing.
    """
    begun = clock.perf_counter()
    try:
        return regex.search(pattern, text, timeout=PATTERN_TIMEOUT_S) is not None
    except TimeoutError:
        return None
    except (regex.error, TypeError, ValueError, OverflowError, RecursionError):
        return True
    finally:
        spend_seconds(clock.perf_counter() - begun)


def _guarded_pattern_properties(
    validator: protocols.Validator, patterns: Any, instance: Any, _: Any
) -> Iterator[Any]:
    if not isinstance(instance, Mapping):
        return
    for pattern, schema in patterns.items():
        for name, value in instance.items():
            if _search(pattern, name):
                yield from validator.descend(value, schema, path=name, schema_path=pattern)  # type: ignore[attr-defined]


def _check_multiple(_: Any, step: Any, instance: Any, __: Any) -> Iterator[Any]:
    """By what is written: of floats 0.07 would be no multiple of 0.01. A step that is no number
    above 0 forbids nothing: behind a `$ref` no meta-schema has checked it."""
    if not (is_number(instance) and is_number(step) and step > 0):
        return
    try:
        if not _is_multiple(instance, step):
            yield exceptions.ValidationError(f"{instance!r} is not a multiple of {step!r}")
    except (OverflowError, ValueError):  # infinite, or of thousands of digits
        yield exceptions.ValidationError(f"a number is too large for a multiple of {step!r}")


def _is_multiple(value: float, step: float) -> bool:
    if isinstance(value, int) and isinstance(step, int):
        return value % step == 0
    try:
        return Decimal(repr(value)) % Decimal(repr(step)) == 0
    except InvalidOperation:  # more digits than decimals have here
        return (value / step).is_integer() if isinstance(step, float) else value % step == 0


@lru_cache(maxsize=16)
def _judge_schemas(base: Any) -> Any:
    """The validator of a dialect's schemas against its meta-schema; patterns are not compiled, as
    those of another dialect forbid nothing."""
    checks = {name: limit_depth(check, _SCHEMA_DEPTH) for name, check in base.VALIDATORS.items()}
    return _fix_dialect(base, checks)(base.META_SCHEMA)


@lru_cache(maxsize=16)
def _guard_dialect(base: Any) -> Any:
    guarded = {
        "pattern": _guarded_pattern,
        "patternProperties": _guarded_pattern_properties,
        "multipleOf": _check_multiple,
    }
    guards = {name: check for name, check in guarded.items() if name in base.VALIDATORS}
    checks = {**base.VALIDATORS, **guards}
    return _fix_dialect(
        base,
        {
            name: limit_depth(_count_steps(plain_check), _CALL_DEPTH)
            for name, plain_check in checks.items()
        },
    )


def _fix_dialect(base: Any, checks: Mapping[str, Callable[..., Any]]) -> Any:
    """A dialect with these checks, kept to the leaves: `jsonschema` goes over to its own unguarded
    one at a nested `$schema`, behind which a pattern took 1.2 s for 25 characters."""
    fixed = validators.extend(base, checks)
    fixed.evolve = attrs.evolve  # type: ignore[method-assign]
    return fixed


def _count_steps(check: Callable[..., Any]) -> Callable[..., Any]:
    """The check of a keyword as one step: `allOf` over `$ref`s can double at every level."""

    def counted(validator: Any, value: Any, instance: Any, schema: Any) -> Any:
        # Items that cannot be sorted are compared each with each.
        unique = check is _UNIQUE and isinstance(instance, list)
        # The message of an error holds the whole text: 1 MB of it takes 1 to 2 ms at each keyword.
        long = len(instance) // _STEP_OF_TEXT if isinstance(instance, str) else 0
        spend_steps(1 + (len(instance) ** 2 // 10 if unique else long))
        return check(validator, value, instance, schema)

    return counted


_UNIQUE = validators.Draft202012Validator.VALIDATORS["uniqueItems"]


def _refuse(uri: str) -> Any:
    raise NoSuchResource(ref=uri)


SEALED: Registry = Registry(retrieve=_refuse)  # type: ignore[call-arg]
FORMATS = FormatChecker(formats=())


def _parse_instant(value: str) -> None:
    if "T" not in value and " " not in value:
        raise ValueError("no time")
    datetime.fromisoformat(value)


def _parse_uri(value: str) -> None:
    url = urlsplit(value)
    if not url.scheme or not (url.netloc or url.path) or any(c.isspace() for c in value):
        raise ValueError("no scheme")


def _parse_email(value: str) -> None:
    local, _, domain = value.rpartition("@")
    if not local or not domain or any(c.isspace() for c in value):
        raise ValueError("no address")


def _build_check(parse: Callable[[str], Any]) -> Callable[[Any], bool]:
    def accepts(value: Any) -> bool:
        if isinstance(value, str):
            parse(value)
        return True

    return accepts


for _name, _parse in {
    "date": date.fromisoformat,
    "date-time": _parse_instant,
    "time": time.fromisoformat,
    "uuid": uuid.UUID,
    "ipv4": ipaddress.IPv4Address,
    "ipv6": ipaddress.IPv6Address,
    "uri": _parse_uri,
    "url": _parse_uri,
    "email": _parse_email,
}.items():
    FORMATS.checks(_name, raises=(ValueError,))(_build_check(_parse))


_MAX_FLAWS = 50
_MAX_STEPS = 100_000  # some 2 s; the longest call of a real contract takes a few thousand


_KINDS = {
    "required": "missing_required",
    "type": "wrong_type",
    "enum": "not_in_enum",
    "const": "not_in_enum",
    "pattern": "pattern",
    "format": "format",
    "additionalProperties": "unknown_argument",
    "unevaluatedProperties": "unknown_argument",
    **dict.fromkeys(
        ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"), "range"
    ),
    **dict.fromkeys(("minLength", "maxLength"), "length"),
    **dict.fromkeys(("minItems", "maxItems", "uniqueItems", "contains"), "items"),
}


@dataclass(frozen=True)
class Flaw:
    """One thing wrong with a call.

    kind: bad_schema, not_an_object, missing_required, unknown_argument, wrong_type, not_in_enum,
    range, length, items, pattern, format or constraint. at: where, name by name; () for the call
    itself.
    """

    kind: str
    message: str
    at: tuple[str | int, ...] = ()

    @property
    def path(self) -> str:
        """Like `filters[0].name`."""
        text = ""
        for part in self.at:
            text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
        return text


def validate_call(contract: Contract, arguments: Any) -> list[Flaw]:
    """Every flaw of `arguments` against the contract's input schema; an empty list is a clean call.

    Never raises and never touches the network. At most 50 flaws are listed.
    """
    schema = contract.get("inputSchema")
    if not isinstance(schema, Mapping):
        return [Flaw("bad_schema", "the contract has no input schema")]
    if not isinstance(arguments, Mapping):
        return [Flaw("not_an_object", f"arguments are {type(arguments).__name__}")]
    try:
        problem = find_schema_problem(schema)
        if problem:
            return [Flaw("bad_schema", problem)]
        with limit_steps(_MAX_STEPS):
            flaws = list(islice(_find_schema_flaws(schema, arguments), _MAX_FLAWS))
            reported = {flaw.path for flaw in flaws if flaw.kind == "unknown_argument"}
            more = _find_unknown(schema, schema, arguments, (), True)
            return [*flaws, *(f for f in more if f.path not in reported)][:_MAX_FLAWS]
    except TooMuchWork:
        return [Flaw("bad_schema", f"it takes more than {_MAX_STEPS:,} steps to check a call")]
    except RecursionError:
        return [Flaw("bad_schema", "the schema refers to itself without end")]
    except (Unresolvable, AttributeError) as error:  # draft 4 lets a $ref that is no text pass
        return [Flaw("bad_schema", f"unresolvable $ref: {error}"[:200])]


def find_schema_problem(schema: Schema) -> str | None:
    """Why a schema is no JSON Schema (one line), or None when it is one."""
    if schema.get("type", "object") != "object":
        return f"input schema has type {schema['type']!r}, expected 'object'"
    return find_dialect(schema)[1]


def _find_schema_flaws(schema: Schema, arguments: Any) -> Iterator[Flaw]:
    dialect, _ = find_dialect(schema)
    validator = dialect(schema, registry=SEALED, format_checker=FORMATS)
    for error in validator.iter_errors(arguments):
        at = tuple(error.absolute_path)
        if error.validator in ("additionalProperties", "unevaluatedProperties"):
            declared = (
                error.schema.get("properties", {}) if isinstance(error.schema, Mapping) else {}
            )
            for name in cast(dict[str, Any], error.instance):
                if name not in declared:
                    yield Flaw("unknown_argument", f"{name!r} is not declared", (*at, name))
        elif error.validator == "required":
            for name in cast(list[str], error.validator_value):
                if name not in cast(dict[str, Any], error.instance) and repr(name) in error.message:
                    yield Flaw("missing_required", f"{name!r} is required", (*at, name))
        elif error.validator in ("anyOf", "oneOf") and error.context:
            best = exceptions.best_match(error.context)
            kind = _KINDS.get(str(best.validator), "constraint") if best else "constraint"
            yield Flaw(kind, f"fits no alternative: {error.message}"[:200], at)
        else:
            yield Flaw(_KINDS.get(str(error.validator), "constraint"), error.message[:200], at)


def _find_unknown(
    schema: Any, root: Schema, value: Any, at: tuple[str | int, ...], top: bool
) -> Iterator[Flaw]:
    """Arguments that no branch of the schema declares, at any depth."""
    if isinstance(value, list):
        items = resolve(schema, root).get("items")
        if isinstance(items, Mapping):
            for index, item in enumerate(value):
                yield from _find_unknown(items, root, item, (*at, index), False)
        return
    if not isinstance(value, Mapping):
        return
    spend_steps()
    declared = collect_properties(schema, root)
    # A nested object that lists no properties is free-form; a call without parameters is not.
    closed = (top or bool(declared)) and not is_open(schema, root)
    for name, item in value.items():
        where = (*at, str(name))
        if name in declared:
            yield from _find_unknown(declared[name], root, item, where, False)
        elif closed:
            yield Flaw("unknown_argument", f"{name!r} is not declared", where)
