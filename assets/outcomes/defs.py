"""Asset definitions of `explorations` and `executions`, and what their pages show."""

import json
from collections import Counter, defaultdict
from collections.abc import Sequence, Set
from typing import Any

import dagster as dg

from assets.contracts.tool_id import ToolId
from assets.marketplaces.adapters.private import NotApproved
from assets.outcomes.call_proposer import CallProposer
from assets.outcomes.exploration import INVENTED, count_edges
from assets.outcomes.exploration_run import explore_servers
from assets.outcomes.outcome import OUTCOMES, USEFUL
from assets.outcomes.plan import ExecutionSetup, execute_pairs
from assets.outcomes.table import EXECUTIONS, PROOFS, has_run
from assets.partitions import close_run_after, marketplaces, read_one_server, read_run_scope
from assets.servers.probe.failure_kinds import BLAMES
from assets.synthesis.tables import EXPLORATIONS
from assets.synthesis.writing.writer import PairWriter
from warehouse.audit import AuditVerdict, check_fall
from warehouse.json_types import Record, Row
from warehouse.llm.roles import OFFLINE
from warehouse.progress import ProgressLines
from warehouse.publish import Published, audit_table, describe_asset, publish
from warehouse.sanitize.markdown import Markdown, make_markdown_table
from warehouse.sanitize.redact import redact
from warehouse.statistics import wilson_interval
from warehouse.store import Warehouse

_SHOWN = 24


def report_executions(rows: Sequence[Row]) -> dict[str, Any]:
    """Figures and tables of rows of EXECUTIONS."""
    ran = [row for row in rows if has_run(row)]
    useful = [row for row in ran if row["outcome"] == USEFUL]
    low, high = wilson_interval(len(useful), len(ran))
    pairs = {pair for row in rows for pair in json.loads(row["pair_ids"])}
    return {
        "executed": len(ran),
        "servers": len({row["server_id"] for row in ran}),
        "pairs": len(pairs),
        "useful_of_executed": f"{len(useful)} of {len(ran)} [{low:.2f}, {high:.2f}]",
        "against_the_tool": sum(row["blame"] == "tool" for row in rows),
        "breaks_read_only_hint": sum(bool(row["breaks_hint"]) for row in rows),
        "differs_when_repeated": sum(bool(row["differs"]) for row in rows),
        **{item: sum(row["proof"] == item for row in rows) for item in PROOFS},
        "outcomes": tabulate_outcomes(rows),
        "shares": _tabulate_shares(ran),
        "not_useful": _tabulate_failures(rows),
    }


def tabulate_outcomes(rows: Sequence[Row]) -> Markdown:
    """Outcomes by whom they are laid to, as a table."""
    counts = Counter((row["outcome"] or "not made", row["blame"] or "") for row in rows)
    blames = [item for item in ("", *BLAMES) if any(blame == item for _, blame in counts)]
    lines = [
        [kind, *(str(counts[kind, blame] or "") for blame in blames)]
        for kind in (*OUTCOMES, "not made")
        if any(counts[kind, blame] for blame in blames)
    ]
    return make_markdown_table(["outcome", *(blame or "nobody" for blame in blames)], lines)


def _tabulate_shares(ran: Sequence[Row]) -> Markdown:
    """The useful share of each server's calls, or of each tool's of the only one, lowest first."""
    column = "server_id" if len({row["server_id"] for row in ran}) > 1 else "tool"
    calls = Counter(str(row[column]) for row in ran)
    useful = Counter(str(row[column]) for row in ran if row["outcome"] == USEFUL)
    lines = []
    for name, n in sorted(calls.items(), key=lambda item: (useful[item[0]] / item[1], item[0])):
        low, high = wilson_interval(useful[name], n)
        lines.append([name, str(n), f"{useful[name] / n:.2f} [{low:.2f}, {high:.2f}]"])
    return make_markdown_table(["server or tool", "calls", "useful [95%]"], lines[:_SHOWN])


def _tabulate_failures(rows: Sequence[Row]) -> Markdown:
    failed = [row for row in rows if row["outcome"] != USEFUL]
    lines = [
        [
            str(ToolId(row["server_id"], row["tool"])),
            str(row["outcome"]),
            str(row["blame"] or ""),
            str(row["evidence"] or row["hint"] or "")[:160],
        ]
        for row in failed[:_SHOWN]
    ]
    return make_markdown_table(["tool", "outcome", "blame", "evidence"], lines)


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
    writer: dg.ResourceParam[PairWriter],
) -> Published:
    proposer = None
    try:
        llm = writer.make_llm(warehouse, context.partition_key)
        if llm.role("generator").model != OFFLINE:
            proposer = CallProposer(llm, executor.settings.seed)
    except NotApproved as error:
        context.log.warning(f"explored by rules alone: {error}")
    result = explore_servers(
        warehouse,
        context.partition_key,
        executor,
        ProgressLines(context.log.info),
        only=read_one_server(context),
        proposer=proposer,
    )
    for server, reason in sorted(result.problems.items()):
        context.log.warning(f"{server} was not explored: {reason}")
    done = [row for row in result.rows if row["outcome"] == USEFUL]
    useful = [(row["tool"], json.loads(row["sources"])) for row in done]
    edges = count_edges(useful)
    yield from publish(
        context,
        warehouse,
        EXPLORATIONS_AUDIT,
        EXPLORATIONS.frame(result.rows),
        plan=result.due,
        metadata={
            "useful": len(useful),
            "useful_with_real_values": sum(INVENTED not in of.values() for _, of in useful),
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
