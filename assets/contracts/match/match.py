"""AST match: is a called tool call the expected one, read through the tool's schema?"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from assets.contracts.match.assignment import assign_rows
from assets.contracts.match.resolve import collect_parts, is_plain, is_simple
from assets.contracts.match.result import (
    CallVerdict,
    MatchResult,
    ParallelResult,
    compute_f1,
    find_kind,
    pick_gravest,
)
from assets.contracts.match.values import (
    count_values,
    format_key,
    normalise_exactly,
    normalise_property,
)
from assets.contracts.schema.step_budget import TooMuchWork, limit_steps

__all__ = ["CallVerdict", "MatchResult", "ParallelResult"]
__all__ += ["match_call", "match_calls", "match_parallel"]

Call = Mapping[str, Any]
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
        from assets.contracts.match.bfcl.verdict import match_compatible

        return match_compatible(schema, expected, called, language)
    return _compare_calls(_Read(schema, expected), _Read(schema, called))


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
    wants, haves = ([_read_call(schemas, call) for call in side] for side in (expected, called))
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
    kinds = [one.error_kind for one in verdicts]
    kind = "no_call" if wants and not haves else pick_gravest(kinds)
    tool = Counter(one.name for one in wants) == Counter(one.name for one in haves)
    names, values = _sum_counts(verdicts, wants, haves)
    return ParallelResult(kind is None, kind, verdicts, tool, compute_f1(names), compute_f1(values))


class _Read:
    """One call, read through its tool's schema; `given` is None where it holds no arguments."""

    def __init__(self, schema: Any, call: Any) -> None:
        self.is_call = isinstance(call, dict | Mapping)
        name, given = (call.get("name"), call.get("arguments")) if self.is_call else ("", "")
        self.name = name if isinstance(name, str) else f"{type(name).__name__} {name!r:.80}"
        self.root: Mapping[str, Any] = schema if isinstance(schema, dict | Mapping) else {}
        self.given: dict[str, Any] | None = None
        if given is None or isinstance(given, dict | Mapping):
            self.given = {format_key(key): value for key, value in (given or {}).items()}
            self.parts = (
                (self.root,)
                if is_plain(self.root)
                else self._within(lambda: collect_parts(self.root, self.root, given or {}), ())
            )
        self._forms: dict[str, tuple[str, bool]] = {}

    def form(self, name: str) -> tuple[str, bool]:
        """(Normal form of an argument, whether it is the default); for two sides that match, and
        only for them, it is the same."""
        if name not in self._forms:
            value = (self.given or {})[name]
            if is_simple(self.root, name, value):
                self._forms[name] = normalise_property(value, name, self.parts, self.root)
            else:
                self._forms[name] = self._within(
                    lambda: normalise_property(value, name, self.parts, self.root),
                    None,
                    count_values(value),
                ) or (normalise_exactly(value), False)
        return self._forms[name]

    def _within(self, work: Callable[[], Any], otherwise: Any, size: int = 1) -> Any:
        """What the work gives, or `otherwise` where a schema makes it too much."""
        steps = _MAX_STEPS // (len(self.given or ()) or 1) + _STEPS_A_VALUE * size
        try:
            with limit_steps(steps):
                return work()
        except (TooMuchWork, RecursionError):
            return otherwise

    @cached_property
    def key(self) -> tuple[Any, ...]:
        """The same for two calls that match, and only for them."""
        forms = [(name, *self.form(name)) for name in self.given or ()]
        given = sorted((name, held) for name, held, usual in forms if not usual)
        return (self.name, self.given is None, *given)

    def all(self, verdict: str) -> dict[str, str]:
        return dict.fromkeys(self.given or (), verdict)


def _read_call(schemas: Mapping[str, Mapping[str, Any]], call: Any) -> _Read:
    name = call.get("name") if isinstance(call, Mapping) else None
    return _Read(schemas.get(name, {}) if isinstance(name, str) else {}, call)


def _compare_calls(want: _Read, have: _Read) -> MatchResult:
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
    name: str, want: _Read, have: _Read, wanted: dict[str, Any], had: dict[str, Any]
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


def _choose_pairs(wants: Sequence[_Read], haves: Sequence[_Read]) -> dict[int, int]:
    """Expected -> called positions: calls that match, then calls of one tool, then what is left.

    Matching is an equivalence, so taking any equal call leaves as many for the others.
    """
    pairs = _pair_calls(wants, haves, {}, lambda one: one.key, _pair_in_order)
    pairs |= _pair_calls(wants, haves, pairs, lambda one: one.name, _count_most_right)
    return pairs | _pair_calls(wants, haves, pairs, lambda one: None, _pair_in_order)


def _pair_calls(
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
    verdicts: Sequence[CallVerdict], wants: Sequence[_Read], haves: Sequence[_Read]
) -> Any:
    """((right, missing, extra) names, the same of values) of all calls together."""
    names, values = [0, 0, 0], [0, 0, 0]
    for one in verdicts:
        parts = MatchResult(one.match, one.error_kind, one.per_parameter)
        counts = ((names, parts.name_counts()), (values, parts.value_counts()))
        if one.error_kind in ("wrong_tool", "not_an_object", "not_a_call"):
            # No parameter was compared: all that were asked are missing, all given ones too many.
            sides = (wants[one.expected or 0], haves[one.called or 0])
            lost = (0, *(len(side.given or ()) for side in sides))
            counts = ((names, lost), (values, lost))
        for total, found in counts:
            for place in range(3):
                total[place] += found[place]
    return tuple(names), tuple(values)
