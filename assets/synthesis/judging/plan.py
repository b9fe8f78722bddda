"""Plans one marketplace's judging: what is due, the verdicts, and the trial of the judge."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from assets.one_server import keep_other_servers
from assets.synthesis.judging.judge import judge, plan_judgements
from assets.synthesis.judging.trials import JUDGE_TRIALS, audit_trial, make_trial_rows, try_judge
from assets.synthesis.offer import ClearOffer, read_offer
from assets.synthesis.policy import SynthesisPolicy
from assets.synthesis.tables import JUDGEMENTS, PAIRS, PASSING
from warehouse.audit import AuditVerdict
from warehouse.json_types import JsonObject, Record
from warehouse.llm.client import LLM
from warehouse.llm.roles import PENDING
from warehouse.progress import Progress
from warehouse.storage.tables import RowPlan, plan_keys
from warehouse.store import Warehouse


@dataclass(frozen=True)
class JudgingResult:
    """The rows of JUDGEMENTS after a run, the pairs they are about, and the judge's own trial."""

    rows: list[Record]
    pairs: list[Record]
    due: RowPlan
    trials: list[Record]
    audit: list[AuditVerdict]


@dataclass(frozen=True)
class JudgingPlan:
    """Which pairs are to be judged. last: all judgements; previous: those this run may replace."""

    offer: ClearOffer
    pairs: list[Record]
    server_pairs: list[Record]
    due: RowPlan
    last: list[Record]
    previous: list[Record]


def plan_judging(
    warehouse: Warehouse, name: str, policy: SynthesisPolicy, llm: LLM, only: str | None = None
) -> JudgingPlan:
    """What is due of the pairs that are written now; no model is asked."""
    offer = read_offer(warehouse, name)
    pairs = [
        row
        for row in warehouse.tables.read(PAIRS, name).to_dicts()
        if offer.offers_contract_of(row) and offer.shows_only_clear(row)
    ]
    last = warehouse.tables.read(JUDGEMENTS, name).to_dicts()
    previous = [row for row in last if only in (None, row["server_id"])]
    server_pairs = [row for row in pairs if only in (None, row["server_id"])]
    due = plan_keys(
        {row["pair_id"]: row["plan_digest"] for row in previous},
        plan_judgements(server_pairs, llm, policy),
        retry={row["pair_id"] for row in previous if row["error_kind"] in PASSING},
    )
    return JudgingPlan(offer, pairs, server_pairs, due, last, previous)


def judge_pairs(
    warehouse: Warehouse,
    name: str,
    policy: SynthesisPolicy,
    llm: LLM,
    progress: Progress | None = None,
    *,
    only: str | None = None,
) -> JudgingResult:
    """The judgements of one marketplace, or of `only` one server, and the trial of their judge."""
    plan = plan_judging(warehouse, name, policy, llm, only)
    written, offer, last, previous, due = plan.pairs, plan.offer, plan.last, plan.previous, plan.due
    due_ids, unchanged = set(due.due), set(due.unchanged)
    lacking = [row for row in plan.server_pairs if row["pair_id"] in due_ids]
    judgements = judge(lacking, offer.contracts, llm, policy, progress=progress)
    unchanged_rows = [row for row in previous if row["pair_id"] in unchanged]
    # Nothing judged in this run: the judge's last trial stands.
    trial = try_judge(written, offer.contracts, llm, policy) if due_ids else None
    untried = trial is not None and trial.pending > 0
    fresh = _keep_verdicts(judgements, previous, untried=untried)
    rows = keep_other_servers(last, [*unchanged_rows, *fresh], only)
    rows = JUDGEMENTS.frame(rows).to_dicts()
    waiting = due_ids - {row["pair_id"] for row in fresh if row["status"] != PENDING}
    audit = [audit_rejections((row for row in written if row["pair_id"] not in waiting), rows)]
    if trial is None or untried:
        trials = warehouse.tables.read(JUDGE_TRIALS, name).to_dicts()
        return JudgingResult(rows, written, due, trials, audit)
    return JudgingResult(
        rows, written, due, make_trial_rows(trial, name), [*audit, *audit_trial(trial)]
    )


def _keep_verdicts(
    judgements: Sequence[Record], previous: Iterable[Record], *, untried: bool
) -> list[Record]:
    """This run's verdicts, and the last ones of pairs, or a trial, that wait for a batch."""
    last = {row["pair_id"]: row for row in previous if row["status"] == "ok"}
    waits = {row["pair_id"] for row in judgements if untried or row["status"] == PENDING}
    verdicts = (last.get(row["pair_id"]) if row["pair_id"] in waits else row for row in judgements)
    if untried:
        return [row for row in verdicts if row is not None]
    return [row or judgement for row, judgement in zip(verdicts, judgements, strict=True)]


REJECTED_CEILING = 0.9  # the signature of prompts that evolution has made incoherent
_MOST_REASONS = 4  # reasons of each sort


def audit_rejections(pairs: Iterable[JsonObject], judgements: Iterable[JsonObject]) -> AuditVerdict:
    """Stops a partition of which more than nine tenths were rejected, and counts the reasons."""
    judged = {row["pair_id"]: row for row in judgements}
    whole = [row for row in pairs if row["status"] == "ok"]
    flaws, criteria = Counter[str](), Counter[str]()
    accepted = 0
    for row in whole:
        verdict = judged.get(row["pair_id"])
        if row["verdict"] == "reject":
            held = json.loads(row.get("flaws") or "[]")
            certain = {flaw["kind"] for flaw in held if flaw.get("certain", True)}
            flaws.update(certain or {"no flaw stated"})
        elif row.get("twin_of") is not None:
            flaws["repeats another"] += 1
        elif verdict is None or verdict["status"] != "ok":
            flaws["not judged"] += 1
        elif verdict["verdict"] == "accept":
            accepted += 1
        else:
            scores, bar = json.loads(verdict.get("scores") or "{}"), verdict.get("threshold") or 6.0
            low = [name for name, score in scores.items() if score < bar]
            lowest = sorted(scores, key=lambda name, scores=scores: scores[name])[:1]
            criteria.update(low or lowest or ["no scores"])
    refused = len(whole) - accepted
    rate = refused / len(whole) if whole else 0.0
    by_filter, by_judge = (
        ", ".join(f"{kind} {n:,}" for kind, n in counts.most_common(_MOST_REASONS))
        for counts in (flaws, criteria)
    )
    why = "; ".join(filter(None, (by_filter, by_judge and f"judge: {by_judge}")))
    observed = f"{refused:,} of {len(whole):,} rejected ({rate:.0%})" + (f": {why}" if why else "")
    bar = f"at most {REJECTED_CEILING:.0%} of the written rows rejected"
    return AuditVerdict("accept_rate", rate <= REJECTED_CEILING, observed, bar)
