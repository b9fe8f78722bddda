"""Asset definition of `reliability`."""

from collections.abc import Sequence

import dagster as dg

from assets.outcomes.policy import ReliabilityPolicy
from assets.outcomes.reliability.measure import measure_home
from assets.outcomes.reliability.report import report_reliability
from assets.outcomes.reliability.table import RELIABILITY, write_overlay
from warehouse.audit import AuditVerdict
from warehouse.json_types import Record
from warehouse.publish import Published, audit_table, describe_asset, publish
from warehouse.store import Warehouse

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
