"""Does one call fit one contract? The flaws of its arguments, one by one."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, cast

from jsonschema import exceptions
from referencing.exceptions import Unresolvable

from assets.contracts.schema_shapes import collect_properties, is_open, resolve
from assets.contracts.schema_validator import FORMATS, SEALED, find_dialect
from assets.contracts.step_budget import TooMuchWork, limit_steps, spend_steps
from warehouse.json_types import Contract, Schema

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
    except Unresolvable as error:
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
        yield from _collect_flaws(error)


def _collect_flaws(error: exceptions.ValidationError) -> Iterator[Flaw]:
    at = tuple(error.absolute_path)
    if error.validator in ("additionalProperties", "unevaluatedProperties"):
        for name in _find_extra_names(error):
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


def _find_extra_names(error: exceptions.ValidationError) -> list[str]:
    declared = error.schema.get("properties", {}) if isinstance(error.schema, Mapping) else {}
    return [name for name in cast(dict[str, Any], error.instance) if name not in declared]


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
