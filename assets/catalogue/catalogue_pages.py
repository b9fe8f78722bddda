"""Report: the catalogue in figures and in Markdown, for a reader of the graph."""

import io
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from assets.catalogue.coverage import DIMENSIONS
from assets.catalogue.identity import LEVELS
from warehouse.json_types import JsonObject, Row
from warehouse.pictures import PictureStore
from warehouse.sanitize.markdown import (
    Markdown,
    embed_image,
    fill_markdown,
    join_markdown,
    make_markdown_table,
)

_SHOWN = 15  # rows of an example table


def compute_figures(rows: Iterable[JsonObject]) -> dict[str, int]:
    """Counts that say how far the marketplaces overlap and how much is confirmed."""
    rows = list(rows)
    listed = [row for row in rows if row["gone"] is None]
    several = [row for row in listed if len(row["marketplaces"]) > 1]
    return {
        "servers": len(listed),
        "on_several_marketplaces": len(several),
        "confirmed": sum(row["confirmed"] is True for row in several),
        "contradicted": sum(row["confirmed"] is False for row in several),
        "not_run_twice": sum(row["confirmed"] is None for row in several),
        "with_disagreements": sum(row["disagreements"] != "{}" for row in listed),
        "likely_same": sum(bool(row["likely_same"]) for row in listed),
        "servers_gone": len(rows) - len(listed),
        "gone_from_some": sum(row["gone_from"] != "[]" for row in listed),
    }


def render_tables(rows: Iterable[JsonObject]) -> dict[str, Markdown]:
    """Markdown tables by what they show."""
    rows = list(rows)
    listed = [row for row in rows if row["gone"] is None]
    kinds = Counter(kind for row in listed for kind in json.loads(row["disagreements"]))
    joins = Counter(row["joined_by"] for row in listed if row["joined_by"])
    pairs = Counter(" + ".join(row["marketplaces"]) for row in listed if row["marketplaces"])
    return {
        "joined": _render_counts("joined by", [(level, joins[level]) for level in LEVELS]),
        "marketplaces": _render_counts("marketplaces", pairs.most_common(_SHOWN)),
        "disagreements": _render_counts("differ in", sorted(kinds.items())),
        "most_listed": _render_most_listed(listed),
        "likely_same": _render_likely_same(listed),
        "gone": _render_gone([row for row in rows if row["gone"] is not None]),
    }


def _render_counts(what: str, counts: Sequence[tuple[str, int]]) -> Markdown:
    # Counts first: the UI cuts a wide cell at its right.
    return make_markdown_table(
        ["servers", what], [[f"{count:,}", name] for name, count in counts if count]
    )


def _render_most_listed(listed: list[JsonObject]) -> Markdown:
    several = [row for row in listed if len(row["marketplaces"]) > 1]
    several.sort(key=lambda row: (-len(row["marketplaces"]), row["catalogue_id"]))
    results = {True: "equal contracts", False: "contracts differ", None: "not run twice"}
    lines = [
        [
            row["name"],
            row["joined_by"] or "",
            results[row["confirmed"]],
            ", ".join(json.loads(row["disagreements"])),
            ", ".join(row["marketplaces"]),
        ]
        for row in several[:_SHOWN]
    ]
    return make_markdown_table(
        ["server", "joined by", "live run", "differ in", "marketplaces"], lines
    )


def _render_likely_same(listed: list[JsonObject]) -> Markdown:
    names = {row["catalogue_id"]: row["name"] for row in listed}
    groups = {
        tuple(sorted((row["catalogue_id"], *row["likely_same"])))
        for row in listed
        if row["likely_same"]
    }
    lines = [[", ".join(names.get(item, item) for item in group)] for group in sorted(groups)]
    return make_markdown_table(["servers with equal contracts"], lines[:_SHOWN])


def _render_gone(gone: list[JsonObject]) -> Markdown:
    latest = sorted(gone, key=lambda row: (row["gone"], row["catalogue_id"]), reverse=True)
    lines = [
        [row["name"], row["gone"], ", ".join(o["listing_id"] for o in json.loads(row["gone_from"]))]
        for row in latest[:_SHOWN]
    ]
    return make_markdown_table(["server", "gone since", "was listed as"], lines)


_INK, _QUIET, _UNDER, _OVER, _EVEN = "#1f2937", "#9ca3af", "#dc2626", "#2563eb", "#4b5563"
_COLOURS = {"under": _UNDER, "over": _OVER}
_TITLES = {
    "category": "what it is about",
    "ecosystem": "how it is installed",
    "transport": "how it is spoken to",
    "credentials": "what it asks of its user",
    "size": "how many tools it has",
}

_COUNTED = ("listed", "launched")
Rows = Sequence[JsonObject]


def compute_coverage_figures(rows: Rows) -> dict[str, float]:
    """Counts, and the distance of each dimension where it is known."""
    any_row = next((row for row in rows if row["of_listed"]), None)
    figures: dict[str, float] = {
        "servers_listed": any_row["of_listed"] if any_row else 0,
        "servers_launched": any_row["of_launched"] if any_row else 0,
        "under_represented": sum(row["standing"] == "under" for row in rows),
    }
    for row in rows:
        if row["distance"] is not None:
            figures[f"distance_{row['dimension']}"] = row["distance"]
    return figures


