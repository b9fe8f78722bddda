"""The figures as Markdown tables."""

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.outcomes.noise.play import ACTORS
from benchmarks.outcomes.noise.report import RIVAL
from training.evaluation.metrics import MetricFigure


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
