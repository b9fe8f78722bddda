"""What may be changed at one place of a call that validation rejects, surest change first."""

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from assets.contracts.repair.json_paths import (
    ABSENT,
    Place,
    find_choices,
    find_declared,
    find_schema,
    find_types,
    find_value,
    format_place,
    format_value,
    is_closed,
    is_required,
)
from assets.contracts.repair.names import find_nearest, find_same_name, fold_name, is_reminiscent
from assets.contracts.schema.reading import collect_properties, name_json_type
from assets.contracts.validate import Flaw

_WRAPPERS = ("arguments", "args", "params", "parameters", "input", "inputs", "kwargs", "tool_input")
_BESIDE = ("name", "tool", "tool_name", "function", "type", "id", "method", "server")
_WHOLE = re.compile(r"[+-]?\d{1,18}(?:\.0{1,18})?")
_NUMBER = re.compile(r"[+-]?(?:\d{1,40}(?:\.\d{0,40})?|\.\d{1,40})(?:[eE][+-]?\d{1,3})?")
_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")
_WORDS = 4  # of one entry of a list that was given as text with commas
_LONGEST = 100_000  # characters of a text that is read as JSON


@dataclass(frozen=True)
class Change:
    """opens: it may uncover flaws that can be repaired in their turn."""

    made: Any
    told: str
    opens: bool = False


def unwrap_arguments(schema: Mapping[str, Any], arguments: Any, tool: str) -> Iterator[Change]:
    """The call itself, where it was given as text, as nothing, or inside something else."""
    if arguments is None:
        yield Change({}, "no arguments are an empty object", True)
    if isinstance(arguments, str):
        found = _parse_json(arguments)
        if isinstance(found, dict):
            yield Change(found, "the arguments were JSON text: read it", True)
        return
    if isinstance(arguments, list) and len(arguments) == 1 and isinstance(arguments[0], dict):
        yield Change(arguments[0], "the arguments were in a list of one: took it out", True)
    if not isinstance(arguments, Mapping):
        return
    declared = collect_properties(schema, schema)
    for name, held in arguments.items():
        if name in declared or (name not in _WRAPPERS and name != tool):
            continue
        if not all(
            _has_sibling(one, arguments, declared, tool) for one in arguments if one != name
        ):
            continue
        inner = _parse_json(held) if isinstance(held, str) else held
        if isinstance(inner, dict):
            yield Change(inner, f"the arguments were wrapped in {name!r}: took them out", True)


def _has_sibling(
    name: Any, arguments: Mapping[str, Any], declared: Mapping[str, Any], tool: str
) -> bool:
    """Whether it belongs to the wrapping: the tool's name, an id; no argument of the tool."""
    return name in _BESIDE and (name not in declared or arguments[name] == tool)


def propose_changes(schema: Mapping[str, Any], arguments: Any, flaw: Flaw) -> Iterator[Change]:
    """The changes that one flaw of the arguments suggests."""
    if not flaw.at:
        return
    if flaw.kind in ("unknown_argument", "missing_required"):
        yield from _propose_names(schema, arguments, flaw)
        return
    value = find_value(arguments, flaw.at)
    if value is None and not is_required(schema, flaw.at):
        told = f"{format_place(flaw.at)} was null and is optional: left out"
        yield Change(_remove_at(arguments, flaw.at), told)
    if value is ABSENT:
        return
    for other, opens in _propose_values(value, find_schema(schema, flaw.at), schema):
        told = (
            f"{format_place(flaw.at)}: {format_value(value, 60)} became {format_value(other, 60)}"
        )
        yield Change(_replace_at(arguments, flaw.at, other), told, opens)


def propose_drops(schema: Mapping[str, Any], arguments: Any, flaw: Flaw) -> Iterator[Change]:
    """Without an argument that the contract forbids outright. Not where a name is near to it, or
    one that is required is missing: then it may be what was meant, and its value would be lost."""
    if flaw.kind != "unknown_argument" or not flaw.at or not is_closed(schema, flaw.at[:-1]):
        return
    name, declared = str(flaw.at[-1]), find_declared(schema, flaw.at[:-1])
    around = find_value(arguments, flaw.at[:-1])
    missing = [one for one in declared if is_required(schema, (*flaw.at[:-1], one))]
    if any(one not in around for one in missing) or any(
        is_reminiscent(name, one) for one in declared
    ):
        return
    told = f"dropped {format_place(flaw.at)}, which the contract forbids"
    yield Change(_remove_at(arguments, flaw.at), told)


def _propose_names(schema: Mapping[str, Any], arguments: Any, flaw: Flaw) -> Iterator[Change]:
    """The name that was meant by one that nobody declared; a name that is there stays."""
    around = find_value(arguments, flaw.at[:-1])
    if not isinstance(around, Mapping):
        return
    declared = find_declared(schema, flaw.at[:-1])
    free = [name for name in declared if name not in around]
    known = set(declared)
    unknown = [str(name) for name in around if name not in known]
    wrong = [str(flaw.at[-1])] if flaw.kind == "unknown_argument" else unknown
    for alike in (find_same_name, find_nearest):
        for name in wrong:
            meant = alike(name, free)
            # Of two that both mean it, neither is sure.
            if meant is None or any(alike(one, [meant]) for one in unknown if one != name):
                continue
            place = format_place(flaw.at[:-1])
            told = f"{place}: {name!r} became {meant!r}"
            yield Change(_rename_at(arguments, flaw.at[:-1], name, meant), told, True)


