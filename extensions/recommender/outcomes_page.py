"""The plots of the page of outcomes: lines over time, and dots with their intervals."""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

from assets.outcomes.reliability.report import shorten_tool
from extensions.recommender.outcomes_figures import (
    collect_rates,
    rank_categories,
    render_alike,
    render_calibration,
    render_changes,
    render_days,
)
from training.figures import Json, shorten_model
from training.reporting.drawing import Draw, File, draw_plot
from warehouse.pictures import PictureStore
from warehouse.sanitize.markdown import Markdown, fill_markdown, join_markdown
from warehouse.storage.files import write_changed

_INK, _QUIET, _GRID = "#1f2937", "#4b5563", "#e5e7eb"
_AFTER, _BEFORE = "#2563eb", "#9ca3af"
_COLOURS = ("#ea580c", "#0d9488", "#7c3aed", "#d97706", "#dc2626")
_LIKELY = 30  # calls of a point of a category: fewer are noise
Dots = Sequence[tuple[str, Sequence[Json]]]  # label -> a rate of each series


def choose_outcome_plots(facts: Mapping[str, Any]) -> dict[str, Draw]:
    """Name of a plot -> how to draw it into a file; only plots that show something. `facts`: those
    of `gather_outcome_facts`."""
    result: dict[str, Draw] = {}
    if len(facts["days"]["all"]) > 1:
        result["days"] = partial(_draw_days, facts["days"])
    if pairs := facts["alike"]["shown"]:
        dots = [
            (
                "\n".join(shorten_tool(pair[side]["tool_id"]) for side in ("better", "worse")),
                [pair[side]["rate"] for side in ("better", "worse")],
            )
            for pair in pairs
        ]
        series = {"the tool named first": _AFTER, "its look-alike": _BEFORE}
        result["alike"] = partial(_draw_dots, dots, series, "expected share of calls that work")
    if facts["calibration"]:
        result["calibration"] = partial(_draw_calibration, facts["calibration"])
    if changed := facts["changes"]["shown"]:
        dots = [
            (f"{shorten_tool(item['tool_id'])}\n{item['cls']}", [item["before"], item["after"]])
            for item in changed
        ]
        series = {"before the change": _BEFORE, "after it": _AFTER}
        result["changes"] = partial(_draw_dots, dots, series, "calls that worked")
    return result


def _draw_days(found: Json, path: File) -> None:
    """The share of all calls with its interval, and below a line of each of the largest categories
    where they have calls enough."""
    figure, axis = _make_canvas(3.4)
    days = sorted(found["all"])
    rates = [found["all"][day] for day in days]
    axis.fill_between(
        _read_dates(days), [rate["low"] for rate in rates], [rate["high"] for rate in rates],
        color=_AFTER, alpha=0.13, linewidth=0,
    )  # fmt: skip
    for colour, name in zip(_COLOURS, rank_categories(found, len(_COLOURS)), strict=False):
        places, values = _merge_days(collect_rates(found, name))
        axis.plot(places, values, color=colour, linewidth=1.1, marker=".", label=name)
    axis.plot(
        _read_dates(days), [rate["value"] for rate in rates], color=_AFTER, linewidth=2.2,
        marker="o", markersize=3.5, label="all, 95% interval",
    )  # fmt: skip
    from matplotlib.dates import AutoDateLocator, DateFormatter

    axis.xaxis.set_major_locator(AutoDateLocator(maxticks=8))
    axis.xaxis.set_major_formatter(DateFormatter("%Y-%m-%d"))
    _save_shares(figure, axis, "calls that worked, by UTC day", path)


def _merge_days(rates: Mapping[str, Json]) -> tuple[list[date], list[float]]:
    """Days of one category, merged until each point has calls enough; placed at its last day."""
    places, values, worked, n = [], [], 0.0, 0.0
    for day, one in sorted(rates.items()):
        worked, n = worked + one["value"] * one["n"], n + one["n"]
        if n >= _LIKELY:
            places.append(date.fromisoformat(day))
            values.append(worked / n)
            worked = n = 0.0
    return places, values


