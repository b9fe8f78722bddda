"""What the methods come to: held-out success, learning curve, drift, as figures."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.outcomes.noise.endpoints import AFTER, BEFORE
from benchmarks.outcomes.noise.intents import HELD_OUT, TRAIN
from benchmarks.outcomes.noise.play import (
    ACTORS,
    Make,
    NoiseStage,
    draw_log,
    order_by_method,
    order_by_oracle,
    order_by_retriever,
    order_curated,
    value_orders,
)
from benchmarks.outcomes.noise.streams import DriftResult, count_recovery, run_drift
from benchmarks.outcomes.noise.table import TaskFacts
from training.evaluation.metrics import bootstrap_mean

FIXED = ("retriever", "curated pool", "oracle")  # they learn nothing
RIVAL = "toolflix"
Values = dict[str, dict[str, np.ndarray]]  # method -> actor -> success per held-out task


def value_fixed(stage: NoiseStage) -> Values:
    """Retriever, curated pool and oracle."""
    tasks = stage.list_tasks(HELD_OUT)
    return {
        name: {actor: value_orders(stage, tasks, own, actor) for actor in ACTORS}
        for name, own in order_fixed(stage, tasks).items()
    }


def order_fixed(stage: NoiseStage, held: Sequence[TaskFacts]) -> dict[str, list[np.ndarray]]:
    """The orders of those that learn nothing, by FIXED."""
    retrieved, curated = order_by_retriever(stage, held), order_curated(stage, held)
    return dict(zip(FIXED, (retrieved, curated, order_by_oracle(stage, held)), strict=True))


def value_methods(
    stage: NoiseStage, methods: Mapping[str, Make], n: int, seeds: Sequence[int]
) -> Values:
    """Each method after a log of the first `n` training tasks; the mean of the seeds' logs."""
    train, held = stage.list_tasks(TRAIN)[:n], stage.list_tasks(HELD_OUT)
    found: dict[str, dict[str, list[np.ndarray]]] = defaultdict(lambda: defaultdict(list))
    for seed in seeds:
        log = draw_log(stage, train, seed)
        for name, make in methods.items():
            method = make()
            method.fit(log, stage.pools[0])
            orders = order_by_method(stage, method, held, len(train))
            for actor in ACTORS:
                found[name][actor].append(value_orders(stage, held, orders, actor))
    return {
        name: {actor: np.mean(own, 0) for actor, own in by_actor.items()}
        for name, by_actor in found.items()
    }


def summarise_values(stage: NoiseStage, values: Values) -> dict[str, dict[str, Any]]:
    """Method -> actor -> figure, and the paired differences to RIVAL and to the retriever; whole
    intents are drawn."""
    intents = [task.intent for task in stage.list_tasks(HELD_OUT)]

    def measure(own: np.ndarray) -> dict[str, float | int]:
        return bootstrap_mean(own.tolist(), intents).as_dict()

    return {
        name: {
            actor: {
                "success": measure(own),
                **{
                    f"less {other}": measure(own - values[other][actor])
                    for other in (RIVAL, "retriever")
                    if other in values and other != name
                },
            }
            for actor, own in by_actor.items()
        }
        for name, by_actor in values.items()
    }


def summarise_categories(stage: NoiseStage, values: Values) -> dict[str, dict[str, float]]:
    """Category -> method -> held-out success by the actor that takes the first."""
    tasks = stage.list_tasks(HELD_OUT)
    return {
        category: {
            name: round(float(own["top"][[item.category == category for item in tasks]].mean()), 4)
            for name, own in values.items()
        }
        for category in sorted({item.category for item in tasks})
    }


def measure_drift(
    stage: NoiseStage, methods: Mapping[str, Make], seeds: Sequence[int], late: int
) -> dict[str, dict[str, Any]]:
    """Method -> success before and after the change, what the change cost against who knows the
    true rates, outcomes to recover. Each seed is another log before the change
    and other picks after it; intervals draw seeds."""
    train, held = stage.list_tasks(TRAIN), stage.list_tasks(HELD_OUT)
    half = len(train) // 2
    best = {
        phase: float(value_orders(stage, held, orders, "by rank", phase).mean())
        for phase in (BEFORE, AFTER)
        for orders in (order_by_oracle(stage, held, phase),)
    }
    played: dict[str, list[DriftResult]] = defaultdict(list)
    for seed in seeds:
        first = draw_log(stage, train[:half], seed)
        for name, make in methods.items():
            drift = run_drift(stage, make, first, train[half : half + late], held, seed)
            played[name].append(drift)
    result = {name: summarise_drift(own, best) for name, own in played.items()}
    if RIVAL in played:
        for name, own in played.items():
            result[name][f"less {RIVAL}"] = _compare_ends(own, played[RIVAL])
    return result


def summarise_drift(
    own: Sequence[DriftResult], best: Mapping[int, float], draws: int = 1_000
) -> dict[str, Any]:
    """One method over seeds. best: what the oracle reaches in each phase."""
    checks = list(own[0].after)
    lost = best[BEFORE] - np.array([drift.before for drift in own])
    cost = np.array([[best[AFTER] - drift.after[at] for at in checks] for drift in own])
    cost -= lost[:, None]

    def count(rows: np.ndarray) -> int | None:
        return count_recovery(dict(zip(checks, rows.mean(0).tolist(), strict=True)))

    rng, never = np.random.default_rng(0), checks[-1] + 1
    drawn = [count(cost[rng.integers(0, len(own), len(own))]) for _ in range(draws)]
    ends = np.percentile([never if item is None else item for item in drawn], [2.5, 97.5],
                         method="nearest").astype(int).tolist()  # fmt: skip
    return {
        "seeds": len(own),
        "before": round(float(np.mean([drift.before for drift in own])), 4),
        "after": {
            at: round(float(np.mean([drift.after[at] for drift in own])), 4) for at in checks
        },
        "cost": {
            at: _draw_seeds(cost[:, place].tolist())
            for place, at in enumerate(checks)
            if at in (checks[0], checks[-1])
        },
        "outcomes to recover 90%": {
            "value": count(cost),
            "interval": [end if end < never else None for end in ends],
        },
    }


def _compare_ends(own: Sequence[DriftResult], rivals: Sequence[DriftResult]) -> dict[str, Any]:
    """Success at the last check less the rival's, seed by seed."""
    last = max(own[0].after)
    pairs = zip(own, rivals, strict=True)
    return _draw_seeds([mine.after[last] - theirs.after[last] for mine, theirs in pairs])


def _draw_seeds(values: Sequence[float]) -> dict[str, float | int]:
    return bootstrap_mean(values, [str(seed) for seed in range(len(values))]).as_dict()