def render_table(rows: Rows) -> Markdown:
    """Markdown, the widest gaps of each dimension first; empty values are left out."""
    lines: list[list[object]] = []
    for dimension in DIMENSIONS:
        mine = [r for r in rows if r["dimension"] == dimension and (r["listed"] or r["launched"])]
        if not mine:
            continue
        title = fill_markdown("**{}** {}", dimension, _format_distance(mine[0]))
        lines.append([title, *[""] * 5])
        lines += [_format_line(row) for row in sorted(mine, key=lambda row: row["gap"] or 0.0)]
    notes = Markdown(
        "Shares of all servers of the catalogue against those that listed their tools."
        " Gap: launched minus listed share, 95% bootstrap interval over servers; launch rate:"
        " Wilson. Distance: total variation, with a permutation p-value."
    )
    header = ["", "listed", "launched", "launch rate", "gap in points", ""]
    return join_markdown("\n\n", [make_markdown_table(header, lines), notes])


def _format_distance(row: Row) -> str:
    if row["distance"] is None:
        return "(listings do not state it)" if row["dimension"] == "size" else ""
    return f"distance {row['distance']:.2f}, p = {row['distance_p']:.3f}"


def _format_line(row: Row) -> list[object]:
    mark = {"under": "▼ under", "over": "▲ over"}.get(row["standing"], "")
    listed, launched = (_format_share(row[name], row[f"{name}_share"]) for name in _COUNTED)
    rate = gap = Markdown("")
    if row["rate"] is not None:
        ends = (row[name] for name in ("rate", "rate_low", "rate_high"))
        rate = fill_markdown("{:.0%} [{:.0%}, {:.0%}]", *ends)
    if row["gap_low"] is not None:
        ends = (100 * row[name] for name in ("gap", "gap_low", "gap_high"))
        gap = fill_markdown("{:+.1f} [{:+.1f}, {:+.1f}]", *ends)
    return [row["value"], listed, launched, rate, gap, mark]


def _format_share(count: int | None, share: float | None) -> Markdown:
    if count is None:
        return Markdown("")
    if share is None:
        return fill_markdown("{:,}", count)
    return fill_markdown("{:,} ({:.0%})", count, share)


def draw_plot(rows: Rows) -> bytes:
    """A PNG: per dimension, the listed share of each value as a ring, the launched one as a dot,
    and the gap's interval around it."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    shown = {
        name: [r for r in rows if r["dimension"] == name and (r["listed"] or r["launched"])]
        for name in DIMENSIONS
    }
    shown = {name: found for name, found in shown.items() if found}
    heights = [len(item) + 1.4 for item in shown.values()] or [1.0]
    figure = Figure(figsize=(8.4, 0.9 + 0.29 * sum(heights)), layout="constrained", dpi=110)
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(heights), 1, height_ratios=heights, squeeze=False)[:, 0]
    for axis, (name, found) in zip(axes, shown.items(), strict=False):
        if name == "size":
            _draw_panel(axis, name, found[::-1])
        else:
            _draw_panel(axis, name, sorted(found, key=lambda r: r["listed_share"]))
    figures = compute_coverage_figures(rows)
    figure.suptitle(
        f"Launched servers against all listed: {figures['servers_launched']:,} of"
        f" {figures['servers_listed']:,}",
        x=0.01, ha="left", fontsize=12, color=_INK, fontweight="bold",
    )  # fmt: skip
    data = io.BytesIO()
    figure.savefig(data, format="png")
    return data.getvalue()


def _draw_panel(axis: Any, name: str, rows: Rows) -> None:
    for place, row in enumerate(rows):
        listed, launched = row["listed_share"], row["launched_share"]
        colour = _COLOURS.get(row["standing"], _EVEN)
        if row["gap_low"] is not None:
            span = [max(0.0, listed + row["gap_low"]), min(1.0, listed + row["gap_high"])]
            axis.plot(span, [place, place], color=colour, alpha=0.35, linewidth=5, zorder=1)
        if listed is not None:
            ring = {"facecolors": "white", "edgecolors": _QUIET, "linewidths": 1.6, "s": 46}
            axis.scatter([listed], [place], zorder=2, clip_on=False, **ring)
        if launched is not None:
            axis.scatter([launched], [place], color=colour, s=34, zorder=3, clip_on=False)
    axis.set_yticks(range(len(rows)), [row["value"] for row in rows], fontsize=8.5, color=_INK)
    axis.set_ylim(-0.6, len(rows) - 0.4)
    axis.set_xlim(left=0)
    axis.xaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
    axis.tick_params(axis="x", labelsize=8, colors=_EVEN, length=0)
    axis.tick_params(axis="y", length=0)
    axis.grid(axis="x", color="#e5e7eb", linewidth=0.8)
    axis.set_axisbelow(True)
    axis.spines[["top", "right", "left", "bottom"]].set_visible(False)
    title = f"{_TITLES[name]}   {_format_distance(rows[0])}"
    axis.set_title(title, loc="left", fontsize=9.5, color=_INK)
    if name == next(iter(DIMENSIONS)):
        _draw_legend(axis)


def _draw_legend(axis: Any) -> None:
    ring = axis.scatter([], [], facecolors="white", edgecolors=_QUIET, linewidths=1.6, s=46)
    dots = [axis.scatter([], [], color=colour, s=34) for colour in (_UNDER, _EVEN, _OVER)]
    labels = ["share of all listed", "of launched: too few", "as listed", "more than listed"]
    axis.legend([ring, *dots], labels, frameon=False, fontsize=8, loc="lower right")


def embed_plot(rows: Rows, home: Path) -> Markdown:
    """The plot as Markdown that holds it."""
    pictures = PictureStore(home, "assets/catalogue")
    png = pictures.draw("coverage", rows, lambda: draw_plot(rows))
    return embed_image("launched against listed servers", png)
