"""Drift for the asset's page and the report: a table of signals, and a panel of each one's
history."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from time import time
from typing import Any

from training.drift.drift import sort_signals
from training.drift.signals import CONTRACTS
from training.figures import NONE, Json, format_table
from training.reporting.drawing import File, draw_png
from warehouse.pictures import PictureStore
from warehouse.sanitize.markdown import Markdown, embed_image, fill_markdown, join_markdown

_TITLES = {
    "contracts": "Contracts that moved",
    "retriever_decay": "Retriever's frozen items lost",
    "caller_decay": "Caller's right calls lost",
    "phantom_calls": "Phantom training calls",
}
_LINE, _INTERVAL, _LIMIT, _FIRED, _INK = "#2a6fb0", "#2a6fb0", "#b6bcc4", "#d1495b", "#30363d"
_COLUMNS = 2
_FIGURES = ("signal", "value", "low", "high", "threshold", "fired")
_DAY_S = 86_400.0
History = Mapping[str, Sequence[Json]]


def render_drift_table(rows: Sequence[Json]) -> Markdown:
    """Rows of DRIFT as a table, whatever was measured first."""
    measured = sorted(sort_signals(rows), key=lambda row: row["value"] is None)
    lines = [
        [
            _TITLES[row["signal"]],
            _format_value(row),
            f"{row['threshold']:g}",
            "–" if row["p_value"] is None else f"{row['p_value']:.3g}",
            row["n"] or NONE,
            "fired" if row["fired"] else "",
            row["why"],
        ]
        for row in measured
    ]
    head = ["signal", "value [95%]", "threshold", "p", "n", "", "what was found"]
    return join_markdown("\n", format_table(head, lines))


def _format_value(row: Json) -> Markdown:
    if row["value"] is None:
        return NONE
    if row["low"] is None:
        return fill_markdown("{:.3f}", row["value"])
    return fill_markdown("{:.3f} [{:.3f}, {:.3f}]", row["value"], row["low"], row["high"])


def render_drift_part(drift: Json | None) -> Markdown:
    """The part of a report: the contracts in a sentence, all signals as a table, their history."""
    if not drift:
        return join_markdown("\n", [Markdown("## Drift"), Markdown("Not measured in this run.")])
    rows = drift["signals"]
    counts = next((row for row in rows if row["signal"] == CONTRACTS), None)
    lines = [Markdown("## Drift")]
    if counts:
        counted = fill_markdown(
            "As it stood before this run decided whether to train: {changed} changed, {new} new,"
            " {gone} gone of {known} contracts since the last training.",
            **{name: counts[name] for name in ("changed", "new", "gone", "known")},
        )
        lines += [counted, Markdown("")]
    lines += [render_drift_table(rows), Markdown(""), Markdown("![drift](drift.png)")]
    return join_markdown("\n", lines)


def make_drift_page(history: History, rows: Sequence[Json], home: Path) -> Markdown:
    """The plot of all signals for the asset's page, with what was measured just now at its end.
    The same figures on the same day are the picture that the home keeps."""
    now = time()
    points = {name: list(held) for name, held in history.items()}
    for row in rows:
        points.setdefault(row["signal"], []).append(
            {"at": now} | {name: row[name] for name in _FIGURES[1:]}
        )
    if not has_points(points):
        return Markdown("No signal was measured yet.")
    shown = [history, [[row[name] for name in _FIGURES] for row in rows], int(now // _DAY_S)]
    pictures = PictureStore(home, "training/reporting", "training/drift")
    draw = partial(draw_drift, points)
    return embed_image("drift", pictures.draw("drift", shown, lambda: draw_png(draw)))


def has_points(history: History) -> bool:
    """Whether any signal was ever measured."""
    return any(point["value"] is not None for held in history.values() for point in held)


def draw_drift(history: History, path: File) -> None:
    """A panel a signal that was ever measured: its value as it stood, its interval, its threshold
    as a line of dashes, and a dot where it fired."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    names = [
        name
        for name in _TITLES
        if any(point["value"] is not None for point in history.get(name, ()))
    ]
    lines = -(-len(names) // _COLUMNS)
    figure = Figure(figsize=(8.4, 0.5 + 1.75 * lines), layout="constrained", dpi=110)
    FigureCanvasAgg(figure)
    panels = list(figure.subplots(lines, _COLUMNS, squeeze=False).flat)
    for axes, name in zip(panels, names, strict=False):
        measured = [point for point in history[name] if point["value"] is not None]
        _draw_panel(axes, _TITLES[name], measured)
    for axes in panels[len(names) :]:
        axes.set_visible(False)
    figure.savefig(path, format="png")


def _draw_panel(axes: Any, title: str, points: Sequence[Json]) -> None:
    days = [datetime.fromtimestamp(point["at"], UTC) for point in points]
    values = [point["value"] for point in points]
    if all(point["low"] is not None for point in points):
        low, high = ([point[end] for point in points] for end in ("low", "high"))
        if len(points) > 1:
            axes.fill_between(
                days, low, high, step="post", color=_INTERVAL, alpha=0.13, linewidth=0
            )
        else:
            axes.vlines(days, low, high, color=_INTERVAL, alpha=0.35, linewidth=5)
    axes.plot(days, values, color=_LINE, drawstyle="steps-post", linewidth=1.6, marker="o", ms=3)
    fired = [(day, one["value"]) for day, one in zip(days, points, strict=True) if one["fired"]]
    if fired:
        axes.scatter(*zip(*fired, strict=True), color=_FIRED, s=26, zorder=3)
    threshold = points[-1]["threshold"]
    axes.axhline(threshold, color=_INK, linewidth=0.9, linestyle=(0, (4, 3)))
    ends = [end for point in points for end in (point["low"], point["high"]) if end is not None]
    top = max(threshold * 1.6, max(values) * 1.25, max(ends, default=0.0) * 1.05)
    axes.set_ylim(min(0.0, min(values + ends) * 1.25), top)
    _finish_panel(axes, f"{title} (threshold {threshold:g})", days)


def _finish_panel(axes: Any, title: str, days: Sequence[datetime]) -> None:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    locator = AutoDateLocator(maxticks=5, minticks=2)
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))
    axes.xaxis.get_offset_text().set_fontsize(7)
    if len(set(days)) == 1:
        axes.set_xticks([days[0]], [f"{days[0]:%Y-%m-%d}"])
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(_LIMIT)
    axes.tick_params(color=_LIMIT, labelcolor=_INK, labelsize=7)
    axes.grid(axis="y", color="#e6e9ed", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.set_title(title, loc="left", fontsize=8.5, color=_INK)
