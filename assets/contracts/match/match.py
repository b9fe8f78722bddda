"""AST match: does a tool call equal the expected one, read through the tool's schema?"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any

from assets.contracts.match.read_call import ReadCall, read_call
from warehouse.json_types import JsonObject, Schema

# The gravest first. The two of `CHECKER` are given in BFCL's compatibility mode only.
CHECKER = ("checker_crash", "no_function_doc")
COUNTS = ("unwanted_call", "no_call", "too_few_calls", "too_many_calls")
SINGLE = (
    *("not_a_call", "wrong_tool", "not_an_object"),
    *("missing_parameter", "extra_parameter", "wrong_type", "wrong_value"),
)
ERROR_KINDS = (*CHECKER, *COUNTS, *SINGLE)
_GRAVITY = {kind: place for place, kind in enumerate(ERROR_KINDS)}
_KIND_OF = {"missing": "missing_parameter", "extra": "extra_parameter"}
_WRONG = ("missing", "extra", "wrong_type", "wrong_value")


@dataclass(frozen=True)
class MatchResult:
    """How a call compares with the expected one.

    error_kind: one of SINGLE, the gravest; None when it matches. per_parameter: name -> match,
    default (one side left the schema's default out), missing, extra, wrong_type or wrong_value; in
    compatibility mode also unchecked (BFCL stops at the first error). checker_error: BFCL's own
    word for the error, in that mode only.
    """

    match: bool
    error_kind: str | None
    per_parameter: dict[str, str] = field(default_factory=dict)
    tool: bool = True
    checker_error: str | None = None

    @property
    def name_f1(self) -> float:
        """F1 of the parameter names that were given, 0..1."""
        return compute_f1(self.name_counts()) if self.tool else 0.0

    @property
    def value_f1(self) -> float:
        """F1 of the parameters given with the right value, 0..1."""
        return compute_f1(self.value_counts()) if self.tool else 0.0

    def name_counts(self) -> tuple[int, int, int]:
        """(right, missing, extra) names; a default that one side left out counts nowhere."""
        shared = self._count_verdicts("match", "wrong_type", "wrong_value")
        return shared, self._count_verdicts("missing"), self._count_verdicts("extra")

    def value_counts(self) -> tuple[int, int, int]:
        """(right, missing, extra) values; a wrong value is missing and extra at once."""
        wrong = self._count_verdicts("wrong_type", "wrong_value")
        return (
            self._count_verdicts("match"),
            self._count_verdicts("missing") + wrong,
            self._count_verdicts("extra") + wrong,
        )

    def _count_verdicts(self, *verdicts: str) -> int:
        return sum(verdict in verdicts for verdict in self.per_parameter.values())


@dataclass(frozen=True)
class CallVerdict:
    """One expected call (or, with expected None, one call too many) and its verdict.

    expected, called: positions in the two lists. error_kind as in MatchResult, or `too_few_calls`
    for an expected call that nobody made and `too_many_calls` for one that nobody expected.
    """

    name: str
    expected: int | None
    called: int | None
    match: bool
    error_kind: str | None
    per_parameter: dict[str, str]


@dataclass(frozen=True)
class ParallelResult:
    """How calls made at once compare with the expected ones, over the best assignment.

    error_kind: the gravest of COUNTS and SINGLE; None when every expected call was made and no
    other. calls: the expected ones in order, then those too many. tool: the called names are the
    expected ones, each as often. The F1s count the parameters of all calls together.
    """

    match: bool
    error_kind: str | None
    calls: list[CallVerdict]
    tool: bool
    name_f1: float
    value_f1: float

    @property
    def assigned(self) -> list[int | None]:
        """For each expected call the position of the call that fulfils it, or None."""
        expected = [call for call in self.calls if call.expected is not None]
        return [verdict.called if verdict.match else None for verdict in expected]


def find_kind(verdicts: Mapping[str, str]) -> str | None:
    """The gravest error kind among the verdicts of parameters."""
    present = set(verdicts.values())
    worst = next((verdict for verdict in _WRONG if verdict in present), None)
    return _KIND_OF.get(worst, worst) if worst else None


def compute_f1(counts: tuple[int, int, int]) -> float:
    """F1 of (right, missing, extra); 1 where there was nothing to get right or wrong."""
    right, missing, extra = counts
    total = 2 * right + missing + extra
    return 2 * right / total if total else 1.0


_FAR = 2**62
_FEW = 4  # of so many columns all 24 orders are tried sooner than numpy has begun


def assign_rows(gains: Sequence[Sequence[int]]) -> list[int | None]:
    """For each row a column of its own, so that the gains sum to the most; None where the columns
    run out. Gains are >= 0 and every row is as long.

    The Hungarian method, in rows x rows x columns steps: 200 x 200 take 0.3 s.
    """
    rows = len(gains)
    columns = len(gains[0]) if rows else 0
    if not columns:
        return [None] * rows
    if rows > columns:
        turned = assign_rows([list(column) for column in zip(*gains, strict=True)])
        assignment: list[int | None] = [None] * rows
        for column, row in enumerate(turned):
            if row is not None:
                assignment[row] = column
        return assignment
    if columns > _FEW:
        return list(_solve_hungarian(gains))
    orders = permutations(range(columns), rows)
    return list(
        max(orders, key=lambda order: sum(row[at] for row, at in zip(gains, order, strict=True)))
    )


def _solve_hungarian(gains: Sequence[Sequence[int]]) -> list[int]:
    """The best column of each row; there are no more rows than columns."""
    import numpy as np

    costs = -np.asarray(gains, dtype=np.int64)
    rows, columns = costs.shape
    row_of, column_of = np.full(columns, -1), np.full(rows, -1)
    of_row, of_column = np.zeros(rows, np.int64), np.zeros(columns, np.int64)
    for start in range(rows):
        # The shortest path, over reduced costs, from the new row to a column nobody holds.
        distance = costs[start] - of_row[start] - of_column
        came_from = np.full(columns, start)
        done = np.zeros(columns, bool)
        while True:
            column = int(np.where(done, _FAR, distance).argmin())
            row = int(row_of[column])
            if row < 0:
                break
            done[column] = True
            through = distance[column] + costs[row] - of_row[row] - of_column
            better = ~done & (through < distance)
            distance[better], came_from[better] = through[better], row
        lead = distance[column] - distance[done]
        of_row[start] += distance[column]
        of_row[row_of[done]] += lead
        of_column[done] -= lead
        row = -1
        while row != start:
            row = int(came_from[column])
            row_of[column] = row
            column_of[row], column = column, int(column_of[row])
    return [int(column) for column in column_of]


Call = Mapping[str, Any]
Sided = list[tuple[int, ReadCall]]
_MAX_CELLS = 400_000  # parameters compared for one assignment, some 1 s; beyond, in order
_MOST = 4095  # parameters of one kind that are weighed


def match_call(schema: Schema, expected: Call, called: Call) -> MatchResult:
    """Compares two calls `{"name", "arguments"}` through the input schema of the expected tool.

    Numbers compare by value (5 = 5.0), true is never 1, an omitted argument means the schema's
    default, arrays are ordered unless `uniqueItems`. Only free text is normalised (case, white
    space, end punctuation), never an id, path, code or enum. Never raises on JSON. A schema that
    takes more than 20,000 steps to read is ignored, and its values are compared exactly.
    """
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
    pairs = _pair_calls(wants, haves, {}, lambda call: call.key, _pair_in_order)
    pairs |= _pair_calls(wants, haves, pairs, lambda call: call.name, _count_most_right)
    partner = pairs | _pair_calls(wants, haves, pairs, lambda call: None, _pair_in_order)
    results = {row: _compare_calls(wants[row], haves[column]) for row, column in partner.items()}
    verdicts = [
        CallVerdict(
            want.name, row, partner[row], result.match, result.error_kind, result.per_parameter
        )
        if (result := results.get(row))
        else CallVerdict(want.name, row, None, False, "too_few_calls", want.all("missing"))
        for row, want in enumerate(wants)
    ]
    called_columns = set(partner.values())
    verdicts += [
        CallVerdict(have.name, None, column, False, "too_many_calls", have.all("extra"))
        for column, have in enumerate(haves)
        if column not in called_columns
    ]
    kinds = [verdict.error_kind for verdict in verdicts]
    gravest = min(filter(None, kinds), key=_GRAVITY.__getitem__, default=None)
    kind = "no_call" if wants and not haves else gravest
    tool = Counter(read.name for read in wants) == Counter(read.name for read in haves)
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
    verdicts = {name: _compare_parameter(name, want, have) for name in names}
    kind = find_kind(verdicts)
    return MatchResult(kind is None, kind, verdicts)


def _compare_parameter(name: str, want: ReadCall, have: ReadCall) -> str:
    expected, called = want.given or {}, have.given or {}
    if name not in called:
        return "default" if want.form(name)[1] else "missing"
    if name not in expected:
        return "default" if have.form(name)[1] else "extra"
    a, b = expected[name], called[name]
    # Most arguments of a right call are the same to the letter, which is ten times as fast to see.
    if type(a) is type(b) and isinstance(a, str | int) and a == b and want.parts == have.parts:
        return "match"
    wanted_form, had_form = want.form(name)[0], have.form(name)[0]
    if wanted_form == had_form:
        return "match"
    return "wrong_value" if wanted_form[:1] == had_form[:1] else "wrong_type"


def _pair_calls(
    wants: Sequence[ReadCall],
    haves: Sequence[ReadCall],
    paired: Mapping[int, int],
    group: Callable[[ReadCall], Any],
    choose: Callable[[Sided, Sided], Iterable[tuple[int, int]]],
) -> dict[int, int]:
    """Pairs of what is not taken yet, chosen within each group."""
    columns: dict[Any, Sided] = defaultdict(list)
    used = set(paired.values())
    for column, have in enumerate(haves):
        if column not in used:
            columns[group(have)].append((column, have))
    rows: dict[Any, Sided] = defaultdict(list)
    for row, want in enumerate(wants):
        if row not in paired and group(want) in columns:
            rows[group(want)].append((row, want))
    return dict(pair for key, some in rows.items() for pair in choose(some, columns[key]))


def _pair_in_order(rows: Sided, columns: Sided) -> Iterator[tuple[int, int]]:
    for (row, _), (column, _) in zip(rows, columns, strict=False):
        yield row, column


def _count_most_right(rows: Sided, columns: Sided) -> Iterable[tuple[int, int]]:
    sizes = [sum(len(call.given or ()) + 1 for _, call in side) for side in (rows, columns)]
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


def _sum_counts(
    verdicts: Sequence[CallVerdict], wants: Sequence[ReadCall], haves: Sequence[ReadCall]
) -> Any:
    """((right, missing, extra) names, the same of values) of all calls together."""
    names, values = [0, 0, 0], [0, 0, 0]
    for verdict in verdicts:
        result = MatchResult(verdict.match, verdict.error_kind, verdict.per_parameter)
        counts = ((names, result.name_counts()), (values, result.value_counts()))
        if verdict.error_kind in ("wrong_tool", "not_an_object", "not_a_call"):
            # No parameter was compared: all that were asked are missing, all given ones too many.
            sides = (wants[verdict.expected or 0], haves[verdict.called or 0])
            lost = (0, *(len(side.given or ()) for side in sides))
            counts = ((names, lost), (values, lost))
        for total, count in counts:
            for place in range(3):
                total[place] += count[place]
    return tuple(names), tuple(values)
