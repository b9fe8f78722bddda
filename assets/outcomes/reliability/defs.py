"""Asset definition of `reliability`, and its tables for people."""

from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg

from assets.contracts.tool_id import ToolId
from assets.outcomes.policy import ReliabilityPolicy
from assets.outcomes.reliability.measure import ReliabilityRefresh, measure_home
from assets.outcomes.reliability.table import RELIABILITY, write_overlay
from warehouse.audit import AuditVerdict
from warehouse.json_types import Record
from warehouse.publish import Published, audit_table, describe_asset, publish
from warehouse.sanitize.markdown import Markdown, make_markdown_table
from warehouse.store import Warehouse

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
    }


def _tabulate_counts(name: str, counts: Mapping[str, int]) -> Markdown:
    lines = [[key, str(n)] for key, n in counts.items() if n]
    return make_markdown_table([name, "observations"], lines)


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


RELIABILITY_AUDIT = audit_table(RELIABILITY)


@dg.asset(
    **describe_asset(RELIABILITY_AUDIT, "assets/outcomes/reliability"),
    deps=["executions", "clear_contracts", "contract_changes", "catalogue"],
    group_name="outcomes",
    description="How often each version of a tool works, by the calls that really ran and what"
    " clients reported; the router tells it with every hit.",
)
def reliability(
    context: dg.AssetExecutionContext,
    warehouse: dg.ResourceParam[Warehouse],
    reliability_policy: dg.ResourceParam[ReliabilityPolicy],
) -> Published:
    refresh = measure_home(warehouse, reliability_policy)
    rows = refresh.measured.rows
    yield from publish(
        context,
        warehouse,
        RELIABILITY_AUDIT,
        RELIABILITY.frame(rows),
        rules=[check_intervals(rows), check_current(rows)],
        metadata=report_reliability(refresh),
    )
    write_overlay(warehouse.home, rows, refresh.measured.overall, refresh.at)


def check_intervals(rows: Sequence[Record]) -> AuditVerdict:
    """Whether every mean lies within its interval, and that within 0 and 1."""
    wrong = [row for row in rows if not 0 <= row["low"] <= row["mean"] <= row["high"] <= 1]
    example = f", e.g. {wrong[0]['server_id']} {wrong[0]['tool']}" if wrong else ""
    return AuditVerdict("mean_in_interval", not wrong, f"{len(wrong)} of {len(rows)} rows{example}")


def check_current(rows: Sequence[Record]) -> AuditVerdict:
    """Whether no tool has two current versions."""
    current = [(row["server_id"], row["tool"]) for row in rows if row["current"]]
    doubled = len(current) - len(set(current))
    return AuditVerdict("one_current_version", not doubled, f"{doubled} tools have several")
