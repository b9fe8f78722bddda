"""Asking predictors the same items: rows of CALLER_EVALUATION."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from assets.contracts.changes import CHANGES
from assets.contracts.quarantined_tools import read_contracts
from training.caller.shipped import GENERAL, KEPT, read_caller_card, read_requests
from training.caller.smollm2 import is_smollm2
from training.evaluation.adapter_predictor import AdapterPredictor
from training.evaluation.baselines import BaselinePredictor
from training.evaluation.caller_items import (
    FRESH,
    CallerItem,
    TestPlan,
    make_fresh_items,
    make_items,
    make_kept_items,
)
from training.evaluation.caller_markdown import as_markdown
from training.evaluation.caller_score import score_answer
from training.evaluation.caller_summary import summarise_calls
from training.evaluation.likelihood import measure_likelihood
from training.evaluation.phantom import DeadRequest, find_dead_requests
from training.evaluation.predictor import (
    CannotPredict,
    PredictionRequest,
    Predictor,
    make_failed_answer,
)
from training.evaluation.retriever import NothingToEvaluate
from training.prompts.render import list_named_tools
from training.prompts.templates import BadTemplate
from training.releases.in_service import find_model_in_service
from training.role import BASELINE, CALLER
from training.runtime.model_store import TrainingFailed
from training.sets.build import read_known_contracts
from training.sets.pool import load_pool
from training.sets.training_set import TRAINING_SET
from warehouse.progress import Progress, SilentProgress
from warehouse.storage.files import write_atomically
from warehouse.store import Warehouse


def evaluate_predictors(
    predictors: Sequence[Predictor],
    items: Sequence[CallerItem],
    training_set: str,
    progress: Progress | None = None,
) -> list[dict[str, Any]]:
    """Every predictor's rows for every item. Raises NothingToEvaluate."""
    if not items:
        raise NothingToEvaluate(
            "caller evaluation: 0 items; expected accepted pairs in a test split of the training"
            " set. Deploy more servers, or ask for another --split"
        )
    reporter = progress or SilentProgress()
    rows, requests = [], [make_prediction_request(item) for item in items]
    for predictor in predictors:

        def on_done(done: int, total: int, label: str = predictor.label) -> None:
            reporter.update(f"asking {label[:40]}", done, total)

        answers = predictor.predict(requests, on_done)
        rows += [
            score_answer(item, answer, predictor.label, training_set)
            for item, answer in zip(items, answers, strict=True)
        ]
    return rows


def make_prediction_request(item: CallerItem) -> PredictionRequest:
    """The item as a predictor is asked it."""
    in_conversation = list_named_tools(item.row) if item.before else frozenset()
    keep = in_conversation | {call["name"] for call in item.expected}
    return PredictionRequest(item.item_id, item.instruction, item.tools, keep, item.before)


Rows = Sequence[dict[str, Any]]
NOT_ASKED = "not_asked"  # only how likely the right calls are is measured
_SETS_BACK = 10  # training sets whose requests are looked through for tools that are gone


@dataclass(frozen=True)
class CallerBench:
    """What a home's callers are measured on."""

    training_set: str
    rows: list[dict[str, Any]]
    pool: dict[str, dict[str, Any]]
    dead: list[DeadRequest] = field(default_factory=list)
    fresh: frozenset[str] = frozenset()  # contracts that the caller in service has not learnt

    def make_items_for(self, plan: TestPlan) -> list[CallerItem]:
        items = make_items(self.rows, self.pool, plan, self.dead)
        return items + make_fresh_items(self.rows, self.pool, plan, self.fresh)


def load_bench(warehouse: Warehouse) -> CallerBench:
    """The current training set with its pool, and the requests of earlier sets whose tool is gone.
    Raises NothingToEvaluate, BadOffer."""
    head = warehouse.tables.head(TRAINING_SET.name)
    if head is None:
        raise NothingToEvaluate(
            f"no training set in {warehouse.home}: expected one that a run has published;"
            " materialize training_set, or point TOOLMILL_HOME at a home that holds one"
        )
    rows = warehouse.tables.read(TRAINING_SET).to_dicts()
    pool = load_pool(warehouse.home, head.digest)
    serving = find_model_in_service(warehouse.home, CALLER).model
    learnt_set = (read_caller_card(warehouse.home, serving) or {}).get("training_set")
    known = read_known_contracts(warehouse, learnt_set)
    fresh = frozenset({row["contract_digest"] for row in rows} - known)
    return CallerBench(head.digest, rows, pool, _find_dead_requests(warehouse, pool), fresh)


