"""What may be changed at one place of a call that validation rejects, surest change first."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from assets.contracts.repair.json_paths import (
    ABSENT,
    Place,
    find_declared,
    find_schema,
    find_value,
    format_place,
    format_value,
    is_closed,
    is_required,
)
from assets.contracts.repair.names import (
    find_nearest,
    find_same_name,
    is_guard,
    is_reminiscent,
)
from assets.contracts.repair.nesting import propose_nesting, propose_pairing
from assets.contracts.repair.values import parse_json, propose_values
from assets.contracts.schema.reading import collect_properties, iterate_branches
from assets.contracts.validate import Flaw
from warehouse.json_types import JsonObject, Schema

_WRAPPERS = ("arguments", "args", "params", "parameters", "input", "inputs", "kwargs", "tool_input")
_BESIDE = ("name", "tool", "tool_name", "function", "type", "id", "method", "server")


@dataclass(frozen=True)
class Change:
    """opens: it may uncover flaws that can be repaired in their turn."""

    made: Any
    step: str
    opens: bool = False


def unwrap_arguments(schema: Schema, arguments: Any, tool: str) -> Iterator[Change]:
    """The call itself, where it was given as text, as nothing, or inside something else."""
    if arguments is None:
        yield Change({}, "no arguments are an empty object", True)
    if isinstance(arguments, str):
        found = parse_json(arguments)
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
            _has_sibling(argument, arguments, declared, tool)
            for argument in arguments
            if argument != name
        ):
            continue
        inner = parse_json(held) if isinstance(held, str) else held
        if isinstance(inner, dict):
            yield Change(inner, f"the arguments were wrapped in {name!r}: took them out", True)


def _has_sibling(name: Any, arguments: JsonObject, declared: JsonObject, tool: str) -> bool:
    """Whether it belongs to the wrapping: the tool's name, an id; no argument of the tool."""
    return name in _BESIDE and (name not in declared or arguments[name] == tool)


def propose_changes(schema: Schema, arguments: Any, flaw: Flaw) -> Iterator[Change]:
    """The changes that one flaw of the arguments suggests."""
    if not flaw.at:
        return
    if flaw.kind in ("unknown_argument", "missing_required"):
        yield from _propose_names(schema, arguments, flaw)
        return
    value = find_value(arguments, flaw.at)
    if value is None and not is_required(schema, flaw.at):
        step = f"{format_place(flaw.at)} was null and is optional: left out"
        yield Change(_remove_at(arguments, flaw.at), step)
    if value is ABSENT:
        return
    name = next((one for one in reversed(flaw.at) if isinstance(one, str)), "")
    for other, opens in propose_values(value, find_schema(schema, flaw.at), schema, name):
        step = (
            f"{format_place(flaw.at)}: {format_value(value, 60)} became {format_value(other, 60)}"
        )
        yield Change(_replace_at(arguments, flaw.at, other), step, opens)


def propose_levels(schema: Schema, arguments: Any, tool: str) -> Iterator[Change]:
    """Arguments on another level, and the one that was meant by the only other name."""
    for made, step in propose_nesting(schema, arguments):
        yield Change(made, step, True)
    for made, step in propose_pairing(schema, arguments, tool):
        yield Change(made, step, True)


def propose_drops(
    schema: Schema,
    arguments: Any,
    flaw: Flaw,
    undeclared: bool = False,
    is_said: Callable[[Any], bool] | None = None,
) -> Iterator[Change]:
    """Without an argument that the contract forbids outright; `undeclared`: or, at the top, does
    not name. Not where a name is near to it, or one that is required is missing: then it may be
    what was meant, and its value would be lost; nor where its name guards or narrows the call or
    its value `is_said`: without it the call would do more than was asked."""
    if flaw.kind != "unknown_argument" or not flaw.at:
        return
    name, closed = str(flaw.at[-1]), is_closed(schema, flaw.at[:-1])
    if not closed and not (undeclared and len(flaw.at) == 1 and _is_foreign(schema, name)):
        return
    declared = find_declared(schema, flaw.at[:-1])
    around = find_value(arguments, flaw.at[:-1])
    if is_guard(name) or (is_said is not None and is_said(around[name])):
        return
    missing = [one for one in declared if is_required(schema, (*flaw.at[:-1], one))]
    if any(one not in around for one in missing) or any(
        is_reminiscent(name, one) for one in declared
    ):
        return
    why = "forbids" if closed else "does not name"
    step = f"dropped {format_place(flaw.at)}, which the contract {why}"
    yield Change(_remove_at(arguments, flaw.at), step)


def _is_foreign(schema: Schema, name: str) -> bool:
    """Whether a contract says which arguments there are, and knows none of this name, neither
    within another."""
    listed = any("properties" in branch for branch in iterate_branches(schema, schema))
    declared = collect_properties(schema, schema).values()
    return listed and not any(name in collect_properties(one, schema) for one in declared)


def _propose_names(schema: Schema, arguments: Any, flaw: Flaw) -> Iterator[Change]:
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
            step = f"{place}: {name!r} became {meant!r}"
            yield Change(_rename_at(arguments, flaw.at[:-1], name, meant), step, True)


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
