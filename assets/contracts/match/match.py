"""AST match: is a called tool call the expected one, read through the tool's schema?"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from assets.contracts.match.assignment import assign_rows
from assets.contracts.match.read_call import ReadCall, read_call
from assets.contracts.match.result import (
    CallVerdict,
    MatchResult,
    ParallelResult,
    compute_f1,
    find_kind,
    pick_gravest,
)
from warehouse.json_types import JsonObject, Schema

Call = Mapping[str, Any]
Sided = list[tuple[int, ReadCall]]
_MAX_CELLS = 400_000  # parameters compared for one assignment, some 1 s; beyond, in order
_MOST = 4095  # parameters of one kind that are weighed


def match_call(
    schema: Schema,
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
        from extensions.bench.bfcl.verdict import match_compatible

        return match_compatible(schema, expected, called, language)
    return _compare_calls(ReadCall(schema, expected), ReadCall(schema, called))


def match_parallel(
    schemas: Mapping[str, JsonObject], expected: Sequence[Call], called: Sequence[Call]
) -> ParallelResult:
    """Compares calls made at once, in any order. schemas: tool name -> input schema.

    The assignment fulfils as many expected calls as any could; among those it gets the most values
    right, then the most names. What is left of both sides is another tool's call, then calls that
    nobody made and calls too many.
    """
    wants, haves = ([read_call(schemas, call) for call in side] for side in (expected, called))
    partner = _choose_pairs(wants, haves)
    found = {row: _compare_calls(wants[row], haves[column]) for row, column in partner.items()}
    verdicts = [
        CallVerdict(want.name, row, partner[row], *_build_verdicts(found[row]))
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
    kinds = [verdict.error_kind for verdict in verdicts]
    kind = "no_call" if wants and not haves else pick_gravest(kinds)
    tool = Counter(one.name for one in wants) == Counter(one.name for one in haves)
    names, values = _sum_counts(verdicts, wants, haves)
    return ParallelResult(kind is None, kind, verdicts, tool, compute_f1(names), compute_f1(values))


def _compare_calls(want: ReadCall, have: ReadCall) -> MatchResult:
    if not have.is_call:
        return MatchResult(False, "not_a_call", tool=False)
    if want.name != have.name or not want.is_call:
        return MatchResult(False, "wrong_tool", tool=False)
    if want.given is None or have.given is None:
        return MatchResult(False, "not_an_object")
    names = sorted(want.given.keys() | have.given.keys())
    verdicts = {
        name: _compare_parameter(name, want, have, want.given, have.given) for name in names
    }
    kind = find_kind(verdicts)
    return MatchResult(kind is None, kind, verdicts)


def _compare_parameter(
    name: str, want: ReadCall, have: ReadCall, wanted: dict[str, Any], had: dict[str, Any]
) -> str:
    if name not in had:
        return "default" if want.form(name)[1] else "missing"
    if name not in wanted:
        return "default" if have.form(name)[1] else "extra"
    a, b = wanted[name], had[name]
    # Most arguments of a right call are the same to the letter, which is ten times as fast to see.
    if type(a) is type(b) and isinstance(a, str | int) and a == b and want.parts == have.parts:
        return "match"
    wanted_form, had_form = want.form(name)[0], have.form(name)[0]
    if wanted_form == had_form:
        return "match"
    return "wrong_value" if wanted_form[:1] == had_form[:1] else "wrong_type"


def _choose_pairs(wants: Sequence[ReadCall], haves: Sequence[ReadCall]) -> dict[int, int]:
    """Expected -> called positions: calls that match, then calls of one tool, then what is left.

    Matching is an equivalence, so taking any equal call leaves as many for the others.
    """
    pairs = _pair_calls(wants, haves, {}, lambda one: one.key, _pair_in_order)
    pairs |= _pair_calls(wants, haves, pairs, lambda one: one.name, _count_most_right)
    return pairs | _pair_calls(wants, haves, pairs, lambda one: None, _pair_in_order)


def _pair_calls(
    wants: Sequence[ReadCall],
    haves: Sequence[ReadCall],
    taken: Mapping[int, int],
    group: Callable[[ReadCall], Any],
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


def _pair_in_order(rows: Sided, columns: Sided) -> Iterator[tuple[int, int]]:
    for (row, _), (column, _) in zip(rows, columns, strict=False):
        yield row, column


def _count_most_right(rows: Sided, columns: Sided) -> Iterable[tuple[int, int]]:
    sizes = [sum(len(one.given or ()) + 1 for _, one in side) for side in (rows, columns)]
    alone = len(rows) == len(columns) == 1
    if alone or len(rows) * sizes[1] + len(columns) * sizes[0] > _MAX_CELLS:
        return _pair_in_order(rows, columns)
    gains = [[_compute_gain(_compare_calls(want, have)) for _, have in columns] for _, want in rows]
    chosen = zip(rows, assign_rows(gains), strict=True)
    return [(row, columns[place][0]) for (row, _), place in chosen if place is not None]


def _compute_gain(result: MatchResult) -> int:
    """Values right, then names right, then few names wrong, then types right, as one number; all of
    it is weighed, so that calls in another order get the same verdict."""
    names, missing, extra = result.name_counts()
    types = sum(verdict == "wrong_value" for verdict in result.per_parameter.values())
    gain = 0
    for count in (result.value_counts()[0], names, _MOST - missing - extra, types):
        gain = gain * (_MOST + 1) + max(0, min(count, _MOST))
    return gain


def _build_verdicts(result: MatchResult) -> tuple[bool, str | None, dict[str, str]]:
    return result.match, result.error_kind, result.per_parameter


def _sum_counts(
    verdicts: Sequence[CallVerdict], wants: Sequence[ReadCall], haves: Sequence[ReadCall]
) -> Any:
    """((right, missing, extra) names, the same of values) of all calls together."""
    names, values = [0, 0, 0], [0, 0, 0]
    for verdict in verdicts:
        parts = MatchResult(verdict.match, verdict.error_kind, verdict.per_parameter)
        counts = ((names, parts.name_counts()), (values, parts.value_counts()))
        if verdict.error_kind in ("wrong_tool", "not_an_object", "not_a_call"):
            # No parameter was compared: all that were asked are missing, all given ones too many.
            sides = (wants[verdict.expected or 0], haves[verdict.called or 0])
            lost = (0, *(len(side.given or ()) for side in sides))
            counts = ((names, lost), (values, lost))
        for total, found in counts:
            for place in range(3):
                total[place] += found[place]
    return tuple(names), tuple(values)
