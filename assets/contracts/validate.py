"""Does one call fit one contract? The flaws of its arguments, one by one.

Belongs here: JSON Schema validation (Draft 2020-12, or the draft that `$schema` names), the rule
that an argument nobody declared is a flaw, and the guards against hostile schemas: a remote `$ref`
is never fetched, a pattern that backtracks without end is cut off, a broken schema is a flaw of
its own.
Does not belong here: whether the values mean what the user asked (`assets/synthesis/verify.py`),
or whether two calls are the same (`match.py`).
"""

import ipaddress
import json
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time
from functools import lru_cache
from typing import Any, cast
from urllib.parse import urlsplit

import regex
from jsonschema import FormatChecker, exceptions, protocols, validators
from referencing import Registry
from referencing.exceptions import NoSuchResource, Unresolvable

from assets.contracts.schemas import is_open, property_schemas, resolve

PATTERN_TIMEOUT_S = 0.1
_MAX_FLAWS = 50

_DRAFT_7 = validators.Draft7Validator.META_SCHEMA
_NEWER = (
    *('"prefixItems"', '"dependentSchemas"', '"dependentRequired"', '"unevaluated', '"$dynamic'),
    *('"minContains"', '"maxContains"', '"$anchor"', '"$vocabulary"'),
)

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
    range, length, items, pattern, format or constraint. path: like `filters[0].name`, "" for the
    call itself.
    """

    kind: str
    path: str
    message: str


def validate_call(contract: Mapping[str, Any], arguments: Any) -> list[Flaw]:
    """Every flaw of `arguments` against the contract's input schema; an empty list is a clean call.

    Never raises and never touches the network. At most 50 flaws are listed.
    """
    schema = contract.get("inputSchema")
    if not isinstance(schema, Mapping):
        return [Flaw("bad_schema", "", "the contract has no input schema")]
    if not isinstance(arguments, Mapping):
        return [Flaw("not_an_object", "", f"arguments are {type(arguments).__name__}")]
    try:
        problem = schema_problem(schema)
        if problem:
            return [Flaw("bad_schema", "", problem)]
        flaws = list(_schema_flaws(schema, arguments))
        known = {flaw.path for flaw in flaws if flaw.kind == "unknown_argument"}
        flaws += [f for f in _unknown(schema, schema, arguments, "", True) if f.path not in known]
        return flaws[:_MAX_FLAWS]
    except RecursionError:
        return [Flaw("bad_schema", "", "the schema refers to itself without end")]
    except Unresolvable as error:
        return [Flaw("bad_schema", "", f"unresolvable $ref: {error}"[:200])]


def schema_problem(schema: Mapping[str, Any]) -> str | None:
    """Why a schema is no JSON Schema (one line), or None when it is one."""
    if schema.get("type", "object") != "object":
        return f"input schema has type {schema['type']!r}, expected 'object'"
    return _dialect(schema)[1]


def _dialect(schema: Mapping[str, Any]) -> tuple[Any, str | None]:
    """(validator class, None), or (None, why no dialect accepts the schema)."""
    try:
        return _accepting_dialect(json.dumps(schema, sort_keys=True))
    except (TypeError, ValueError, RecursionError) as error:
        return None, f"the schema is not JSON: {error}"[:200]


@lru_cache(maxsize=4096)
def _accepting_dialect(text: str) -> tuple[Any, str | None]:
    """The dialect `$schema` names, else 2020-12; older ones when only they accept the schema.

    A contract carries no `$schema` (it is noise to a model), so a tuple-typed `items` or a boolean
    `exclusiveMinimum` is recognised by being valid in its own draft only.
    """
    schema = json.loads(text)
    if _plain(schema):
        return _guarded(validators.Draft202012Validator), None
    first = validators.validator_for(schema, default=validators.Draft202012Validator)
    problem = None
    for dialect in (first, validators.Draft7Validator, validators.Draft4Validator):
        try:
            dialect.check_schema(schema)
            return _guarded(dialect), None
        except exceptions.SchemaError as error:
            where = ".".join(str(part) for part in error.absolute_path)
            problem = problem or f"invalid schema at {where or '$'}: {error.message}"[:200]
        except RecursionError:
            problem = problem or "the schema is nested too deep"
    return None, problem


def _plain(schema: Mapping[str, Any]) -> bool:
    """Whether the schema is one in every draft since 7. Its meta-schema is checked ten times faster
    than 2020-12's; what it would not look into goes the long way."""
    text = json.dumps(schema)
    if "$schema" in schema or any(word in text for word in _NEWER):
        return False
    schema = {"definitions" if key == "$defs" else key: value for key, value in schema.items()}
    return validators.Draft7Validator(_DRAFT_7).is_valid(schema) and not _tuples(schema)