def evaluate_candidate(
    warehouse: Warehouse,
    candidate: str,
    incumbent: str,
    plan: TestPlan | None = None,
    progress: Progress | None = None,
) -> tuple[list[dict[str, Any]], list[str]]:
    """(rows of CALLER_EVALUATION of the baseline, the incumbent and the candidate, what was left
    out and why).

    An incumbent that cannot be asked any more (its base is gone) is left out and told; a candidate
    that cannot be asked raises CannotPredict.
    """
    bench = load_bench(warehouse)
    ready: list[Predictor] = [BaselinePredictor()]
    notes = []
    card = read_caller_card(warehouse.home, candidate) or {}
    is_update = bool(card.get("start")) and candidate != incumbent
    # Against the caller that ships too: what an update a night loses unseen would add up.
    first = [GENERAL] if is_update and is_smollm2(card["base"]) else []
    for name in dict.fromkeys([incumbent, candidate, *first]):
        if name == BASELINE:
            continue
        # A model in service is asked most of its requests again each night.
        predictor = AdapterPredictor(warehouse.home, name, ledger=warehouse.ledger)
        try:
            predictor.load()
        except CannotPredict as error:
            if name == candidate:
                raise
            notes.append(f"incumbent {name[:12]} was not asked: {error}")
            continue
        ready.append(predictor)
    items = bench.make_items_for(plan or TestPlan())
    rows = evaluate_predictors(ready, items, bench.training_set, progress)
    if is_update:
        names = [predictor.label for predictor in ready]
        ready.clear()  # their memory
        fresh = [item for item in items if item.distractors == FRESH]
        try:
            rows += _add_likelihood(warehouse, rows, fresh, names, str(card["base"]))
        except (TrainingFailed, BadTemplate) as error:
            notes.append(f"likelihood was not measured: {' '.join(str(error).split())}")
    return rows, notes


def _add_likelihood(
    warehouse: Warehouse, rows: Rows, fresh: Sequence[CallerItem], names: Sequence[str], base: str
) -> list[dict[str, Any]]:
    """Fills `nats` of fresh items, of callers of one base; returns the kept requests as rows."""
    home, ledger = warehouse.home, warehouse.ledger
    kept, unasked = make_kept_items(read_requests(KEPT)), make_failed_answer(NOT_ASKED)
    kept_rows: list[dict[str, Any]] = []
    for name in names:
        own = [score_answer(item, unasked, name, rows[0]["training_set"]) for item in kept]
        kept_rows += own
        same = (read_caller_card(home, name) or {}).get("base") == base
        nats = measure_likelihood(home, name, [*fresh, *kept], ledger) if same else {}
        for row in (*own, *(row for row in rows if row["model"] == name)):
            row["nats"] = nats.get(row["item_id"])
    return kept_rows


def _find_dead_requests(warehouse: Warehouse, pool: dict[str, dict[str, Any]]) -> list[DeadRequest]:
    tables = warehouse.tables
    heads = tables.history(TRAINING_SET.name)[-1 - _SETS_BACK : -1]
    once = [
        row
        for head in reversed(heads)  # the last word on a pair first
        for row in tables.read(TRAINING_SET, as_of=head.at).to_dicts()
    ]
    if not once:
        return []
    clear, held_rows = read_contracts(warehouse)
    listed_tools = {(row["server_id"], row["tool"]) for row in [*clear, *held_rows]}
    listed_tools |= {(str(entry["server_id"]), str(entry["tool"])) for entry in pool.values()}
    return find_dead_requests(once, tables.read(CHANGES).to_dicts(), listed_tools, pool)


# Some 2,000 items on a set of a thousand pairs: minutes for a small model, cents for an endpoint.
LARGE = TestPlan(per_split=100, per_large=50, perturbations=50, irrelevance=100, phantom=100)
ENDPOINT_FAILURES = (
    "endpoint_down", "timeout", "rate_limited", "server_error", "auth", "bad_request",
    "no_provider", "budget_exceeded",
)  # fmt: skip


@dataclass(frozen=True)
class CallerEvaluation:
    """Every row, and the first model's summary against each other one."""

    plan: TestPlan
    rows: list[dict[str, Any]]
    summaries: list[dict[str, Any]]

    def as_dict(self) -> dict[str, Any]:
        return {
            "plan": asdict(self.plan),
            "rows": len(self.rows),
            "unanswered": count_unanswered(self.rows),
            "summaries": self.summaries,
        }


def compare_callers(
    bench: CallerBench,
    predictors: Sequence[Predictor],
    plan: TestPlan,
    progress: Progress | None = None,
) -> CallerEvaluation:
    """Asks every model the plan's items. Raises NothingToEvaluate, CannotPredict."""
    items = bench.make_items_for(plan)
    rows = evaluate_predictors(predictors, items, bench.training_set, progress)
    first = predictors[0].label
    summaries = [summarise_calls(rows, first, other.label) for other in predictors[1:]]
    return CallerEvaluation(plan, rows, summaries)


def count_unanswered(rows: Sequence[dict[str, Any]]) -> dict[str, dict[str, int]]:
    """Model -> error kind -> questions that got no answer."""
    out: dict[str, dict[str, int]] = {}
    for row in rows:
        if row["failed"]:
            of = out.setdefault(row["model"], {})
            of[row["error_kind"]] = of.get(row["error_kind"], 0) + 1
    return out


def write_out(folder: Path, evaluation: CallerEvaluation) -> list[Path]:
    """`items.jsonl` (a row a model and item), `summary.json`, `report.md`."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps(row) + "\n" for row in evaluation.rows)
    summary = json.dumps(evaluation.as_dict(), indent=1)
    texts = {
        "items.jsonl": lines,
        "summary.json": summary,
        "report.md": as_markdown(evaluation.summaries),
    }
    for name, text in texts.items():
        write_atomically(folder / name, text.encode())
    return [folder / name for name in texts]
