"""JSON Schema against untrusted schemas: nothing is fetched, and every check is bounded.

Work is bounded by steps (`step_budget.py`), by a time limit for patterns and by depth. Python's
recursion limit does not help with depth: reached inside the Rust map in which `referencing` looks
up a `$ref`, it surfaces as a panic, a BaseException that `except Exception` does not catch. A
nested check takes at most five frames of the 1,000.
"""

import ipaddress
import json
import threading
import time as clock
import uuid
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

import attrs
import regex
from jsonschema import FormatChecker, exceptions, protocols, validators
from referencing import Registry
from referencing.exceptions import NoSuchResource

from assets.contracts.step_budget import spend_seconds, spend_steps
from warehouse.json_types import Schema


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
    if not (_is_number(instance) and _is_number(step) and step > 0):
        return
    try:
        if not _is_multiple(instance, step):
            yield exceptions.ValidationError(f"{instance!r} is not a multiple of {step!r}")
    except (OverflowError, ValueError):  # infinite, or of thousands of digits
        yield exceptions.ValidationError(f"a number is too large for a multiple of {step!r}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


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
