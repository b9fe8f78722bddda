"""The catalogue and its coverage in figures and in Markdown, for a reader of the graph."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence

from assets.catalogue.coverage import DIMENSIONS
from assets.catalogue.identity import LEVELS
from warehouse.json_types import JsonObject, Row
from warehouse.sanitize.markdown import (
    Markdown,
    fill_markdown,
    join_markdown,
    make_markdown_table,
)

_SHOWN = 15  # rows of an example table
_RUN_RESULTS = {True: "equal contracts", False: "contracts differ", None: "not run twice"}
Rows = Sequence[JsonObject]


def compute_figures(rows: Rows) -> dict[str, int]:
    """Counts that say how far the marketplaces overlap and how much is confirmed."""
    current = [row for row in rows if row["gone"] is None]
    several = [row for row in current if len(row["marketplaces"]) > 1]
    return {
        "servers": len(current),
        "on_several_marketplaces": len(several),
        "confirmed": sum(row["confirmed"] is True for row in several),
        "contradicted": sum(row["confirmed"] is False for row in several),
        "not_run_twice": sum(row["confirmed"] is None for row in several),
        "with_disagreements": sum(row["disagreements"] != "{}" for row in current),
        "likely_same": sum(bool(row["likely_same"]) for row in current),
        "servers_gone": len(rows) - len(current),
        "gone_from_some": sum(row["gone_from"] != "[]" for row in current),
    }


def render_tables(rows: Rows) -> dict[str, Markdown]:
    """Markdown tables by what they show."""
    current = [row for row in rows if row["gone"] is None]
    kinds = Counter(kind for row in current for kind in json.loads(row["disagreements"]))
    joins = Counter(row["joined_by"] for row in current if row["joined_by"])
    sets = Counter(" + ".join(row["marketplaces"]) for row in current if row["marketplaces"])
    several = [row for row in current if len(row["marketplaces"]) > 1]
    several.sort(key=lambda row: (-len(row["marketplaces"]), row["catalogue_id"]))
    lines = [
        [
            row["name"],
            row["joined_by"] or "",
            _RUN_RESULTS[row["confirmed"]],
            ", ".join(json.loads(row["disagreements"])),
            ", ".join(row["marketplaces"]),
        ]
        for row in several[:_SHOWN]
    ]
    header = ["server", "joined by", "live run", "differ in", "marketplaces"]
    return {
        "joined": _render_counts("joined by", [(level, joins[level]) for level in LEVELS]),
        "marketplaces": _render_counts("marketplaces", sets.most_common(_SHOWN)),
        "disagreements": _render_counts("differ in", sorted(kinds.items())),
        "most_listed": make_markdown_table(header, lines),
    }


def _render_counts(what: str, counts: Iterable[tuple[str, int]]) -> Markdown:
    # Counts first: the UI cuts a wide cell at its right.
    lines = [[f"{count:,}", name] for name, count in counts if count]
    return make_markdown_table(["servers", what], lines)


def compute_coverage_figures(rows: Rows) -> dict[str, float]:
    """Counts, and the distance of each dimension where it is known."""
    any_row: Row = next((row for row in rows if row["of_listed"]), {})
    figures: dict[str, float] = {
        "servers_listed": any_row.get("of_listed", 0),
        "servers_launched": any_row.get("of_launched", 0),
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
        about = "(listings do not state it)" if dimension == "size" else ""
        if mine[0]["distance"] is not None:
            about = f"distance {mine[0]['distance']:.2f}, p = {mine[0]['distance_p']:.3f}"
        lines.append([fill_markdown("**{}** {}", dimension, about), *[""] * 5])
        lines += [_format_line(row) for row in sorted(mine, key=lambda row: row["gap"] or 0.0)]
    notes = Markdown(
        "Shares of all servers of the catalogue against those that listed their tools."
        " Gap: launched minus listed share, 95% bootstrap interval over servers; launch rate:"
        " Wilson. Distance: total variation, with a permutation p-value."
    )
    header = ["", "listed", "launched", "launch rate", "gap in points", ""]
    return join_markdown("\n\n", [make_markdown_table(header, lines), notes])


def _format_line(row: Row) -> list[object]:
    mark = {"under": "▼ under", "over": "▲ over"}.get(row["standing"], "")
    counts: list[object] = []
    for name in ("listed", "launched"):
        count, share = row[name], row[f"{name}_share"]
        if share is None:
            counts.append(Markdown("") if count is None else fill_markdown("{:,}", count))
        else:
            counts.append(fill_markdown("{:,} ({:.0%})", count, share))
    rate = gap = Markdown("")
    if row["rate"] is not None:
        ends = (row[name] for name in ("rate", "rate_low", "rate_high"))
        rate = fill_markdown("{:.0%} [{:.0%}, {:.0%}]", *ends)
    if row["gap_low"] is not None:
        ends = (100 * row[name] for name in ("gap", "gap_low", "gap_high"))
        gap = fill_markdown("{:+.1f} [{:+.1f}, {:+.1f}]", *ends)
    return [row["value"], *counts, rate, gap, mark]
