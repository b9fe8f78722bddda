"""What the methods come to: held-out success, and drift, as figures and Markdown tables."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from benchmarks.outcomes.noise.endpoints import AFTER, BEFORE
from benchmarks.outcomes.noise.intents import HELD_OUT, TRAIN
from benchmarks.outcomes.noise.play import (
    ACTORS,
    SHOWN,
    TICK_S,
    Make,
    NoiseStage,
    draw_log,
    order_by_method,
    order_by_oracle,
    order_by_retriever,
    order_candidates,
    order_curated,
    pick_place,
    value_orders,
)
from benchmarks.outcomes.noise.table import NO_CALL, TaskFacts
from extensions.recommender.rerank_method import OutcomeExample
from training.evaluation.metrics import MetricFigure, bootstrap_mean

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


def render_report(figures: Mapping[str, Any]) -> str:
    """The figures as Markdown tables."""
    parts = [_render_success(figures["log"]["success"])]
    if by_category := figures.get("categories"):
        names = list(next(iter(by_category.values())))
        rows = {name: {key: own[name] for key, own in by_category.items()} for name in names}
        parts.append(_render_rows("held-out, top", list(by_category), rows))
    if drift := figures.get("drift"):
        parts.append(_render_drift(drift))
    return "\n\n".join(parts)


def _render_success(success: Mapping[str, Any]) -> str:
    lines = [
        f"| log | top | less {RIVAL} | by rank | less {RIVAL} |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, by_actor in success.items():
        cells = []
        for actor in ACTORS:
            cells.append(_show(by_actor[actor]["success"]))
            less = by_actor[actor].get(f"less {RIVAL}")
            cells.append(_show(less, "+") if less else "")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _render_rows(head: str, columns: Sequence[Any], rows: Mapping[str, Mapping[Any, float]]) -> str:
    lines = [f"| {head} | {' | '.join(map(str, columns))} |", f"| --- |{' ---: |' * len(columns)}"]
    for name, own in rows.items():
        lines.append(f"| {name} | {' | '.join(f'{own[column]:.3f}' for column in columns)} |")
    return "\n".join(lines)


def _render_drift(drift: Mapping[str, Mapping[str, Any]]) -> str:
    checks = list(next(iter(drift.values()))["after"])
    lines = [
        f"| by rank | before | {' | '.join(f'+{at}' for at in checks)} | less {RIVAL} | the change"
        " cost | in the end | recovered after |",
        f"| --- |{' ---: |' * (len(checks) + 1)}{' --- |' * 4}",
    ]
    for name, own in drift.items():
        curve = " | ".join(f"{own['after'][at]:.3f}" for at in checks)
        cost = [_show(item) for item in own["cost"].values()]
        less = own.get(f"less {RIVAL}")
        due = own["outcomes to recover 90%"]
        ends = ", ".join(_show_count(item) for item in due["interval"])
        parts = [
            name, f"{own['before']:.3f}", curve, _show(less, "+") if less else "", cost[0],
            cost[-1], f"{_show_count(due['value'])} [{ends}]",
        ]  # fmt: skip
        lines.append(f"| {' | '.join(parts)} |")
    return "\n".join(lines)


def _show_count(outcomes: int | None) -> str:
    return "never" if outcomes is None else str(outcomes)


def _show(figure: Mapping[str, Any], sign: str = "") -> str:
    return format(MetricFigure(**figure), sign)


def describe_table(stage: NoiseStage) -> dict[str, Any]:
    """Counts, and the share of successes among calls that were made, by fault."""
    table = stage.table
    by_fault: dict[str, list[bool]] = defaultdict(list)
    for (_, name, phase), tried in table.outcomes.items():
        if tried.kind != NO_CALL and phase == BEFORE:
            endpoint = table.endpoints[name]
            fault = endpoint.faults[BEFORE] or ("real" if endpoint.direct else "none")
            by_fault[fault].append(tried.success)
    kinds = Counter(item.kind for item in table.outcomes.values())
    endpoints = table.endpoints.values()
    return {
        "tasks": dict(Counter(task.split for task in table.tasks)),
        "requests": len({task.query for task in table.tasks}),
        "intents": len({task.intent for task in table.tasks}),
        "servers": len({endpoint.source for endpoint in endpoints}),
        "real": sum(endpoint.direct for endpoint in endpoints),
        "variants": sum(not endpoint.direct and not endpoint.newcomer for endpoint in endpoints),
        "newcomers": sum(endpoint.newcomer for endpoint in endpoints),
        "changed": sum(endpoint.changes for endpoint in endpoints),
        "new contracts": sum(bool(endpoint.renames) for endpoint in endpoints),
        "pairs": len(table.outcomes),
        "calls made": len(table.outcomes) - kinds[NO_CALL],
        "kinds": dict(kinds),
        "success by fault": {
            name: {"share": round(float(np.mean(own)), 4), "n": len(own)}
            for name, own in sorted(by_fault.items())
        },
        "any of five": _share_done(stage, SHOWN),
        "any candidate": _share_done(stage, 10**6),
    }


def _share_done(stage: NoiseStage, most: int) -> float:
    """The share of tasks that one of the retriever's first `most` candidates does."""
    done = []
    for task in stage.table.tasks:
        places = stage.ask(task, BEFORE).candidates[:most].tolist()
        done.append(any(stage.succeeds(task, place, BEFORE) for place in places))
    return round(float(np.mean(done)), 4)
