"""Asset definitions of `explorations` and `executions`."""

from collections import Counter, defaultdict
from collections.abc import Sequence, Set

import dagster as dg

from assets.outcomes.exploration import INVENTED, count_edges
from assets.outcomes.exploration_run import explore_servers, list_proposed
from assets.outcomes.outcome import OUTCOMES, USEFUL
from assets.outcomes.plan import ExecutionSetup, execute_pairs
from assets.outcomes.report import report_executions
from assets.outcomes.table import EXECUTIONS, PROOFS, has_run
from assets.partitions import close_run_after, marketplaces, read_one_server, read_run_scope
from assets.servers.probe.failure_kinds import BLAMES
from assets.synthesis.tables import EXPLORATIONS
from warehouse.audit import AuditVerdict, check_fall
from warehouse.json_types import Record
from warehouse.progress import ProgressLines
from warehouse.publish import Published, audit_table, describe_asset, publish
from warehouse.sanitize.redact import redact
from warehouse.store import Warehouse

# A server that listed its tools in this run starts for a call too; if most do not, the sandbox or
# the worlds are broken. Servers that want a real secret are not started, and do not count.
LAUNCH_FLOOR = 0.5
# Far below what any mix of servers gave: less, and what is executed says nothing about them.
USEFUL_FLOOR = 0.02
EXECUTIONS_AUDIT = audit_table(
    EXECUTIONS,
    {"outcome?": OUTCOMES, "blame?": BLAMES, "proof?": PROOFS},
    rules={
        "launch_floor": f"{LAUNCH_FLOOR:.0%} of the servers that listed their tools start again.",
        "useful_share": f"At least {USEFUL_FLOOR:.0%} of the calls answered usefully.",
    },
)
EXPLORATIONS_AUDIT = audit_table(EXPLORATIONS, {"outcome?": OUTCOMES, "blame?": BLAMES})
_FEW_SERVERS = 4  # so many say nothing about a rate
_OTHERS = ("credentials", "policy", "upstream", "us")
_STARTS = ("fetch_failed", "timeout_start", "timeout_list", "internal", "busy")


@dg.asset(
    **describe_asset(EXPLORATIONS_AUDIT, "assets/outcomes", partitions=marketplaces),
    deps=["clear_contracts", "deployments"],
    group_name="outcomes",
    pool="sandbox",
    description="Calls tried in a disposable world before anything is written: what listing and"
    " reading tools answered, and which of its values fill other tools' arguments.",
)
def explorations(
    context: dg.AssetExecutionContext,
    warehouse: dg.ResourceParam[Warehouse],
    executor: dg.ResourceParam[ExecutionSetup],
) -> Published:
    result = explore_servers(
        warehouse,
        context.partition_key,
        executor,
        ProgressLines(context.log.info),
        only=read_one_server(context),
    )
    for server, reason in sorted(result.problems.items()):
        context.log.warning(f"{server} was not explored: {reason}")
    rows = EXPLORATIONS.frame(result.rows)
    leaked = [
        row["exploration_id"]
        for row in rows.select("exploration_id", "arguments", "text").to_dicts()
        if any(row[name] and row[name] != redact(row[name]) for name in ("arguments", "text"))
    ]
    useful = list_proposed(result.rows)
    edges = count_edges(useful)
    yield from publish(
        context,
        warehouse,
        EXPLORATIONS_AUDIT,
        rows,
        rules=[AuditVerdict("no_secret_sent", not leaked, f"{len(leaked)} calls hold a secret")],
        plan=result.due,
        metadata={
            "useful": len(useful),
            "useful_with_real_values": sum(INVENTED not in c.sources.values() for c in useful),
            "not_explored": len(result.problems),
            "edges": len(edges),
            "commonest_edges": "; ".join(list(edges)[:5]) or "none",
            **Counter(f"outcome_{row['outcome']}" for row in result.rows),
        },
    )
    close_run_after(context, warehouse.ledger, "explorations")


@dg.asset(
    **describe_asset(EXECUTIONS_AUDIT, "assets/outcomes", partitions=marketplaces),
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
    previous = warehouse.tables.read(EXECUTIONS, name).to_dicts()
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
        rules=[
            *check_servers(rows, previous, {*result.due.new, *result.due.stale}),
            check_secrets(rows),
        ],
        plan=result.due,
        metadata={**report_executions(rows), "left_for_the_next_run": result.left},
    )
    close_run_after(context, warehouse.ledger, "executions")


def check_servers(
    rows: Sequence[Record], previous: Sequence[Record], fresh: Set[str]
) -> list[AuditVerdict]:
    """Whether servers still start and answer usefully. fresh: executions of this run."""
    verdicts = []
    for rule, find, floor in (
        ("launch_floor", _find_started, LAUNCH_FLOOR),
        ("useful_share", _find_useful, USEFUL_FLOOR),
    ):
        worked = {server for server, works in find(previous).items() if works}
        proven = any(find([row for row in rows if row["execution_id"] in fresh]).values())
        verdicts.append(
            check_fall(rule, worked, find(rows), proven=proven, floor=floor, few=_FEW_SERVERS)
        )
    return verdicts


def _find_started(rows: Sequence[Record]) -> dict[str, bool]:
    kinds: dict[str, set[str | None]] = defaultdict(set)
    for row in rows:
        if row["blame"] not in ("credentials", "policy"):
            kinds[row["server_id"]].add(row["error_kind"])
    return {server: bool(item - set(_STARTS)) for server, item in kinds.items()}


def _find_useful(rows: Sequence[Record]) -> dict[str, bool]:
    useful: dict[str, bool] = {}
    for row in rows:
        if has_run(row) and row["blame"] not in _OTHERS:
            server = row["server_id"]
            useful[server] = useful.get(server, False) or row["outcome"] == USEFUL
    return useful


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
