"""Streams: a method orders request after request and learns; in the middle the tools change."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from benchmarks.outcomes.noise.endpoints import AFTER, BEFORE
from benchmarks.outcomes.noise.play import (
    TICK_S,
    Make,
    NoiseStage,
    order_by_method,
    order_candidates,
    pick_place,
    value_orders,
)
from benchmarks.outcomes.noise.table import TaskFacts
from extensions.recommender.rerank_method import OutcomeExample

OLD_CONTRACT = 0.5  # weight of an outcome of a contract that is no longer listed
CHECKS = (0, 25, 50, 100, 200, 400, 700, 1000)  # outcomes after the change
REFIT = 100  # outcomes between two fits of everything after the change


@dataclass
class DriftResult:
    """One method's held-out success. before: just before the change, of the tools as they were;
    after: by the number of outcomes since the change."""

    before: float = 0.0
    after: dict[int, float] = field(default_factory=dict)


def run_drift(
    stage: NoiseStage,
    make: Make,
    first: Sequence[OutcomeExample],
    late: Sequence[TaskFacts],
    held: Sequence[TaskFacts],
    seed: int,
) -> DriftResult:
    """A method that has learnt from `first` (the log before the change) plays `late` after it."""
    rng, result = np.random.default_rng(seed), DriftResult()
    method = make()
    method.fit(first, stage.pools[BEFORE])
    orders = order_by_method(stage, method, held, len(first))
    result.before = float(value_orders(stage, held, orders, "by rank").mean())
    rows = age_examples(stage, first)
    method.fit(rows, stage.pools[AFTER])
    for at, task in enumerate(late):
        if at in CHECKS:
            result.after[at] = _value_held(stage, make, rows, held)
        question = stage.ask(task, AFTER, (len(first) + at) * TICK_S)
        order = order_candidates(method.score(question, question.candidates), question)
        place = pick_place(order, rng)
        success = stage.succeeds(task, place, AFTER)
        rows.append(OutcomeExample(question, place, success, task=task.id))
        method.update(rows[-1])
        if (at + 1) % REFIT == 0:
            method.fit(rows, stage.pools[AFTER])
    result.after[len(late)] = _value_held(stage, make, rows, held)
    return result


def age_examples(stage: NoiseStage, examples: Sequence[OutcomeExample]) -> list[OutcomeExample]:
    """The log as it is read after the change: outcomes of a contract that is gone weigh less."""
    before, after = (pool.tools for pool in stage.pools)
    gone = {
        place
        for place, (old, new) in enumerate(zip(before, after, strict=True))
        if old.contract_digest != new.contract_digest
    }
    return [
        replace(example, weight=OLD_CONTRACT) if example.place in gone else example
        for example in examples
    ]


def count_recovery(cost: Mapping[int, float], share: float = 0.9) -> int | None:
    """The first check at which `share` of what the change cost right after it is made up for; 0
    where it cost nothing, None where none is. cost: outcomes since the change -> what is lost to
    the oracle beyond what was lost before it."""
    if cost[0] <= 0:
        return 0
    enough = (1 - share) * cost[0]
    return next((at for at, value in sorted(cost.items()) if value <= enough), None)


def _value_held(
    stage: NoiseStage, make: Make, rows: Sequence[OutcomeExample], held: Sequence[TaskFacts]
) -> float:
    """Held-out success after the change, by the actor of `by rank`, of a fit of these rows."""
    method = make()
    method.fit(rows, stage.pools[AFTER])
    orders = order_by_method(stage, method, held, len(rows), AFTER)
    return float(value_orders(stage, held, orders, "by rank", AFTER).mean())
