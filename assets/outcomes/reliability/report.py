"""Report: how reliable tools are, for the asset's page."""

import io
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from assets.contracts.tool_id import ToolId
from assets.outcomes.reliability.measure import ReliabilityRefresh
from warehouse.json_types import Record
from warehouse.pictures import PictureStore
from warehouse.sanitize.markdown import Markdown, embed_image, make_markdown_table
from warehouse.sanitize.untrusted_text import escape_text
from warehouse.statistics import wilson_interval

_SHOWN = 20
_INK, _GRID, _DOT = "#1f2937", "#e5e7eb", "#2563eb"
_LABEL = 48  # characters


def report_reliability(refresh: ReliabilityRefresh, home: Path) -> dict[str, Any]:
    """Figures, tables and the plot of a refresh."""
    rows = [row for row in refresh.measured.rows if row["current"]]
    called = sorted((row for row in rows if row["calls"]), key=lambda row: (row["mean"], -row["n"]))
    return {
        "tools": len(rows),
        "called": len(called),
        "observations": sum(refresh.sources.values()),
        "overall": round(refresh.measured.overall, 4),
        "left_out": _tabulate_counts("why", refresh.left_out),
        "sources": _tabulate_counts("source", refresh.sources),
        "least_reliable": _tabulate_tools(called[:_SHOWN]),
        "new_contracts": _tabulate_tools([row for row in rows if row["changed"]][:_SHOWN]),
        "by_category": tabulate_categories(called),
        "plot": embed_plot(called[:_SHOWN], home),
    }


def embed_plot(called: Sequence[Record], home: Path) -> Markdown:
    """The plot of these tools as Markdown; says so where none was called."""
    if not called:
        return Markdown("no tool was called")
    pictures = PictureStore(home, "assets/outcomes/reliability")
    png = pictures.draw("reliability", called, lambda: draw_reliability(called))
    return embed_image("reliability of tools", png)


def draw_reliability(rows: Sequence[Record]) -> bytes:
    """A PNG: the expected share of calls that work of each tool, with its 95% interval."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.4, 1.2 + 0.27 * len(rows)), layout="constrained", dpi=110)
    FigureCanvasAgg(figure)
    axis = figure.subplots()
    for place, row in enumerate(reversed(rows)):
        axis.plot([row["low"], row["high"]], [place] * 2, color=_DOT, alpha=0.3, linewidth=5)
        axis.scatter([row["mean"]], [place], color=_DOT, s=30, zorder=3, clip_on=False)
    labels = [f"{shorten_tool(str(ToolId.of_row(row)))}   n {row['n']:g}" for row in reversed(rows)]
    # Names are third parties': a dollar sign in them is no formula.
    axis.set_yticks(range(len(rows)), labels, fontsize=8.5, color=_INK, parse_math=False)
    axis.set_xlim(0, 1)
    axis.xaxis.set_major_formatter(lambda share, _: f"{share:.0%}")
    axis.grid(axis="x", color=_GRID, linewidth=0.8)
    axis.spines[["top", "right", "left", "bottom"]].set_visible(False)
    title = "expected share of calls that work, 95% interval; the least reliable tools"
    axis.set_title(title, loc="left", fontsize=9.5, color=_INK)
    data = io.BytesIO()
    figure.savefig(data, format="png")
    return data.getvalue()


def shorten_tool(tool_id: str) -> str:
    """A tool's id as printable ASCII, which a plot's font has."""
    plain = escape_text(tool_id).encode("ascii", "replace").decode()
    return plain if len(plain) <= _LABEL else f"...{plain[3 - _LABEL :]}"


def _tabulate_counts(name: str, counts: Mapping[str, int]) -> Markdown:
    lines = [[key, str(n)] for key, n in counts.items() if n]
    return make_markdown_table([name, "observations"], lines)


def tabulate_categories(called: Sequence[Record]) -> Markdown:
    """Calls that worked by category of server, undecayed, with the 95% interval."""
    calls, failed, tools = Counter[str](), Counter[str](), Counter[str]()
    for row in called:
        calls[row["category"]] += row["calls"]
        failed[row["category"]] += row["failed"]
        tools[row["category"]] += 1
    lines = []
    for name, n in sorted(calls.items()):
        worked = n - failed[name]
        low, high = wilson_interval(worked, n)
        lines.append([name, str(tools[name]), str(n), f"{worked / n:.2f} [{low:.2f}, {high:.2f}]"])
    return make_markdown_table(["category", "tools", "calls", "worked [95%]"], lines)


def _tabulate_tools(rows: Sequence[Record]) -> Markdown:
    lines = [
        [
            str(ToolId.of_row(row)),
            f"{row['mean']:.2f} [{row['low']:.2f}, {row['high']:.2f}]",
            f"{row['n']:g}",
            f"{row['prior']:.2f}",
            row["changed"] or "",
            row["failures"],
            "" if row["p95_s"] is None else f"{row['p95_s']:.2f}",
        ]
        for row in rows
    ]
    names = ["tool", "works [95%]", "n", "prior", "changed", "failures", "p95 s"]
    return make_markdown_table(names, lines)
