"""Report: how reliable tools are, for the asset's page."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from assets.contracts.tool_id import ToolId
from assets.outcomes.reliability.measure import ReliabilityRefresh
from warehouse.json_types import Record
from warehouse.sanitize.markdown import Markdown, make_markdown_table
from warehouse.statistics import wilson_interval

_SHOWN = 20


def report_reliability(refresh: ReliabilityRefresh) -> dict[str, Any]:
    """Figures and tables of a refresh."""
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
    }


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