def _tuples(node: Any) -> bool:
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


def _schema_flaws(schema: Mapping[str, Any], arguments: Any) -> Iterator[Flaw]:
    dialect, _ = _dialect(schema)
    validator = dialect(schema, registry=_SEALED, format_checker=_FORMATS)
    for error in validator.iter_errors(arguments):
        yield from _flaws_of(error)


def _flaws_of(error: exceptions.ValidationError) -> Iterator[Flaw]:
    path = _path(error.absolute_path)
    if error.validator in ("additionalProperties", "unevaluatedProperties"):
        for name in _extra_names(error):
            yield Flaw("unknown_argument", _join(path, name), f"{name!r} is not declared")
    elif error.validator == "required":
        for name in cast(list[str], error.validator_value):
            if name not in cast(dict[str, Any], error.instance) and repr(name) in error.message:
                yield Flaw("missing_required", _join(path, name), f"{name!r} is required")
    elif error.validator in ("anyOf", "oneOf") and error.context:
        best = exceptions.best_match(error.context)
        kind = _KINDS.get(str(best.validator), "constraint") if best else "constraint"
        yield Flaw(kind, path, f"fits no alternative: {error.message}"[:200])
    else:
        yield Flaw(_KINDS.get(str(error.validator), "constraint"), path, error.message[:200])


def _extra_names(error: exceptions.ValidationError) -> list[str]:
    declared = error.schema.get("properties", {}) if isinstance(error.schema, Mapping) else {}
    return [name for name in cast(dict[str, Any], error.instance) if name not in declared]


def _unknown(
    schema: Any, root: Mapping[str, Any], value: Any, path: str, top: bool
) -> Iterator[Flaw]:
    """Arguments that no branch of the schema declares, at any depth."""
    if isinstance(value, list):
        items = resolve(schema, root).get("items")
        if isinstance(items, Mapping):
            for index, item in enumerate(value):
                yield from _unknown(items, root, item, f"{path}[{index}]", False)
        return
    if not isinstance(value, Mapping):
        return
    known = property_schemas(schema, root)
    # A nested object that lists no properties is free-form; a call without parameters is not.
    closed = (top or bool(known)) and not is_open(schema, root)
    for name, item in value.items():
        where = _join(path, str(name))
        if name in known:
            yield from _unknown(known[name], root, item, where, False)
        elif closed:
            yield Flaw("unknown_argument", where, f"{name!r} is not declared")


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
    try:
        return regex.search(pattern, text, timeout=PATTERN_TIMEOUT_S) is not None
    except TimeoutError:
        return None
    except (regex.error, ValueError, OverflowError, RecursionError):
        return True


def _guarded_pattern_properties(
    validator: protocols.Validator, patterns: Any, instance: Any, _: Any
) -> Iterator[Any]:
    if not isinstance(instance, Mapping):
        return
    for pattern, schema in patterns.items():
        for name, value in instance.items():
            if _search(pattern, name):
                yield from validator.descend(value, schema, path=name, schema_path=pattern)  # type: ignore[attr-defined]


@lru_cache(maxsize=16)
def _guarded(base: Any) -> Any:
    return validators.extend(
        base,
        {"pattern": _guarded_pattern, "patternProperties": _guarded_pattern_properties},
    )


def _refuse(uri: str) -> Any:
    raise NoSuchResource(ref=uri)


_SEALED: Registry = Registry(retrieve=_refuse)  # type: ignore[call-arg]
_FORMATS = FormatChecker(formats=())


def _format(name: str, parse: Any) -> None:
    def check(value: Any) -> bool:
        if isinstance(value, str):
            parse(value)
        return True

    _FORMATS.checks(name, raises=(ValueError,))(check)


def _uri(value: str) -> None:
    parts = urlsplit(value)
    if not parts.scheme or not (parts.netloc or parts.path) or any(c.isspace() for c in value):
        raise ValueError("no scheme")


def _email(value: str) -> None:
    local, _, domain = value.rpartition("@")
    if not local or not domain or any(c.isspace() for c in value):
        raise ValueError("no address")


_format("date", date.fromisoformat)
_format("date-time", lambda v: datetime.fromisoformat(v) if "T" in v or " " in v else int("x"))
_format("time", time.fromisoformat)
_format("uuid", uuid.UUID)
_format("ipv4", ipaddress.IPv4Address)
_format("ipv6", ipaddress.IPv6Address)
_format("uri", _uri)
_format("url", _uri)
_format("email", _email)


def _path(parts: Any) -> str:
    text = ""
    for part in parts:
        text = f"{text}[{part}]" if isinstance(part, int) else _join(text, str(part))
    return text


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
