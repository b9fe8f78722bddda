"""Report: what a run's findings and changes come to, for the asset's page."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from assets.contracts.scan.rule_table import HIGH
from warehouse.json_types import Row
from warehouse.sanitize.markdown import Markdown, make_markdown_table
from warehouse.statistics import wilson_interval

SHOWN = 50  # rows of a table in the UI


def report_findings(rows: Sequence[Row], tools: int, read: int) -> dict[str, Any]:
    """Figures and tables of FINDINGS. tools: how many there are; read: scanned in this run."""
    high = [row for row in rows if row["severity"] == HIGH]
    flagged = len({(row["server_id"], row["tool"]) for row in high})
    low_end, high_end = wilson_interval(flagged, tools)
    counts = Counter((row["severity"], row["rule"]) for row in rows)
    lines = [[str(count), severity, rule] for (severity, rule), count in counts.most_common()]
    return {
        "tools": tools,
        "scanned": read,
        "high_tools": flagged,
        "high_rate": flagged / tools if tools else 0.0,
        "high_rate_interval": f"{low_end:.4f} to {high_end:.4f}",
        "by_rule": make_markdown_table(["findings", "severity", "rule"], lines),
        "high": _tabulate_rows(("tool", "rule", "excerpt", "server_id"), high),
    }


def report_changes(rows: Sequence[Row], new: int) -> dict[str, Any]:
    """Figures of CHANGES, and a table with the latest first."""
    latest = sorted(rows, key=lambda row: row["run_date"], reverse=True)
    columns = ("run_date", "cls", "tool", "why", "renamed_from", "server_id")
    counts = Counter(str(row["cls"]) for row in rows)
    return {"new": new, **counts, "latest": _tabulate_rows(columns, latest)}


def _tabulate_rows(columns: Sequence[str], rows: Sequence[Row]) -> Markdown:
    return make_markdown_table(
        columns, [[row[name] or "" for name in columns] for row in rows[:SHOWN]]
    )
