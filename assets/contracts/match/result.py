"""What a match tells: one call's verdict, and that of several calls made at once."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

# The gravest first. The three of `CHECKER` are given in BFCL's compatibility mode only.
CHECKER = ("checker_crash", "checker_hang", "no_function_doc")
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
        return [one.called if one.match else None for one in expected]


def find_kind(verdicts: Mapping[str, str]) -> str | None:
    """The gravest error kind among the verdicts of parameters."""
    found = set(verdicts.values())
    worst = next((verdict for verdict in _WRONG if verdict in found), None)
    return _KIND_OF.get(worst, worst) if worst else None


def pick_gravest(kinds: Iterable[str | None]) -> str | None:
    """The gravest of some error kinds; None where there is none."""
    return min((kind for kind in kinds if kind), key=_GRAVITY.__getitem__, default=None)


def compute_f1(counts: tuple[int, int, int]) -> float:
    """F1 of (right, missing, extra); 1 where there was nothing to get right or wrong."""
    right, missing, extra = counts
    total = 2 * right + missing + extra
    return 2 * right / total if total else 1.0


def render_result(result: MatchResult | ParallelResult) -> dict[str, Any]:
    """The result as the command prints it."""
    out: dict[str, Any] = {"match": result.match, "error_kind": result.error_kind}
    if isinstance(result, MatchResult):
        out["per_parameter"] = result.per_parameter
        if result.checker_error:
            out["checker_error"] = result.checker_error
    else:
        out["calls"] = [asdict(call) for call in result.calls]
    return {**out, "tool": result.tool, "name_f1": result.name_f1, "value_f1": result.value_f1}
