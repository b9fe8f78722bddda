"""AST match: is a called tool call the expected one, read through the tool's schema?

Belongs here: verdicts on one call and on calls made at once. Pure functions, for any JSON.
Does not belong here: when two values are the same (`match_values.py`), BFCL's rules (`bfcl.py`),
whether a call is valid (`validate.py`), and rates over many calls (`training/metrics.py`).
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from assets.contracts.match_assign import assign
from assets.contracts.match_result import (
    CallVerdict,
    MatchResult,
    ParallelResult,
    f1,
    gravest,
    kind_of,
)
from assets.contracts.match_schema import parts_of
from assets.contracts.match_values import exact_form, name_of, object_forms, size_of
from assets.contracts.work import TooMuchWork, limited

__all__ = ["CallVerdict", "MatchResult", "ParallelResult"]
__all__ += ["match_call", "match_calls", "match_parallel"]

Call = Mapping[str, Any]
Forms = dict[str, tuple[str, bool]]
Sided = list[tuple[int, "_Read"]]
# Steps for one call: some 0.2 s, and what its own size may need (a value takes 3 to 8). The largest
# call of a real contract takes a few thousand.
_MAX_STEPS, _STEPS_A_VALUE = 20_000, 32
_MAX_CELLS = 400_000  # parameters compared for one assignment, some 1 s; beyond, in order
_MOST = 4095  # parameters of one kind that are weighed


def match_call(
    schema: Mapping[str, Any],
    expected: Call,
    called: Call,
    *,
    bfcl_compat: bool = False,
    language: str = "python",
) -> MatchResult:
    """Compares two calls `{"name", "arguments"}` through the input schema of the expected tool.

    Numbers compare by value (5 = 5.0), true is never 1, omitted means the schema's default,
    arrays are ordered unless `uniqueItems`; only free text is normalised (case, white space, end
    punctuation), never an id, path, code or enum. Never raises on JSON. A schema that asks for more
    than 20,000 steps (only one made to do so) is left aside: its values are compared exactly.

    bfcl_compat: BFCL's verdict instead, with each expected argument the only allowed value.
    """
    if bfcl_compat:
        from assets.contracts.bfcl import compat_call

        return compat_call(schema, expected, called, language)
    return _compared(_read(schema, expected), _read(schema, called))


def match_calls(
    schemas: Mapping[str, Mapping[str, Any]], expected: Sequence[Call], called: Sequence[Call]
) -> tuple[bool, list[int | None]]:
    """(Whether every expected call was made and no other, for each expected call the position of
    the call that fulfils it, or None.)"""
    found = match_parallel(schemas, expected, called)
    return found.match, found.assigned


def match_parallel(
    schemas: Mapping[str, Mapping[str, Any]], expected: Sequence[Call], called: Sequence[Call]
) -> ParallelResult:
    """Compares calls made at once, in any order. schemas: tool name -> input schema.

    The assignment fulfils as many expected calls as any could; among those it gets the most values
    right, then the most names. What is left of both sides is another tool's call, then calls that
    nobody made and calls too many.
    """
    wants, haves = ([_read_of(schemas, call) for call in side] for side in (expected, called))
    partner = _best_pairs(wants, haves)
    found = {row: _compared(wants[row], haves[column]) for row, column in partner.items()}
    verdicts = [
        CallVerdict(want.name, row, partner[row], *_told(found[row]))
        if row in partner
        else CallVerdict(want.name, row, None, False, "too_few_calls", want.all("missing"))
        for row, want in enumerate(wants)
    ]
    taken = set(partner.values())
    verdicts += [
        CallVerdict(have.name, None, column, False, "too_many_calls", have.all("extra"))
        for column, have in enumerate(haves)
        if column not in taken
    ]
    kinds = [one.error_kind for one in verdicts]
    kind = "no_call" if wants and not haves else gravest(kinds)
    tool = Counter(one.name for one in wants) == Counter(one.name for one in haves)
    names, values = _totals(verdicts, wants, haves)
    return ParallelResult(kind is None, kind, verdicts, tool, f1(names), f1(values))


@dataclass(frozen=True)
class _Read:
    """One call with its arguments in normal form; None where it holds none."""

    is_call: bool
    name: str
    forms: Forms | None

    @cached_property
    def key(self) -> tuple[Any, ...]:
        """The same for two calls that match."""
        given = [(name, held) for name, (held, usual) in (self.forms or {}).items() if not usual]
        return (self.name, self.forms is None, *sorted(given))

    def all(self, verdict: str) -> dict[str, str]:
        return dict.fromkeys(self.forms or (), verdict)


def _read_of(schemas: Mapping[str, Mapping[str, Any]], call: Any) -> _Read:
    name = call.get("name") if isinstance(call, Mapping) else None
    return _read(schemas.get(name, {}) if isinstance(name, str) else {}, call)


def _read(schema: Any, call: Any) -> _Read:
    if not isinstance(call, Mapping):
        return _Read(False, "", None)
    name, given = call.get("name"), call.get("arguments")
    given = {} if given is None else given
    told = name if isinstance(name, str) else f"{type(name).__name__} {name!r:.80}"
    return _Read(True, told, _forms(schema, given) if isinstance(given, Mapping) else None)


def _forms(schema: Any, arguments: Mapping[str, Any]) -> Forms:
    root = schema if isinstance(schema, Mapping) else {}
    try:
        with limited(_MAX_STEPS + _STEPS_A_VALUE * size_of(arguments)):
            return object_forms(arguments, parts_of(root, root, arguments), root, 0)
    except (TooMuchWork, RecursionError):
        return {name_of(key): (exact_form(item), False) for key, item in arguments.items()}


def _compared(want: _Read, have: _Read) -> MatchResult:
    if not have.is_call:
        return MatchResult(False, "not_a_call", tool=False)
    if want.name != have.name or not want.is_call:
        return MatchResult(False, "wrong_tool", tool=False)
    if want.forms is None or have.forms is None:
        return MatchResult(False, "not_an_object")
    verdicts = {
        name: _parameter(want.forms.get(name), have.forms.get(name))
        for name in sorted(want.forms.keys() | have.forms.keys())
    }
    kind = kind_of(verdicts)
    return MatchResult(kind is None, kind, verdicts)


def _parameter(want: tuple[str, bool] | None, have: tuple[str, bool] | None) -> str:
    if want is None or have is None:
        given = want or have
        return "default" if given and given[1] else "extra" if want is None else "missing"
    if want[0] == have[0]:
        return "match"
    return "wrong_value" if want[0][:1] == have[0][:1] else "wrong_type"


def _best_pairs(wants: Sequence[_Read], haves: Sequence[_Read]) -> dict[int, int]:
    """Expected -> called positions: calls that match, then calls of one tool, then what is left.

    Matching is an equivalence, so taking any equal call leaves as many for the others.
    """
    pairs = _paired(wants, haves, {}, lambda one: one.key, _in_order)
    pairs |= _paired(wants, haves, pairs, lambda one: one.name, _most_right)
    return pairs | _paired(wants, haves, pairs, lambda one: None, _in_order)


def _paired(
    wants: Sequence[_Read],
    haves: Sequence[_Read],
    taken: Mapping[int, int],
    group: Callable[[_Read], Any],
    choose: Callable[[Sided, Sided], Iterable[tuple[int, int]]],
) -> dict[int, int]:
    """Pairs of what is not taken yet, chosen within each group."""
    columns: dict[Any, Sided] = defaultdict(list)
    used = set(taken.values())
    for column, have in enumerate(haves):
        if column not in used:
            columns[group(have)].append((column, have))
    rows: dict[Any, Sided] = defaultdict(list)
    for row, want in enumerate(wants):
        if row not in taken and group(want) in columns:
            rows[group(want)].append((row, want))
    return dict(pair for key, some in rows.items() for pair in choose(some, columns[key]))


def _in_order(rows: Sided, columns: Sided) -> Iterator[tuple[int, int]]:
    for (row, _), (column, _) in zip(rows, columns, strict=False):
        yield row, column


def _most_right(rows: Sided, columns: Sided) -> Iterable[tuple[int, int]]:
    sizes = [sum(len(one.forms or ()) + 1 for _, one in side) for side in (rows, columns)]
    if len(rows) * sizes[1] + len(columns) * sizes[0] > _MAX_CELLS:
        return _in_order(rows, columns)
    gains = [[_gain(_compared(want, have)) for _, have in columns] for _, want in rows]
    chosen = zip(rows, assign(gains), strict=True)
    return [(row, columns[place][0]) for (row, _), place in chosen if place is not None]


def _gain(result: MatchResult) -> int:
    """Values right, then names right, then few names wrong, then types right, as one number; all of
    it is weighed, so that calls in another order get the same verdict."""
    names, missing, extra = result.name_counts()
    types = sum(verdict == "wrong_value" for verdict in result.per_parameter.values())
    gain = 0
    for count in (result.value_counts()[0], names, _MOST - missing - extra, types):
        gain = gain * (_MOST + 1) + max(0, min(count, _MOST))
    return gain


def _told(result: MatchResult) -> tuple[bool, str | None, dict[str, str]]:
    return result.match, result.error_kind, result.per_parameter


def _totals(verdicts: Sequence[CallVerdict], wants: Sequence[_Read], haves: Sequence[_Read]) -> Any:
    """((right, missing, extra) names, the same of values) of all calls together."""
    names, values = Counter(), Counter()
    for one in verdicts:
        parts = MatchResult(one.match, one.error_kind, one.per_parameter)
        names.update(dict(enumerate(parts.name_counts())))
        values.update(dict(enumerate(parts.value_counts())))
        if one.error_kind in ("wrong_tool", "not_an_object", "not_a_call"):
            # No parameter was compared: all that were asked are missing, all given ones too many.
            for place, read in ((1, wants[one.expected or 0]), (2, haves[one.called or 0])):
                names[place] += len(read.forms or ())
                values[place] += len(read.forms or ())
    return tuple(tuple(counted[i] for i in range(3)) for counted in (names, values))
