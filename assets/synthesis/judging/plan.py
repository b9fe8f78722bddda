"""A marketplace's run of judging: what is due, its verdicts, and the trial of the judge."""

from dataclasses import dataclass
from typing import Any

from assets.synthesis.common.eligible import read_offer
from assets.synthesis.common.policy import SynthesisPolicy
from assets.synthesis.common.tables import JUDGEMENTS, PAIRS, PASSING
from assets.synthesis.judging.judge import judge, plan_judgements
from assets.synthesis.judging.rejections import audit_rejections
from assets.synthesis.judging.trial.trials import (
    JUDGE_TRIALS,
    audit_trial,
    make_trial_rows,
    try_judge,
)
from warehouse.audit import Verdict
from warehouse.llm.client import LLM
from warehouse.progress import Progress
from warehouse.storage.tables import Plan, plan_keys
from warehouse.store import Warehouse

Row = dict[str, Any]


@dataclass(frozen=True)
class Judged:
    """The rows of JUDGEMENTS after a run, the pairs they are about, and the judge's own trial."""

    rows: list[Row]
    pairs: list[Row]
    due: Plan
    trials: list[Row]
    audit: list[Verdict]


def judge_pairs(
    warehouse: Warehouse,
    name: str,
    policy: SynthesisPolicy,
    llm: LLM,
    progress: Progress | None = None,
) -> Judged:
    """The judgements of one marketplace, and the trial of the judge that made them."""
    tables = warehouse.tables
    written = tables.read(PAIRS, name).to_dicts()
    offer = read_offer(warehouse, name)
    written = [
        row for row in written if offer.offers_contract_of(row) and offer.shows_only_clear(row)
    ]
    previous = tables.read(JUDGEMENTS, name).to_dicts()
    due = plan_keys(
        {row["pair_id"]: row["plan_digest"] for row in previous},
        plan_judgements(written, llm, policy),
        retry={row["pair_id"] for row in previous if row["error_kind"] in PASSING},
    )
    asked, unchanged = set(due.due), set(due.unchanged)
    lacking = [row for row in written if row["pair_id"] in asked]
    made = judge(lacking, offer.contracts, llm, policy, progress=progress)
    kept = [row for row in previous if row["pair_id"] in unchanged]
    rows = JUDGEMENTS.frame([*kept, *made]).to_dicts()
    # Nothing judged in this run: the judge's last trial stands.
    trial = try_judge(written, offer.contracts, llm, policy) if asked else None
    trials = make_trial_rows(trial, name) if trial else tables.read(JUDGE_TRIALS, name).to_dicts()
    audit = [audit_rejections(written, rows), *audit_trial(trial)]
    return Judged(rows, written, due, trials, audit)
