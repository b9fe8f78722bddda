"""What the methods come to: held-out success, as figures and Markdown tables."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.outcomes.noise.intents import HELD_OUT, TRAIN
from benchmarks.outcomes.noise.play import (
    ACTORS,
    SHOWN,
    Make,
    NoiseStage,
    draw_log,
    order_by_method,
    order_by_oracle,
    order_by_retriever,
    order_curated,
    value_orders,
)
from benchmarks.outcomes.noise.table import NO_CALL
from training.evaluation.metrics import MetricFigure, bootstrap_mean

RIVAL = "toolflix"
Values = dict[str, dict[str, np.ndarray]]  # method -> actor -> success per held-out task


def value_fixed(stage: NoiseStage) -> Values:
    """What learns nothing: retriever, curated pool and oracle."""
    tasks = stage.list_tasks(HELD_OUT)
    orders = {
        "retriever": order_by_retriever(stage, tasks),
        "curated pool": order_curated(stage, tasks),
        "oracle": order_by_oracle(stage, tasks),
    }
    return {
        name: {actor: value_orders(stage, tasks, own, actor) for actor in ACTORS}
        for name, own in orders.items()
    }


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
            method.fit(log, stage.pool)
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


def render_report(figures: Mapping[str, Any]) -> str:
    """The figures as Markdown tables."""
    parts = [_render_success(figures["log"]["success"])]
    if by_category := figures.get("categories"):
        names = list(next(iter(by_category.values())))
        rows = {name: {key: own[name] for key, own in by_category.items()} for name in names}
        parts.append(_render_rows("held-out, top", list(by_category), rows))
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


def _show(figure: Mapping[str, Any], sign: str = "") -> str:
    return format(MetricFigure(**figure), sign)


def describe_table(stage: NoiseStage) -> dict[str, Any]:
    """Counts, and the share of successes among calls that were made, by fault."""
    table = stage.table
    by_fault: dict[str, list[bool]] = defaultdict(list)
    for (_, name), tried in table.outcomes.items():
        if tried.kind != NO_CALL:
            endpoint = table.endpoints[name]
            fault = endpoint.fault or ("real" if endpoint.direct else "none")
            by_fault[fault].append(tried.success)
    kinds = Counter(item.kind for item in table.outcomes.values())
    endpoints = table.endpoints.values()
    return {
        "tasks": dict(Counter(task.split for task in table.tasks)),
        "requests": len({task.query for task in table.tasks}),
        "intents": len({task.intent for task in table.tasks}),
        "servers": len({endpoint.source for endpoint in endpoints}),
        "real": sum(endpoint.direct for endpoint in endpoints),
        "variants": sum(not endpoint.direct for endpoint in endpoints),
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
        places = stage.ask(task).candidates[:most].tolist()
        done.append(any(stage.succeeds(task, place) for place in places))
    return round(float(np.mean(done)), 4)
