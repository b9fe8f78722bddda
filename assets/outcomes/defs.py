"""Asset definition of `executions`."""

from collections import defaultdict
from collections.abc import Sequence

import dagster as dg

from assets.outcomes.outcome import OUTCOMES, USEFUL
from assets.outcomes.plan import ExecutionSetup, execute_pairs
from assets.outcomes.report import report_executions
from assets.outcomes.table import EXECUTIONS, PROOFS, has_run
from assets.partitions import close_run_after, marketplaces, read_one_server, read_run_scope
from assets.servers.probe.failure_kinds import BLAMES
from warehouse.audit import AuditVerdict, expect_match, expect_one_of, expect_unique
from warehouse.json_types import Record
from warehouse.progress import ProgressLines
from warehouse.publish import Published, audit_table, describe_asset, publish
from warehouse.sanitize.redact import redact
from warehouse.store import Warehouse

EXECUTIONS_AUDIT = audit_table(
    EXECUTIONS,
    [
        expect_unique("execution_id"),
        expect_match("contract_digest", "^c1:[0-9a-f]{64}$"),
        expect_one_of("outcome", list(OUTCOMES), optional=True),
        expect_one_of("blame", list(BLAMES), optional=True),
        expect_one_of("proof", list(PROOFS), optional=True),
    ],
    rules=["launch_floor", "useful_share", "no_secret"],
)
# A server that listed its tools in this run starts for a call too; if most do not, the sandbox or
# the worlds are broken. Servers that want a real secret are not started, and do not count.
LAUNCH_FLOOR = 0.5
# Far below what any mix of tools gave: less, and what is executed says nothing about them.
USEFUL_FLOOR = 0.02
_FEW_SERVERS, _FEW_CALLS = 4, 40  # fewer say nothing about a rate
_OTHERS = ("credentials", "policy", "upstream", "us")
_STARTS = ("fetch_failed", "timeout_start", "timeout_list", "internal", "busy")


@dg.asset(
    **describe_asset(EXECUTIONS_AUDIT, "assets/outcomes"),
    partitions_def=marketplaces,
    deps=["judgements", "clear_contracts", "deployments"],
    group_name="outcomes",
    pool="sandbox",
    description="Accepted calls that really ran, each in a disposable world: what they did, and"
    " whose fault a failure is.",
)
def executions(
    context: dg.AssetExecutionContext,
    warehouse: dg.ResourceParam[Warehouse],
    executor: dg.ResourceParam[ExecutionSetup],
) -> Published:
    name = context.partition_key
    result = execute_pairs(
        warehouse,
        name,
        executor,
        ProgressLines(context.log.info),
        scope=read_run_scope(context),
        only=read_one_server(context),
    )
    frame = EXECUTIONS.frame(result.rows)
    rows = frame.to_dicts()
    yield from publish(
        context,
        warehouse,
        EXECUTIONS_AUDIT,
        frame,
        rules=[check_launches(rows), check_useful_share(rows), check_secrets(rows)],
        plan=result.due,
        metadata={
            **report_executions(rows),
            "left_for_the_next_run": result.left,
        },
    )
    close_run_after(context, warehouse.ledger, "executions")


def check_launches(rows: Sequence[Record]) -> AuditVerdict:
    """Whether enough servers that were to be called could be started."""
    kinds: dict[str, set[str | None]] = defaultdict(set)
    for row in rows:
        if row["blame"] not in ("credentials", "policy"):
            kinds[row["server_id"]].add(row["error_kind"])
    ok = sum(bool(item - set(_STARTS)) for item in kinds.values())
    enough = len(kinds) < _FEW_SERVERS or ok >= LAUNCH_FLOOR * len(kinds)
    expected = f"at least {LAUNCH_FLOOR:.0%} of the servers start"
    return AuditVerdict("launch_floor", enough, f"{ok} of {len(kinds)}", expected)


def check_useful_share(rows: Sequence[Record]) -> AuditVerdict:
    """Whether enough of the calls that ran were answered with something, those aside that lacked
    what the user did not grant, or a service."""
    ran = [row for row in rows if has_run(row) and row["blame"] not in _OTHERS]
    useful = sum(row["outcome"] == USEFUL for row in ran)
    enough = len(ran) < _FEW_CALLS or useful >= USEFUL_FLOOR * len(ran)
    expected = f"at least {USEFUL_FLOOR:.0%} of the calls are useful"
    return AuditVerdict("useful_share", enough, f"{useful} of {len(ran)}", expected)


def check_secrets(rows: Sequence[Record]) -> AuditVerdict:
    """Whether any text of a server still holds what reads like a secret."""
    columns = ("evidence", "hint", "proof_why", "changed")
    leaked = [
        row["execution_id"]
        for row in rows
        if any(row[name] and row[name] != redact(row[name]) for name in columns)
    ]
    example = f", e.g. {leaked[0]}" if leaked else ""
    return AuditVerdict("no_secret", not leaked, f"{len(leaked)} rows hold a secret{example}")
