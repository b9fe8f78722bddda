"""A run's evaluation of callers, from the stores of a home: what is asked, of whom."""

from dataclasses import dataclass, field
from typing import Any

from assets.contracts.changes import CHANGES
from assets.contracts.quarantined_tools import read_contracts
from extensions.bench.robustness.phantom import DeadRequest, find_dead_requests
from training.evaluation.caller.items import Item, make_items
from training.evaluation.caller.plan import TestPlan
from training.evaluation.caller.run import evaluate_predictors
from training.evaluation.predictors.adapter import AdapterPredictor
from training.evaluation.predictors.baseline import BaselinePredictor
from training.evaluation.predictors.interface import CannotPredict, Predictor
from training.evaluation.retriever import NothingToEvaluate
from training.role import BASELINE
from training.sets.pool import load_pool
from training.sets.training_set import TRAINING_SET
from warehouse.progress import Progress
from warehouse.store import Warehouse

_SETS_BACK = 10  # training sets whose requests are looked through for tools that are gone


@dataclass(frozen=True)
class Bench:
    """What a home's callers are measured on."""

    training_set: str
    rows: list[dict[str, Any]]
    pool: dict[str, dict[str, Any]]
    dead: list[DeadRequest] = field(default_factory=list)

    def make_items_for(self, plan: TestPlan) -> list[Item]:
        return make_items(self.rows, self.pool, plan, self.dead)


def load_bench(warehouse: Warehouse) -> Bench:
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
    return Bench(head.digest, rows, pool, _find_dead_requests(warehouse, pool))


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
    held = load_bench(warehouse)
    ready: list[Predictor] = [BaselinePredictor()]
    notes = []
    for name in dict.fromkeys([incumbent, candidate]):
        if name == BASELINE:
            continue
        predictor = AdapterPredictor(warehouse.home, name)
        try:
            predictor.load()
        except CannotPredict as error:
            if name == candidate:
                raise
            notes.append(f"incumbent {name[:12]} was not asked: {error}")
            continue
        ready.append(predictor)
    return evaluate_predictors(
        ready, held.make_items_for(plan or TestPlan()), held.training_set, progress
    ), notes


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
    clear, held = read_contracts(warehouse)
    listed = {(row["server_id"], row["tool"]) for row in [*clear, *held]}
    listed |= {(str(entry["server_id"]), str(entry["tool"])) for entry in pool.values()}
    return find_dead_requests(once, tables.read(CHANGES).to_dicts(), listed, pool)