def _propose_values(value: Any, schema: Any, root: Mapping[str, Any]) -> Iterator[tuple[Any, bool]]:
    """(another form of the value, whether it may have flaws of its own)."""
    types = find_types(schema, root)
    choices = find_choices(schema, root)
    if choices:
        yield from ((one, False) for one in _propose_choices(value, choices))
    if isinstance(value, str):
        yield from _parse_text_value(value, types)
    elif isinstance(value, bool):
        if "string" in types:
            yield ("true" if value else "false"), False
        if types & {"integer", "number"}:
            yield int(value), False
    elif isinstance(value, int | float):
        if "boolean" in types and value in (0, 1):
            yield bool(value), False
        if "string" in types:
            yield _format_number(value), False
    elif isinstance(value, list | dict):
        alone = value[0] if isinstance(value, list) and len(value) == 1 else ABSENT
        if alone is not ABSENT and ("array" not in types or name_json_type(alone) in types):
            yield alone, True
        if "string" in types:
            yield json.dumps(value, ensure_ascii=False), False
    if "array" in types and not isinstance(value, list) and value is not None:
        parts = [one.strip() for one in value.split(",")] if isinstance(value, str) else []
        # Of 84 golden lists of texts, none of one held a comma in it and one of several did, a
        # list of sentences: a few words between commas are a list.
        if len(parts) > 1 and all(0 < len(one.split()) <= _WORDS for one in parts):
            yield parts, True
        yield [value], True


def _parse_text_value(text: str, types: set[str]) -> Iterator[tuple[Any, bool]]:
    word = text.strip()
    if "integer" in types and _WHOLE.fullmatch(word):
        yield int(word.partition(".")[0]), False
    if "number" in types and _NUMBER.fullmatch(word) and math.isfinite(float(word)):
        whole = _WHOLE.fullmatch(word) and "." not in word
        yield (int(word) if whole else float(word)), False
    if "boolean" in types and word.lower() in (*_TRUE, *_FALSE):
        yield word.lower() in _TRUE, False
    if "null" in types and word.lower() in ("null", "none"):
        yield None, False
    if types & {"array", "object"}:
        found = _parse_json(word)
        wanted = (list if "array" in types else (), dict if "object" in types else ())
        if isinstance(found, tuple(one for one in wanted if one)):  # type: ignore[arg-type]
            yield found, True


def _propose_choices(value: Any, choices: list[Any]) -> Iterator[Any]:
    """The choice that was meant: the same but for its type, its case and separators, its spelling,
    or cut short; only where one alone is meant."""
    word = value if isinstance(value, str) else _format_number(value) if _is_number(value) else None
    if isinstance(value, bool):
        word = "true" if value else "false"
    if word is None:
        return
    texts = {one if isinstance(one, str) else json.dumps(one): one for one in reversed(choices)}
    names = list(texts)
    if word in texts:
        yield texts[word]
    if (meant := find_same_name(word, names)) is not None:
        yield texts[meant]
    if (meant := find_nearest(word, names)) is not None:
        yield texts[meant]
    short = fold_name(word)
    if len(short) >= 3:
        longer = [one for one in names if fold_name(one).startswith(short)]
        if len(longer) == 1:
            yield texts[longer[0]]


def _parse_json(text: str) -> Any:
    """The JSON of a text, also within a code fence; None where it is none."""
    text = text.strip()
    if not text.startswith(("{", "[", "`")) or len(text) > _LONGEST:
        return None
    fenced = re.fullmatch(r"```(?:json)?\s*(.*?)\s*```", text, re.DOTALL)
    try:
        return json.loads(fenced[1] if fenced else text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return None


def _refuse_constant(name: str) -> None:
    raise ValueError(name)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _format_number(value: float) -> str:
    whole = isinstance(value, float) and value.is_integer() and abs(value) < 1e15
    return str(int(value)) if whole else json.dumps(value)


def _replace_at(arguments: Any, at: Place, value: Any) -> Any:
    """A copy with another value at a place."""
    if not at:
        return value
    first, rest = at[0], at[1:]
    made = dict(arguments) if isinstance(arguments, Mapping) else list(arguments)
    made[first] = _replace_at(made[first], rest, value)  # type: ignore[index,call-overload]
    return made


def _remove_at(arguments: Any, at: Place) -> Any:
    around = find_value(arguments, at[:-1])
    if isinstance(around, list):
        return arguments
    kept = {name: one for name, one in around.items() if name != at[-1]}
    return _replace_at(arguments, at[:-1], kept)


def _rename_at(arguments: Any, at: Place, name: str, meant: str) -> Any:
    around = find_value(arguments, at)
    made = {meant if key == name else key: one for key, one in around.items()}
    return _replace_at(arguments, at, made)
