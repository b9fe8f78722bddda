"""Streams: a method orders request after request and learns; in the middle the tools change."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from benchmarks.outcomes.noise.endpoints import AFTER, BEFORE
from benchmarks.outcomes.noise.play import (
    Make,
    NoiseStage,
    order_by_method,
    order_candidates,
    pick_place,
    value_orders,
)
from benchmarks.outcomes.noise.table import TaskFacts
from benchmarks.outcomes.simulator import TICK_S
from extensions.recommender.rerank_method import OutcomeExample

OLD_CONTRACT = 0.5  # weight of an outcome of a contract that is no longer listed
EXPOSURES = 50  # of a newcomer, over which its regret is told
CHECKS = (0, 25, 50, 100, 200, 400, 700, 1000)  # outcomes after the change
REFIT = 100  # outcomes between two fits of everything after the change
REFITS = (
    50,
    100,
    200,
    400,
    700,
    1000,
    1400,
)  # outcomes before a fit of everything, from a cold start


@dataclass
class DriftResult:
    """What one method did. before: held-out success just before the change, of the tools as they
    were. after: outcomes since the change -> held-out success. regrets: newcomer -> what each of
    its first exposures cost against the best candidate's true rate; taken: how often each of those
    took it."""

    before: float = 0.0
    after: dict[int, float] = field(default_factory=dict)
    regrets: dict[str, list[float]] = field(default_factory=dict)
    taken: dict[str, int] = field(default_factory=dict)

    def average_regret(self) -> float | None:
        """Mean over the newcomers that were candidates at all."""
        own = [float(np.mean(item)) for item in self.regrets.values() if item]
        return float(np.mean(own)) if own else None


def play_online(
    stage: NoiseStage,
    make: Make,
    tasks: Sequence[TaskFacts],
    held: Sequence[TaskFacts],
    seed: int,
) -> dict[int, list[np.ndarray]]:
    """Outcomes so far -> the orders of held-out tasks' candidates, of a method that starts without
    any, orders each task itself and learns from what the actor of `by rank` took."""
    rng, rows, found = np.random.default_rng(seed), list[OutcomeExample](), {}
    method, pool = make(), stage.pools[BEFORE]
    method.fit([], pool)
    for at, task in enumerate(tasks, 1):
        question = stage.ask(task, BEFORE, at * TICK_S)
        order = order_candidates(method.explore(question, question.candidates, rng), question)
        place = pick_place(order, rng)
        rows.append(
            OutcomeExample(question, place, stage.succeeds(task, place, BEFORE), task=task.id)
        )
        method.update(rows[-1])
        if at in REFITS or at == len(tasks):
            method.fit(rows, pool)
            found[at] = order_by_method(stage, method, held, at)
    return found


def run_drift(
    stage: NoiseStage,
    make: Make,
    first: Sequence[OutcomeExample],
    late: Sequence[TaskFacts],
    held: Sequence[TaskFacts],
    seed: int,
) -> DriftResult:
    """A method that has learnt from `first` (the log before the change) plays `late` after it."""
    rng, found = np.random.default_rng(seed), DriftResult()
    method = make()
    method.fit(first, stage.pools[BEFORE])
    orders = order_by_method(stage, method, held, len(first))
    found.before = float(value_orders(stage, held, orders, "by rank").mean())
    rows = age_examples(stage, first)
    method.fit(rows, stage.pools[AFTER])
    rates, start = stage.measure_rates(AFTER), len(first)
    for at, task in enumerate(late):
        if at in CHECKS:
            found.after[at] = _value_held(stage, make, rows, held)
        question = stage.ask(task, AFTER, (start + at) * TICK_S)
        order = order_candidates(method.explore(question, question.candidates, rng), question)
        place = pick_place(order, rng)
        done = stage.succeeds(task, place, AFTER)
        _note_newcomers(stage, task, question.candidates, place, done, rates, found)
        example = OutcomeExample(question, place, done, task=task.id)
        rows.append(example)
        method.update(example)
        if (at + 1) % REFIT == 0:
            method.fit(rows, stage.pools[AFTER])
    found.after[len(late)] = _value_held(stage, make, rows, held)
    return found


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
    wanted = (1 - share) * cost[0]
    return next((at for at, value in sorted(cost.items()) if value <= wanted), None)


def _value_held(
    stage: NoiseStage, make: Make, rows: Sequence[OutcomeExample], held: Sequence[TaskFacts]
) -> float:
    """Held-out success after the change, by the actor of `by rank`, of a fit of these rows."""
    method = make()
    method.fit(rows, stage.pools[AFTER])
    orders = order_by_method(stage, method, held, len(rows), AFTER)
    return float(value_orders(stage, held, orders, "by rank", AFTER).mean())


def _note_newcomers(
    stage: NoiseStage, task: TaskFacts, candidates: np.ndarray, place: int, done: bool,
    rates: dict[tuple[str, str], float], found: DriftResult,
) -> None:  # fmt: skip
    ids = [stage.pools[AFTER].tools[item].tool_id for item in candidates.tolist()]
    best = max(rates[task.intent, name] for name in ids)
    picked = stage.pools[AFTER].tools[place].tool_id
    for name in ids:
        own = found.regrets.setdefault(name, [])
        # Only where the newcomer would have been a good choice: what is lost by not trying it.
        worth = rates[task.intent, name] >= 0.9 * best > 0
        if stage.table.endpoints[name].newcomer and worth and len(own) < EXPOSURES:
            own.append(best - done)
            found.taken[name] = found.taken.get(name, 0) + (picked == name)
