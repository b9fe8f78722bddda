"""Asset definitions of `executions` and `trajectories`."""

import asyncio
import json
from collections import defaultdict
from collections.abc import Iterable, Sequence

import dagster as dg

from assets.outcomes.outcome import OUTCOMES, USEFUL
from assets.outcomes.plan import ExecutionSetup, execute_pairs
from assets.outcomes.report import compare_verdicts, render_verdicts, report_executions
from assets.outcomes.table import EXECUTIONS, PROOFS, has_run
from assets.outcomes.trajectory import DROPPED, KEPT, TRAJECTORIES
from assets.outcomes.trajectory_play import (
    TrajectoryCollection,
    collect_trajectories,
    merge_trajectories,
)
from assets.partitions import close_run_after, marketplaces, read_one_server, read_run_scope
from assets.servers.probe.failure_kinds import BLAMES
from assets.synthesis.tables import JUDGEMENTS, PAIRS
from warehouse.audit import AuditVerdict, expect_match, expect_one_of, expect_unique
from warehouse.json_types import Record
from warehouse.progress import ProgressLines
from warehouse.publish import Published, audit_table, describe_asset, publish
from warehouse.sanitize.markdown import make_markdown_table
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
TRAJECTORIES_AUDIT = audit_table(
    TRAJECTORIES,
    [
        expect_unique("trajectory_id"),
        expect_match("contract_digest", "^c1:[0-9a-f]{64}$"),
        expect_one_of("status", [KEPT, DROPPED]),
    ],
    rules=["kept_share", "no_secret"],
)
# Tasks come with calls that carry them out: where half of them do not, servers or sandbox are
# broken.
KEPT_FLOOR = 0.5
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
    pairs, judged = (warehouse.tables.read(item, name).to_dicts() for item in (PAIRS, JUDGEMENTS))
    yield from publish(
        context,
        warehouse,
        EXECUTIONS_AUDIT,
        frame,
        rules=[check_launches(rows), check_useful_share(rows), check_secrets(rows)],
        plan=result.due,
        metadata={
            **report_executions(rows),
            "verdicts": render_verdicts(compare_verdicts(pairs, judged, rows)),
            "left_for_the_next_run": result.left,
        },
    )
    close_run_after(context, warehouse.ledger, "executions")


@dg.asset(
    **describe_asset(
        TRAJECTORIES_AUDIT, "assets/outcomes/trajectory.py", "assets/outcomes/trajectory_play.py"
    ),
    group_name="outcomes",
    pool="sandbox",
    description="Tasks of worlds carried out by the real servers that suit them, with their real"
    " answers. In no job: it fetches and starts every such server, whatever is listed.",
)
def trajectories(
    context: dg.AssetExecutionContext,
    warehouse: dg.ResourceParam[Warehouse],
    executor: dg.ResourceParam[ExecutionSetup],
) -> Published:
    collection, ledger = TrajectoryCollection(), warehouse.ledger
    run_date = ledger.open_run(TRAJECTORIES.name)
    try:
        play = collect_trajectories(
            collection,
            executor.worlds,
            executor.policy,
            ledger,
            run_date,
            ProgressLines(context.log.info),
        )
        asyncio.run(play)
    finally:
        ledger.close_run(TRAJECTORIES.name)
    frame = TRAJECTORIES.frame(merge_trajectories(warehouse.tables, collection.made))
    rows = frame.to_dicts()
    figures = collection.get_figures()
    dropped = figures.pop("dropped")
    yield from publish(
        context,
        warehouse,
        TRAJECTORIES_AUDIT,
        frame,
        rules=[check_kept_share(collection), check_answers(rows)],
        metadata={
            **figures,
            "kept_in_all": sum(row["status"] == KEPT for row in rows),
            "problems": make_markdown_table(
                ["problem"], [[problem] for problem in collection.problems]
            ),
            "dropped": make_markdown_table(
                ["why", "trajectories"], [[str(why), str(n)] for why, n in dropped.items()]
            ),
        },
    )


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
    return _find_secret((row["execution_id"], row[name]) for row in rows for name in columns)


def check_kept_share(collection: TrajectoryCollection) -> AuditVerdict:
    """Whether anything was played, and enough of it ended right."""
    played, right = len(collection.made), sum(item.why is None for item in collection.made)
    observed = f"{right} of {played}" + (
        f"; {collection.problems[0]}" if collection.problems else ""
    )
    enough = played > 0 and right >= KEPT_FLOOR * played
    return AuditVerdict("kept_share", enough, observed, f"at least {KEPT_FLOOR:.0%} end right")


def check_answers(rows: Sequence[Record]) -> AuditVerdict:
    """Whether a recorded answer of a server still holds what reads like a secret."""
    return _find_secret(
        (row["trajectory_id"], step["answer"]) for row in rows for step in json.loads(row["steps"])
    )


def _find_secret(texts: Iterable[tuple[str, str | None]]) -> AuditVerdict:
    """texts: (id of the row, text of a server)."""
    leaked = {name: None for name, text in texts if text and text != redact(text)}
    example = f", e.g. {next(iter(leaked))}" if leaked else ""
    return AuditVerdict("no_secret", not leaked, f"{len(leaked)} rows hold a secret{example}")
