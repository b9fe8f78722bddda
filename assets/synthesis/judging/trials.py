"""Measures the judge: what it catches, what it refuses wrongly, and when that stops a partition."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from assets.columns import read_table_spec
from assets.synthesis.judging.judge import get_judge_name, judge
from assets.synthesis.judging.mutants import (
    GOOD,
    OF_THE_RUN,
    Contracts,
    Pair,
    TrialCase,
    make_cases,
)
from assets.synthesis.policy import SynthesisPolicy
from assets.synthesis.verify.rules import verify_row
from warehouse.audit import AuditVerdict
from warehouse.item_failure import tell_failure
from warehouse.json_types import Json
from warehouse.llm.client import LLM
from warehouse.llm.roles import PENDING
from warehouse.statistics import difference_interval, wilson_interval

RULES, JUDGE, BOTH = "rules", "judge", "rules+judge"
ALL = "all_flaws"
# Of the mutants of each kind that the rules leave, the share that a judge must refuse. The kinds
# that rules never leave have no floor. A partition whose judge is below one, or refuses more than
# three tenths of what people wrote as good, is not published.
CATCH_FLOORS = {
    "missing_required_value": 0.5,
    "ungrounded_value": 0.3,
    "wrong_tool": 0.5,
    "unrealistic": 0.3,
    "copies_description": 0.2,
}
OF_SENSE = ("wrong_tool", "unrealistic")  # no rule can tell them: the offline judge has no floor
FALSE_ALARM_CEILING = 0.3
UNANSWERED_CEILING = 0.2  # of the trial's rows; beyond it the trial says nothing

JUDGE_TRIALS = read_table_spec(__file__, "judge_trials")


@dataclass(frozen=True)
class RefusalRate:
    """Of `n` rows of this kind, how many one stage refused, with a 95% Wilson interval."""

    stage: str
    kind: str
    n: int
    refused: int
    unsure: int
    unanswered: int
    low: float
    high: float

    @property
    def rate(self) -> float:
        return self.refused / self.n if self.n else math.nan

    def describe(self) -> str:
        return f"{self.refused} of {self.n} refused [{self.low:.2f}, {self.high:.2f}]"


@dataclass(frozen=True)
class MutationReport:
    """All rates of one trial, and why the judge did not answer where it did not. pending: rows of
    it that wait for a batch; it says nothing of the judge before they are answered."""

    judge: str
    rates: list[RefusalRate]
    error: str | None = None
    pending: int = 0

    def get_rate(self, kind: str, stage: str = BOTH) -> RefusalRate:
        """The rate of that kind; of no rows when the trial had none."""
        matches = (rate for rate in self.rates if (rate.stage, rate.kind) == (stage, kind))
        return next(matches, _make_rate(stage, kind, Counter()))


def try_judge(
    rows: Iterable[Pair], contracts: Contracts, llm: LLM, policy: SynthesisPolicy, *, good: int = 20
) -> MutationReport:
    """Tries rules and judge on known-good rows, up to `good` rows of the run, and mutants of both.
    contracts: by digest."""
    tried, contracts_of_trial = make_cases(rows, contracts, seed=policy.seed, good=good)
    by_rules = [case.by_rules or verify_row(case.row, contracts_of_trial).verdict for case in tried]
    open_cases = [
        {**case.row, "pair_id": str(place), "status": "ok", "verdict": verdict, "twin_of": None}
        for place, (case, verdict) in enumerate(zip(tried, by_rules, strict=True))
    ]
    judged = {
        int(row["pair_id"]): row for row in judge(open_cases, contracts_of_trial, llm, policy)
    }
    both = [
        verdict if verdict == "reject" else judged[place].get("verdict")
        for place, verdict in enumerate(by_rules)
    ]
    failed = [row for row in judged.values() if row["status"] != "ok"]
    error = tell_failure(failed[0]["error_kind"], failed[0]["hint"]) if failed else None
    left = [place for place, verdict in enumerate(by_rules) if verdict != "reject"]
    rates = [
        *_count_rates(RULES, tried, by_rules),
        *_count_rates(JUDGE, [tried[place] for place in left], [both[place] for place in left]),
        *_count_rates(BOTH, tried, both),
    ]
    pending = sum(row["status"] == PENDING for row in failed)
    return MutationReport(get_judge_name(llm), rates, error, pending)


def _count_rates(
    stage: str, tried: Sequence[TrialCase], verdicts: Sequence[str | None]
) -> list[RefusalRate]:
    counts: dict[str, Counter[str]] = {ALL: Counter()}
    for case, verdict in zip(tried, verdicts, strict=True):
        for kind in (case.kind,) if case.kind in (GOOD, OF_THE_RUN) else (case.kind, ALL):
            counts.setdefault(kind, Counter())[verdict or "unanswered"] += 1
    return [_make_rate(stage, kind, of_kind) for kind, of_kind in sorted(counts.items())]


def _make_rate(stage: str, kind: str, verdicts: Counter[str]) -> RefusalRate:
    unanswered, refused = verdicts["unanswered"], verdicts["reject"]
    n = verdicts.total() - unanswered
    low, high = wilson_interval(refused, n)
    return RefusalRate(stage, kind, n, refused, verdicts["unsure"], unanswered, low, high)


def make_trial_rows(report: MutationReport, marketplace: str) -> list[dict[str, Json]]:
    """Rows of JUDGE_TRIALS."""
    identity = {"marketplace": marketplace, "judge": report.judge}
    return [
        {**identity, **vars(rate), "rate": rate.rate if rate.n else None} for rate in report.rates
    ]


def audit_trial(report: MutationReport | None) -> list[AuditVerdict]:
    """The audit's verdicts on the judge, by the rows that rules leave to it; none where nothing was
    judged. A bar is missed only by the whole interval."""
    if report is None:
        return []
    caught, alarms = report.get_rate(ALL, JUDGE), report.get_rate(GOOD, JUDGE)
    floors = {
        kind: floor
        for kind, floor in CATCH_FLOORS.items()
        if report.judge.startswith("model:") or kind not in OF_SENSE
    }
    left = {kind: report.get_rate(kind, JUDGE) for kind in CATCH_FLOORS}
    below = [kind for kind, floor in floors.items() if left[kind].high < floor]
    table = "; ".join(
        f"{kind} {rate.describe()}{' BELOW' if kind in below else ''}"
        for kind, rate in {**left, ALL: caught, GOOD: alarms}.items()
        if rate.n
    )
    low, high = difference_interval(caught.refused, caught.n, alarms.refused, alarms.n)
    adds = f"{caught.rate - alarms.rate:+.2f} [{low:+.2f}, {high:+.2f}]"
    silent, answered_rows = caught.unanswered + alarms.unanswered, caught.n + alarms.n
    answered = silent <= UNANSWERED_CEILING * (silent + answered_rows)
    observed = f"{silent} of {silent + answered_rows} rows unanswered" + (
        f", e.g. {report.error}" if report.error else ""
    )
    bar = f"at most {UNANSWERED_CEILING:.0%} of the trial's rows unanswered"
    floor = ", ".join(f"{kind} {share:.0%}" for kind, share in floors.items())
    floor = f"of the mutants that the rules leave, refused within the 95% interval: {floor}"
    more = "of what the rules leave, more mutants than good rows refused, beyond the 95% interval"
    ceiling = f"at most {FALSE_ALARM_CEILING:.0%} of good rows refused, within the 95% interval"
    return [
        AuditVerdict("judge_was_judged", answered, observed, bar),
        AuditVerdict("judge_adds_to_the_rules", low > 0, f"{adds}: {table}", more),
        AuditVerdict("judge_catches_mutants", not below, table, floor),
        AuditVerdict(
            "judge_false_alarms", alarms.low <= FALSE_ALARM_CEILING, alarms.describe(), ceiling
        ),
    ]
