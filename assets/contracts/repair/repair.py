"""Repair: changes a call that does not fit its contract until it does, without guessing.

1. Arguments given as JSON text, or wrapped in `arguments`, `params`, … are unwrapped.
2. A name is matched by case, separators or a typing slip; a name that is present is kept.
3. A value is converted: text to a number, boolean, list or object, and the reverse; one value to a
   list; a choice by case, separators or spelling; an optional null is removed; numbers with
   separators or another unit, dates in another format.
4. An argument moves to the level where the contract has it, or to a related name where one is
   missing and one is undeclared.
5. An undeclared argument that resembles nothing is dropped where the contract forbids it, unless it
   guards or narrows the call or the user said it.

A missing argument is never invented.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from assets.contracts.repair.json_text import parse_arguments
from assets.contracts.repair.names import (
    find_nearest,
    find_same_name,
    fold_name,
    is_guard,
    is_reminiscent,
    split_identifier,
)
from assets.contracts.repair.problems import (
    ABSENT,
    Place,
    Problem,
    describe_problems,
    find_declared,
    find_schema,
    find_types,
    find_value,
    format_place,
    format_value,
    is_closed,
    is_required,
    list_alternatives,
)
from assets.contracts.repair.values import propose_values, read_named_values, says_nothing
from assets.contracts.schema_shapes import (
    TooMuchWork,
    collect_properties,
    iterate_branches,
    limit_steps,
    name_json_type,
    read_list,
)
from assets.contracts.validate import Flaw, validate_call
from warehouse.json_types import Contract, JsonObject, Schema


@dataclass(frozen=True)
class ProposedChange:
    """opens: it may uncover flaws that can be repaired in their turn."""

    made: Any
    step: str
    opens: bool = False


# Words that tell one of two ends, or of two that are easily confused.
_ENDS = {
    *("from", "to", "source", "src", "origin", "target", "destination", "dest", "dst", "start"),
    *("begin", "end", "first", "last", "min", "max", "minimum", "maximum", "before", "after"),
    *("since", "until", "older", "newer", "old", "new", "in", "out", "input", "output"),
    *("inbound", "outbound", "left", "right", "top", "bottom", "upper", "lower", "up", "down"),
    *("previous", "prev", "next", "parent", "child", "sender", "recipient", "receiver", "public"),
    *("private", "secret", "include", "exclude", "not", "no", "cc", "bcc", "buy", "sell", "debit"),
    *("credit", "latitude", "longitude", "lat", "lng", "lon", "width", "height", "row", "column"),
}
# Words that say nothing of which thing is meant.
_PLAIN = {"name", "id", "value", "text", "string", "str", "param", "number", "time", "date", "list"}


def propose_nesting(schema: Schema, arguments: JsonObject) -> Iterator[ProposedChange]:
    """The arguments with every undeclared name where the contract has it."""
    declared = collect_properties(schema, schema)
    unknown = [name for name in arguments if name not in declared]
    if not unknown:
        return
    inner = {
        name: collect_properties(of, schema)
        for name, of in declared.items()
        if "object" in find_types(of, schema)
    }
    moves: dict[str, tuple[str, str]] = {}
    for name in unknown:
        head, dot, tail = str(name).partition(".")
        if dot and tail in inner.get(head, ()):
            moves[name] = (head, tail)
            continue
        homes = [home for home, names in inner.items() if name in names]
        if len(homes) == 1:
            moves[name] = (homes[0], str(name))
    repaired = _move_names(arguments, moves)
    if moves and repaired is not None:
        homes = ", ".join(dict.fromkeys(home for home, _ in moves.values()))
        step = f"$: moved {', '.join(moves)[:100]} into {homes[:100]}"
        yield ProposedChange(repaired, step, True)
    for name in unknown:
        value = arguments[name]
        if not isinstance(value, Mapping) or not value or is_guard(str(name)):
            continue
        if all(inside in declared and inside not in arguments for inside in value):
            others = {key: other for key, other in arguments.items() if key != name}
            step = f"$: took the arguments out of {str(name)[:80]!r}"
            yield ProposedChange({**others, **value}, step, True)


def _move_names(arguments: JsonObject, moves: Mapping[str, tuple[str, str]]) -> Any:
    """None where something is at the place already."""
    repaired = {name: value for name, value in arguments.items() if name not in moves}
    for name, (home, inner) in moves.items():
        around = repaired.get(home, {})
        if not isinstance(around, Mapping) or inner in around:
            return None
        repaired[home] = {**around, inner: arguments[name]}
    return repaired


def propose_pairing(schema: Schema, arguments: JsonObject, tool: str) -> Iterator[ProposedChange]:
    """The only undeclared argument under the name of the only required one that is missing, where
    its type fits and the names have to do with each other."""
    declared = collect_properties(schema, schema)
    unknown = [name for name in arguments if name not in declared]
    required = schema.get("required") or ()
    missing = [name for name in required if name in declared and name not in arguments]
    if len(unknown) != 1 or len(missing) != 1:
        return
    [name], [meant] = unknown, missing
    types = find_types(declared[meant], schema)
    fits = name_json_type(arguments[name]) in types | ({"integer"} if "number" in types else set())
    if fits and _is_related(str(name), str(meant), declared[meant], tool):
        step = f"$: {str(name)[:80]!r} became {meant!r}, the only one that is missing"
        yield ProposedChange(_rename_at(arguments, (), name, meant), step, True)


def _is_related(name: str, meant: str, schema: Any, tool: str) -> bool:
    """Whether one name is the other with words that say nothing new, or begins it, or occurs in its
    description. Not where one of them names one of two ends, or each has a word of its own:
    `from_account` is never `to_account`, nor `user_id` `group_id`."""
    ours, theirs = ({w.removesuffix("s") for w in split_identifier(n)} for n in (name, meant))
    our_words, besides = ours - theirs, theirs - ours
    if (our_words | besides) & _ENDS or re.findall(r"\d+", name) != re.findall(r"\d+", meant):
        return False
    if ours & theirs:
        plain_words = _PLAIN | {word.removesuffix("s") for word in split_identifier(tool)}
        return not (our_words and besides) and our_words | besides <= plain_words
    if len(short := fold_name(name)) > 2 and fold_name(meant).startswith(short):
        return True
    description = schema.get("description") if isinstance(schema, Mapping) else None
    words = str(description or "").lower().split()[:200]
    return bool(ours) and ours <= {w.strip(".,;:()'\"`").removesuffix("s") for w in words}


_WRAPPERS = ("arguments", "args", "params", "parameters", "input", "inputs", "kwargs", "tool_input")
_BESIDE = ("name", "tool", "tool_name", "function", "type", "id", "method", "server")


def unwrap_arguments(schema: Schema, arguments: Any, tool: str) -> Iterator[ProposedChange]:
    """The call itself, where it was given as text, as nothing, or inside something else."""
    if arguments is None:
        yield ProposedChange({}, "no arguments are an empty object", True)
    if isinstance(arguments, str):
        parsed = _read_object(arguments)
        if parsed is not None:
            yield ProposedChange(parsed, "the arguments were JSON text: read it", True)
        return
    if isinstance(arguments, list):
        named = read_named_values(arguments)
        if named is not None:
            yield ProposedChange(named, "the arguments were a list of names and values", True)
        elif len(arguments) == 1 and isinstance(arguments[0], str | int | float):
            required = read_list(schema.get("required"))
            if len(required) == 1:
                step = f"the one argument without a name became {required[0]!r}"
                yield ProposedChange({required[0]: arguments[0]}, step, True)
        elif not arguments:
            yield ProposedChange({}, "an empty list of arguments is an empty object", True)
        elif len(arguments) == 1 and isinstance(arguments[0], dict):
            step = "the arguments were in a list of one: took it out"
            yield ProposedChange(arguments[0], step, True)
    if not isinstance(arguments, Mapping):
        return
    declared = collect_properties(schema, schema)
    for name, value in arguments.items():
        if name in declared or (name not in _WRAPPERS and name != tool):
            continue
        # What else is there belongs to the wrapping: the tool's name, an id; no argument of it.
        others = [other for other in arguments if other != name]
        if all(o in _BESIDE and (o not in declared or arguments[o] == tool) for o in others):
            inner = _read_object(value) if isinstance(value, str) else value
            if isinstance(inner, dict):
                step = f"the arguments were wrapped in {name!r}: took them out"
                yield ProposedChange(inner, step, True)


def _read_object(text: str) -> dict[str, Any] | None:
    """The one object that a text of arguments is, to its end."""
    parsed = parse_arguments(text)
    whole = len(parsed.values) == 1 and not parsed.cut
    return parsed.values[0] if whole and isinstance(parsed.values[0], dict) else None


def propose_changes(schema: Schema, arguments: Any, flaw: Flaw) -> Iterator[ProposedChange]:
    """The changes that one flaw of the arguments suggests."""
    if not flaw.at:
        return
    if flaw.kind in ("unknown_argument", "missing_required"):
        yield from _propose_names(schema, arguments, flaw)
        return
    value = find_value(arguments, flaw.at)
    if says_nothing(value) and not is_required(schema, flaw.at):
        was = format_value(value)
        step = f"{format_place(flaw.at)} was {was} and is optional: left out"
        yield ProposedChange(_remove_at(arguments, flaw.at), step)
    if value is ABSENT:
        return
    name = next((step_name for step_name in reversed(flaw.at) if isinstance(step_name, str)), "")
    for other, opens in propose_values(value, find_schema(schema, flaw.at), schema, name):
        before, after = format_value(value, 60), format_value(other, 60)
        step = f"{format_place(flaw.at)}: {before} became {after}"
        yield ProposedChange(_replace_at(arguments, flaw.at, other), step, opens)


def propose_drops(
    schema: Schema,
    arguments: Any,
    flaw: Flaw,
    undeclared: bool = False,
    is_said: Callable[[Any], bool] | None = None,
) -> Iterator[ProposedChange]:
    """The call without an argument that the contract forbids; with `undeclared` also without one at
    the top that the contract does not name. Kept where a declared name is near to it or a required
    one is missing, as its value may be meant for that; also where its name guards or narrows the
    call or its value `is_said`, as the call would then do more than was asked."""
    if flaw.kind != "unknown_argument" or not flaw.at:
        return
    name, closed = str(flaw.at[-1]), is_closed(schema, flaw.at[:-1])
    if not closed and not (undeclared and len(flaw.at) == 1 and _is_foreign(schema, name)):
        return
    declared = find_declared(schema, flaw.at[:-1])
    around = find_value(arguments, flaw.at[:-1])
    if is_guard(name) or (is_said is not None and is_said(around[name])):
        return
    required = [other for other in declared if is_required(schema, (*flaw.at[:-1], other))]
    if any(other not in around for other in required):
        return
    if any(is_reminiscent(name, other) for other in declared):
        return
    why = "forbids" if closed else "does not name"
    step = f"dropped {format_place(flaw.at)}, which the contract {why}"
    yield ProposedChange(_remove_at(arguments, flaw.at), step)


def _is_foreign(schema: Schema, name: str) -> bool:
    """Whether a contract lists its arguments, and has none of this name at any second level."""
    declared = collect_properties(schema, schema).values()
    nested = any(name in collect_properties(part, schema) for part in declared)
    return not nested and any("properties" in part for part in iterate_branches(schema, schema))


def _propose_names(schema: Schema, arguments: Any, flaw: Flaw) -> Iterator[ProposedChange]:
    """The name that was meant by one that nobody declared; a name that is there stays."""
    around = find_value(arguments, flaw.at[:-1])
    if not isinstance(around, Mapping):
        return
    declared = dict.fromkeys(find_declared(schema, flaw.at[:-1]))
    free = [name for name in declared if name not in around]
    unknown = [str(name) for name in around if name not in declared]
    wrong = [str(flaw.at[-1])] if flaw.kind == "unknown_argument" else unknown
    for alike in (find_same_name, find_nearest):
        for name in wrong:
            meant = alike(name, free)
            # Of two that both mean it, neither is sure.
            if meant is None or any(alike(other, [meant]) for other in unknown if other != name):
                continue
            step = f"{format_place(flaw.at[:-1])}: {name!r} became {meant!r}"
            yield ProposedChange(_rename_at(arguments, flaw.at[:-1], name, meant), step, True)


def _replace_at(arguments: Any, at: Place, value: Any) -> Any:
    """A copy with another value at a place."""
    if not at:
        return value
    copy: Any = dict(arguments) if isinstance(arguments, Mapping) else list(arguments)
    copy[at[0]] = _replace_at(copy[at[0]], at[1:], value)
    return copy


def _remove_at(arguments: Any, at: Place) -> Any:
    around = find_value(arguments, at[:-1])
    if isinstance(around, list):
        return arguments
    remaining = {name: value for name, value in around.items() if name != at[-1]}
    return _replace_at(arguments, at[:-1], remaining)


def _rename_at(arguments: Any, at: Place, name: str, meant: str) -> Any:
    around = find_value(arguments, at)
    repaired = {meant if key == name else key: value for key, value in around.items()}
    return _replace_at(arguments, at, repaired)


_TRIES = 120  # validations of one repair; 13,163 golden calls with one fault took at most 5
_STEPS = 150_000  # of the work that all of them may take together: some 3 s
_DEEP = 3  # changes that only pay after another one: a text that holds an object with faults


@dataclass(frozen=True)
class RepairResult:
    """arguments: after the repair. steps: what was changed, in words, in order. problems_left: as
    of `describe_problems`; [] for a call that fits."""

    arguments: Any
    steps: list[str] = field(default_factory=list)
    problems_left: list[Problem] = field(default_factory=list)


class _TriesExhausted(Exception):
    """The tries are spent."""


def repair_call(
    contract: Contract,
    arguments: Any,
    *,
    drop_undeclared: bool = False,
    is_said: Callable[[Any], bool] | None = None,
) -> RepairResult:
    """The call with everything repaired that can be. Never raises; what cannot be judged within
    the bounds is left as it is. drop_undeclared: also what the contract does not name and does not
    forbid either. is_said: whether the user said a value, which then is not dropped."""
    flaws = validate_call(contract, arguments)
    if not flaws:
        return RepairResult(arguments)
    schema = contract.get("inputSchema")
    if not isinstance(schema, Mapping) or _is_unusable(flaws):
        return RepairResult(arguments, [], describe_problems(contract, arguments, flaws))
    try:
        with limit_steps(_STEPS) as work:
            arguments_now, left, steps = _RepairLadder(
                contract, schema, drop_undeclared, is_said
            ).climb(deepcopy(arguments), flaws, _DEEP)
        spent = work.left < 0
    except (_TriesExhausted, TooMuchWork, RecursionError):
        spent = True
    if spent:  # half a repair would be another one the next time
        arguments_now, left, steps = arguments, flaws, []
    return RepairResult(arguments_now, steps, describe_problems(contract, arguments_now, left))


@dataclass
class _RepairLadder:
    contract: Contract
    schema: Schema
    drop_undeclared: bool = False
    is_said: Callable[[Any], bool] | None = None
    tries: int = 0

    def climb(
        self, arguments: Any, flaws: list[Flaw], depth: int
    ) -> tuple[Any, list[Flaw], list[str]]:
        """Takes the first change that leaves fewer flaws until there is none."""
        steps: list[str] = []
        while flaws:
            step = self._try_step(arguments, flaws, depth)
            if step is None:
                break
            arguments, flaws, more = step
            steps += more
        return arguments, flaws, steps

    def _try_step(
        self, arguments: Any, flaws: list[Flaw], depth: int
    ) -> tuple[Any, list[Flaw], list[str]] | None:
        for change in self._list_changes(arguments, flaws):
            words = [change.step]
            repaired, left = change.made, self._find_flaws(change.made)
            if left is None:
                continue
            if left and change.opens and depth > 0 and _weigh_change(left) >= _weigh_change(flaws):
                repaired, left, more = self.climb(repaired, left, depth - 1)
                words += more
            if _weigh_change(left) < _weigh_change(flaws):
                return repaired, left, words
        return None

    def _list_changes(self, arguments: Any, flaws: list[Flaw]) -> Iterator[ProposedChange]:
        tool = str(self.contract.get("name", ""))
        yield from unwrap_arguments(self.schema, arguments, tool)
        if isinstance(arguments, Mapping):
            if any(not flaw.at for flaw in flaws):
                yield from self._propose_forms(arguments)
            for flaw in flaws:
                yield from propose_changes(self.schema, arguments, flaw)
            if any(flaw.kind == "unknown_argument" for flaw in flaws):
                yield from propose_nesting(self.schema, arguments)
                yield from propose_pairing(self.schema, arguments, tool)
            for flaw in flaws:
                options = (self.drop_undeclared, self.is_said)
                yield from propose_drops(self.schema, arguments, flaw, *options)

    def _propose_forms(self, arguments: JsonObject) -> Iterator[ProposedChange]:
        """The call in the only form of several that a repair can give it."""
        branches = list_alternatives(self.schema)
        named = [branch for branch in branches if _is_named(branch, arguments)]
        contracts = [{**self.contract, "inputSchema": branch} for branch in named or branches]
        results = [repair_call(contract, arguments, is_said=self.is_said) for contract in contracts]
        results = [item for item in results if item.steps and not item.problems_left]
        if results and all(item.arguments == results[0].arguments for item in results):
            yield ProposedChange(results[0].arguments, "; ".join(results[0].steps))

    def _find_flaws(self, arguments: Any) -> list[Flaw] | None:
        """None where the arguments cannot be judged."""
        self.tries += 1
        if self.tries > _TRIES:
            raise _TriesExhausted
        flaws = validate_call(self.contract, arguments)
        return None if _is_unusable(flaws) else flaws


def _is_named(branch: JsonObject, arguments: JsonObject) -> bool:
    """Whether an argument has the constant of this form, as `kind` has."""
    properties = collect_properties(branch, branch)
    parts = ((properties.get(name), value) for name, value in arguments.items())
    return any(isinstance(part, Mapping) and "const" in part and part["const"] == value
               for part, value in parts)  # fmt: skip


def _weigh_change(flaws: list[Flaw]) -> int:
    """What is no object at all is worse than any flaws in one (at most 50 are listed)."""
    return sum(100 if flaw.kind == "not_an_object" else 1 for flaw in flaws)


def _is_unusable(flaws: list[Flaw]) -> bool:
    return any(flaw.kind == "bad_schema" for flaw in flaws)