def _draw_calibration(models: Sequence[Mapping[str, Any]], path: File) -> None:
    figure, axis = _make_canvas(4.2, width=5.6)
    axis.plot([0, 1], [0, 1], color=_BEFORE, linewidth=1, linestyle=(0, (4, 3)), label="calibrated")
    for colour, one in zip((_AFTER, *_COLOURS), models, strict=False):
        predicted = [held["predicted"] for held in one["bins"]]
        observed = [held["observed"] for held in one["bins"]]
        spread = [
            [rate["value"] - rate["low"] for rate in observed],
            [rate["high"] - rate["value"] for rate in observed],
        ]
        label = shorten_model(one["model"]) + (" (in service)" if one["in_service"] else "")
        axis.errorbar(
            predicted, [rate["value"] for rate in observed], yerr=spread, fmt="o-", color=colour,
            linewidth=1.2, markersize=4, elinewidth=1, ecolor=colour, label=label,
        )  # fmt: skip
    axis.set_xlim(0, 1)
    axis.xaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
    axis.set_xlabel("P(success) that the reranker predicted", fontsize=8.5, color=_QUIET)
    _save_shares(figure, axis, "held-out calls that worked, 95% interval", path)


def _draw_dots(dots: Dots, series: Mapping[str, str], title: str, path: File) -> None:
    """One line a label, a dot with its interval of each series. series: name -> colour."""
    figure, axis = _make_canvas(1.3 + (0.34 if len(series) == 1 else 0.42) * len(dots))
    for place, (_, rates) in enumerate(reversed(dots)):
        for at, (one, colour) in enumerate(zip(rates, series.values(), strict=True)):
            row = place + (0.15 - 0.3 * at) * (len(series) > 1)
            axis.plot([one["low"], one["high"]], [row] * 2, color=colour, alpha=0.35, linewidth=5)
            axis.scatter([one["value"]], [row], color=colour, s=28, zorder=3, clip_on=False)
    for name, colour in series.items():
        axis.plot([], [], "o", color=colour, markersize=5, label=name)
    # Names are third parties': a dollar sign in them is no formula.
    labels = [label for label, _ in reversed(dots)]
    axis.set_yticks(range(len(dots)), labels, fontsize=7.5, color=_INK, parse_math=False)
    axis.set_ylim(-0.6, len(dots) - 0.4)
    axis.set_xlim(0, 1)
    axis.xaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
    axis.grid(axis="x", color=_GRID, linewidth=0.8)
    _save_axes(figure, axis, f"{title}, 95% interval", path)


def _save_shares(figure: Any, axis: Any, title: str, path: File) -> None:
    axis.set_ylim(0, 1.02)
    axis.yaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
    axis.grid(axis="y", color=_GRID, linewidth=0.8)
    _save_axes(figure, axis, title, path)


def _save_axes(figure: Any, axis: Any, title: str, path: File) -> None:
    axis.set_axisbelow(True)
    axis.spines[["top", "right", "left", "bottom"]].set_visible(False)
    axis.tick_params(length=0, labelsize=8, labelcolor=_INK)
    axis.set_title(title, loc="left", fontsize=9.5, color=_INK)
    handles, names = axis.get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=6, frameon=False, fontsize=8)
    figure.savefig(path, format="png")


def _read_dates(days: Sequence[str]) -> list[date]:
    return [date.fromisoformat(day) for day in days]


def _make_canvas(height: float, width: float = 8.4) -> tuple[Any, Any]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained", dpi=110)
    FigureCanvasAgg(figure)
    return figure, figure.subplots()


_DRAWN_BY = ("training/reporting", "training/figures.py", "assets/outcomes/reliability")
_PARTS: Mapping[str, tuple[Markdown, Callable[[Any], Markdown]]] = {
    "days": (Markdown("Success over time"), render_days),
    "alike": (Markdown("Look-alikes: which of them works"), render_alike),
    "calibration": (Markdown("Are the reranker's probabilities true?"), render_calibration),
    "changes": (Markdown("Before and after a change of contract"), render_changes),
}


def write_outcomes(home: Path, facts: Mapping[str, Any]) -> Path:
    """Writes the page with its plots in place of the last one; returns the Markdown's path. facts:
    those of `gather_outcome_facts`."""
    folder = home / "reports" / "outcomes"
    folder.mkdir(parents=True, exist_ok=True)
    drawn = choose_outcome_plots(facts)
    pictures = PictureStore(home, *_DRAWN_BY)
    for name in _PARTS:
        path = folder / f"{name}.png"
        if draw := drawn.get(name):
            write_changed(path, draw_plot(pictures, f"outcomes-{name}", draw))
        else:
            path.unlink(missing_ok=True)
    parts = [Markdown("# Outcomes")]
    for name, (title, render) in _PARTS.items():
        parts.append(fill_markdown("## {}", title))
        if name in drawn:
            parts.append(fill_markdown("![{}]({}.png)", name, name))
        parts.append(render(facts[name]))
    path = folder / "report.md"
    write_changed(path, join_markdown("\n\n", parts).encode() + b"\n")
    write_changed(folder / "figures.json", json.dumps(facts, indent=1).encode())
    return path
