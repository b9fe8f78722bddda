"""Wrong calls that their contracts take: the operators of `bench_mutants`, seeded.

Each reads the good call, the tools' contracts and *donors*: reference calls of other tasks in the
same first state. None sees a task's end state or answer, the world's facts, or a proof.

    wrong_value     another value that is plausible there: a donor's, another member of an enum, the
                    other truth value, a number some steps off, a text with one word exchanged
    wrong_unit      a number, alone or in a text, as it would be in another unit: times or by 10,
                    100, 1000, 60, 24 or 1024, or counted from 0 in place of 1
    wrong_target    the same done to something else: the path, name, id, cell or branch of a donor;
                    in SQL a donor's WHERE
    lookalike_tool  the same arguments sent to a tool of the same server that takes them, most alike
                    by name and description
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from difflib import SequenceMatcher
from random import Random
from typing import Any

from assets.contracts.repair.problems import find_problems
from assets.contracts.validate import validate_call
from assets.outcomes.worlds.perturb import Leaf, replace_leaf, walk_leaves
from assets.outcomes.worlds.task import TaskCall
from assets.vectors.lexicon import split_identifier

OPERATORS = ("wrong_value", "wrong_unit", "wrong_target", "lookalike_tool")
FACTORS = (10, 100, 1000, 60, 24, 1024)
WORDS = ("amber", "harbour", "velvet", "orchard", "lantern", "granite", "meadow", "copper")
LOOKALIKES = 2  # tools that one call is sent to
# Parts of an argument's name that say that it names something: what is acted on, or where.
TARGETS = {
    *("path", "paths", "file", "files", "filepath", "source", "destination", "folder", "directory"),
    *("from", "to", "table", "sheet", "branch", "revision", "object", "target", "cell", "range"),
    *("at", "id", "name", "names", "base", "start", "point", "column", "columns", "where"),
}
_SQL = re.compile(r"\s*(SELECT|INSERT|UPDATE|DELETE|CREATE)\b", re.IGNORECASE)
_WHERE = re.compile(r"\bWHERE\b.*", re.IGNORECASE | re.DOTALL)
_NUMBER = re.compile(r"(?<![\w.\-/])\d+(?:\.\d+)?(?![\w.\-/])")
_WORD = re.compile(r"[A-Za-z]{3,}")
_QUOTED = re.compile(r"'([^']*)'")

Contracts = Mapping[str, Mapping[str, Any]]
Donors = Mapping[tuple[str, Leaf], Sequence[Any]]


@dataclass(frozen=True)
class Mutant:
    """A wrong call. operator: of OPERATORS."""

    operator: str
    call: TaskCall


def collect_donors(calls: Iterable[TaskCall]) -> dict[tuple[str, Leaf], list[Any]]:
    """(tool, place among its arguments) -> the different values there; all places of one list are
    one."""
    found: dict[tuple[str, Leaf], list[Any]] = defaultdict(list)
    for call in calls:
        for path, value in walk_leaves(call.arguments):
            own = found[call.tool, name_place(path)]
            if value not in own:
                own.append(value)
    return dict(found)


def make_mutants(call: TaskCall, contracts: Contracts, donors: Donors, rng: Random) -> list[Mutant]:
    """All different mutants of a call of one of these tools that its contract takes."""
    contract = contracts[call.tool]
    found: dict[str, Mutant] = {}
    for path, value in walk_leaves(call.arguments):
        others = [one for one in donors.get((call.tool, name_place(path)), ()) if one != value]
        schema = read_schema(contract, path)
        for operator, changed in _change_leaf(path, value, others, schema, rng):
            made = TaskCall(call.tool, replace_leaf(call.arguments, path, changed))
            if made != call and not validate_call(contract, made.arguments):
                found.setdefault(repr(made), Mutant(operator, made))
    for made in redirect_call(call, contracts):
        found.setdefault(repr(made), Mutant("lookalike_tool", made))
    return list(found.values())


def choose_mutants(mutants: Sequence[Any], most: int, rng: Random) -> list[Any]:
    """At most so many, as evenly from each operator as there are; any objects with `operator`."""
    left = [[mutant for mutant in mutants if mutant.operator == name] for name in OPERATORS]
    for own in left:
        rng.shuffle(own)
    chosen: list[Any] = []
    while any(left) and len(chosen) < most:
        for own in left:
            if own and len(chosen) < most:
                chosen.append(own.pop())
    return chosen


def redirect_call(call: TaskCall, contracts: Contracts) -> list[TaskCall]:
    """The call sent to the tools that look most like its own, with those of its arguments that
    they know; none that lacks all of them or takes them not."""
    own = contracts[call.tool]
    ranked = sorted(
        (name for name in contracts if name != call.tool),
        key=lambda name: (-_measure_likeness(own, contracts[name]), name),
    )
    found = []
    for name in ranked:
        known = contracts[name].get("inputSchema", {}).get("properties") or {}
        kept = {key: deepcopy(one) for key, one in call.arguments.items() if key in known}
        if bool(kept) == bool(call.arguments) and not find_problems(contracts[name], kept):
            found.append(TaskCall(name, kept))
    return found[:LOOKALIKES]


def name_place(path: Leaf) -> Leaf:
    """A place without the numbers in lists."""
    return tuple(part for part in path if isinstance(part, str))


def read_schema(contract: Mapping[str, Any], path: Leaf) -> Mapping[str, Any]:
    """The schema of a place, as far as plain `properties` and `items` lead to it."""
    here: Any = contract.get("inputSchema")
    for part in path:
        if not isinstance(here, Mapping):
            return {}
        if isinstance(part, int):
            here = here.get("items")
        else:
            here = (here.get("properties") or {}).get(part)
    return here if isinstance(here, Mapping) else {}


def _change_leaf(
    path: Leaf, value: Any, others: Sequence[Any], schema: Mapping[str, Any], rng: Random
) -> Iterator[tuple[str, Any]]:
    """(operator, another value)."""
    if isinstance(value, bool):
        yield "wrong_value", not value
    elif isinstance(value, int | float):
        yield "wrong_value", value + rng.choice((-3, -2, -1, 1, 2, 3, 5))
        yield "wrong_unit", scale_number(value, rng)
    elif isinstance(schema.get("enum"), list):
        choices = [one for one in schema["enum"] if one != value]
        if choices:
            yield "wrong_value", rng.choice(choices)
    elif _SQL.match(value):
        yield from _change_statement(value, others, rng)
    elif is_target(path):
        if others:
            yield "wrong_target", rng.choice(others)
    else:
        if others:
            yield "wrong_value", rng.choice(others)
        yield from _change_text(value, rng)


def is_target(path: Leaf) -> bool:
    """Whether the name of an argument says that it names something."""
    names = name_place(path)
    return bool(names and TARGETS & set(split_identifier(names[-1])))


def scale_number(value: float, rng: Random) -> float:
    """A number as it would be in another unit, or counted from 0; a whole one stays whole."""
    factor = rng.choice(FACTORS)
    if isinstance(value, float):
        return rng.choice((value * factor, value / factor))
    return rng.choice((value * factor, value - 1 if value % factor else value // factor))


def _change_statement(value: str, others: Sequence[Any], rng: Random) -> Iterator[tuple[str, str]]:
    where = _WHERE.search(value)
    wheres = [found[0] for other in others if (found := _WHERE.search(str(other)))]
    wheres = [one for one in wheres if where and one != where[0]]
    if where and wheres:
        yield "wrong_target", value[: where.start()] + rng.choice(wheres)
    head = value[: where.start()] if where else value
    yield from (
        (operator, changed + value[len(head) :]) for operator, changed in _change_numbers(head, rng)
    )
    if quoted := list(_QUOTED.finditer(head)):
        one = rng.choice(quoted)
        word = rng.choice(WORDS)
        yield "wrong_value", f"{value[: one.start(1)]}{word}{value[one.end(1) :]}"


def _change_text(value: str, rng: Random) -> Iterator[tuple[str, str]]:
    yield from _change_numbers(value, rng)
    if words := list(_WORD.finditer(value)):
        one = rng.choice(words)
        yield "wrong_value", f"{value[: one.start()]}{rng.choice(WORDS)}{value[one.end() :]}"


def _change_numbers(value: str, rng: Random) -> Iterator[tuple[str, str]]:
    """One number of a text, some steps off and in another unit."""
    numbers = list(_NUMBER.finditer(value))
    if not numbers:
        return
    one = rng.choice(numbers)
    number = float(one[0]) if "." in one[0] else int(one[0])
    for operator, other in (
        ("wrong_value", number + rng.choice((1, 2, 3, 5, 7))),
        ("wrong_unit", scale_number(number, rng)),
    ):
        yield operator, f"{value[: one.start()]}{other}{value[one.end() :]}"


def _measure_likeness(one: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    """From 0 to 2: how alike the names are, and which share of all words of the
    descriptions is common."""
    names = SequenceMatcher(None, str(one.get("name")), str(other.get("name"))).ratio()
    words = [set(_WORD.findall(str(tool.get("description")).lower())) for tool in (one, other)]
    either = words[0] | words[1]
    return names + (len(words[0] & words[1]) / len(either) if either else 0.0)
