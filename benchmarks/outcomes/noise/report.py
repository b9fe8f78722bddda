"""What the methods come to: held-out success, learning curve, drift, as figures."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.outcomes.noise.endpoints import AFTER
from benchmarks.outcomes.noise.intents import HELD_OUT, TRAIN
from benchmarks.outcomes.noise.model_actor import value_by_model
from benchmarks.outcomes.noise.play import (
    ACTORS,
    Make,
    Stage,
    draw_log,
    order_by_method,
    order_by_oracle,
    order_by_retriever,
    order_curated,
    value_orders,
)
from benchmarks.outcomes.noise.streams import Drift, count_recovery, play_online, run_drift
from benchmarks.outcomes.noise.table import TaskFacts
from training.evaluation.metrics import bootstrap_mean
from warehouse.llm.client import LLM

FIXED = ("retriever", "curated pool", "oracle")  # they learn nothing
RIVAL = "toolflix"
Values = dict[str, dict[str, np.ndarray]]  # method -> actor -> success per held-out task


def value_fixed(stage: Stage) -> Values:
    """Retriever, curated pool and oracle."""
    held = stage.list_tasks(HELD_OUT)
    return {
        name: {actor: value_orders(stage, held, own, actor) for actor in ACTORS}
        for name, own in order_fixed(stage, held).items()
    }


def order_fixed(stage: Stage, held: Sequence[TaskFacts]) -> dict[str, list[np.ndarray]]:
    """The orders of those that learn nothing, by FIXED."""
    retrieved, curated = order_by_retriever(stage, held), order_curated(stage, held)
    return dict(zip(FIXED, (retrieved, curated, order_by_oracle(stage, held)), strict=True))


def value_methods(
    stage: Stage, methods: Mapping[str, Make], n: int, seeds: Sequence[int]
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


def value_with_model(
    stage: Stage, methods: Mapping[str, Make], llm: LLM
) -> dict[str, dict[str, float | int]]:
    """Held-out success where a model picks among the five: of the retriever, the curated pool, the
    oracle and each method after the log of seed 0."""
    train, held = stage.list_tasks(TRAIN), stage.list_tasks(HELD_OUT)
    orders = order_fixed(stage, held)
    log = draw_log(stage, train, 0)
    for name, make in methods.items():
        method = make()
        method.fit(log, stage.pools[0])
        orders[name] = order_by_method(stage, method, held, len(train))
    intents = [task.intent for task in held]
    return {
        name: bootstrap_mean(value_by_model(stage, held, own, llm).tolist(), intents).as_dict()
        for name, own in orders.items()
    }


def summarise_values(stage: Stage, values: Values) -> dict[str, dict[str, Any]]:
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


def summarise_categories(stage: Stage, values: Values) -> dict[str, dict[str, float]]:
    """Category -> method -> held-out success by the actor that takes the first."""
    held = stage.list_tasks(HELD_OUT)
    return {
        category: {
            name: round(float(own["top"][[one.category == category for one in held]].mean()), 4)
            for name, own in values.items()
        }
        for category in sorted({one.category for one in held})
    }


def measure_curve(
    stage: Stage, methods: Mapping[str, Make], sizes: Sequence[int], seeds: Sequence[int]
) -> dict[str, dict[int, float]]:
    """Method -> outcomes in the log -> held-out success by the actor that takes the first."""
    found: dict[str, dict[int, float]] = defaultdict(dict)
    for n in sizes:
        for name, own in value_methods(stage, methods, n, seeds).items():
            found[name][n] = round(float(own["top"].mean()), 4)
    return dict(found)


def value_online(
    stage: Stage, methods: Mapping[str, Make], seeds: Sequence[int]
) -> tuple[Values, dict[str, dict[int, float]]]:
    """(each method after all training tasks that it ordered itself, its learning curve by the actor
    that takes the first); means over the seeds."""
    train, held = stage.list_tasks(TRAIN), stage.list_tasks(HELD_OUT)
    values: Values = {}
    curve: dict[str, dict[int, float]] = {}
    for name, make in methods.items():
        played = [play_online(stage, make, train, held, seed) for seed in seeds]
        by_size = {
            at: {
                actor: np.mean([value_orders(stage, held, one[at], actor) for one in played], 0)
                for actor in ACTORS
            }
            for at in played[0]
        }
        values[name] = by_size[len(train)]
        curve[name] = {at: round(float(own["top"].mean()), 4) for at, own in by_size.items()}
    return values, curve


def measure_drift(
    stage: Stage, methods: Mapping[str, Make], seeds: Sequence[int], late: int
) -> dict[str, dict[str, Any]]:
    """Method -> success before and after the change, outcomes to recover, regret of newcomers. The
    goal is what the same method reaches with a log of the second phase alone, as long as all that
    it has had."""
    train, held = stage.list_tasks(TRAIN), stage.list_tasks(HELD_OUT)
    half = len(train) // 2
    found: dict[str, list[tuple[Drift, float]]] = defaultdict(list)
    for seed in seeds:
        first = draw_log(stage, train[:half], seed)
        fresh = draw_log(stage, train[half:], seed, AFTER, half)
        for name, make in methods.items():
            method = make()
            method.fit(fresh, stage.pools[AFTER])
            orders = order_by_method(stage, method, held, len(train), AFTER)
            goal = float(value_orders(stage, held, orders, "by rank", AFTER).mean())
            drift = run_drift(stage, make, first, train[half : half + late], held, seed)
            found[name].append((drift, goal))
    return {name: _summarise_drift(own) for name, own in found.items()}


def _summarise_drift(own: Sequence[tuple[Drift, float]]) -> dict[str, Any]:
    curve = {
        at: round(float(np.mean([drift.after[at] for drift, _ in own])), 4)
        for at in own[0][0].after
    }
    goal = float(np.mean([goal for _, goal in own]))
    regrets = [one for drift, _ in own if (one := drift.average_regret()) is not None]
    exposed = sum(len(one) for drift, _ in own for one in drift.regrets.values())
    taken = sum(sum(drift.taken.values()) for drift, _ in own)
    return {
        "before": round(float(np.mean([drift.before for drift, _ in own])), 4),
        "after": curve,
        "goal": round(goal, 4),
        "outcomes to recover 90%": count_recovery(curve, goal),
        "newcomers": {
            "regret": round(float(np.mean(regrets)), 4) if regrets else None,
            "exposures": exposed,
            "taken": round(taken / exposed, 4) if exposed else None,
        },
    }
