"""Asset definition of `trajectories`: in no job, started by a person."""

import asyncio
import json
from collections.abc import Sequence

import dagster as dg

from assets.outcomes.plan import Executor
from assets.outcomes.trajectories.collect import (
    Collected,
    collect_trajectories,
    merge_trajectories,
)
from assets.outcomes.trajectories.trajectory import DROPPED, KEPT, TRAJECTORIES
from warehouse.audit import Verdict, expect_match, expect_one_of, expect_unique
from warehouse.json_types import Record
from warehouse.progress import Lines
from warehouse.publish import Published, audit_table, describe_asset, publish
from warehouse.sanitize.markdown import make_markdown_table
from warehouse.sanitize.redact import redact
from warehouse.store import Warehouse

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


@dg.asset(
    **describe_asset(TRAJECTORIES_AUDIT, "assets/outcomes/trajectories"),
    group_name="outcomes",
    pool="sandbox",
    description="Tasks of worlds carried out by the real servers that suit them, with their real"
    " answers. In no job: it fetches and starts every such server, whatever is listed.",
)
def trajectories(
    context: dg.AssetExecutionContext,
    warehouse: dg.ResourceParam[Warehouse],
    executor: dg.ResourceParam[Executor],
) -> Published:
    found, ledger = Collected(), warehouse.ledger
    run_date = ledger.open_run(TRAJECTORIES.name)
    try:
        play = collect_trajectories(
            found, executor.worlds, executor.policy, ledger, run_date, Lines(context.log.info)
        )
        asyncio.run(play)
    finally:
        ledger.close_run(TRAJECTORIES.name)
    frame = TRAJECTORIES.frame(merge_trajectories(warehouse.tables, found.made))
    rows = frame.to_dicts()
    figures = found.get_figures()
    dropped = figures.pop("dropped")
    yield from publish(
        context,
        warehouse,
        TRAJECTORIES_AUDIT,
        frame,
        rules=[check_kept_share(found), check_secrets(rows)],
        metadata={
            **figures,
            "kept_in_all": sum(row["status"] == KEPT for row in rows),
            "problems": make_markdown_table(["problem"], [[problem] for problem in found.problems]),
            "dropped": make_markdown_table(
                ["why", "trajectories"], [[str(why), str(n)] for why, n in dropped.items()]
            ),
        },
    )


def check_kept_share(found: Collected) -> Verdict:
    """Whether anything was played, and enough of it ended right."""
    played, kept = len(found.made), sum(one.why is None for one in found.made)
    observed = f"{kept} of {played}" + (f"; {found.problems[0]}" if found.problems else "")
    enough = played > 0 and kept >= KEPT_FLOOR * played
    return Verdict("kept_share", enough, observed, f"at least {KEPT_FLOOR:.0%} end right")


def check_secrets(rows: Sequence[Record]) -> Verdict:
    """Whether what a server answered still holds what reads like a secret."""
    leaked = [
        row["trajectory_id"]
        for row in rows
        if any(one["answer"] != redact(one["answer"]) for one in json.loads(row["steps"]))
    ]
    observed = f"{len(leaked)} rows hold a secret" + (f", e.g. {leaked[0]}" if leaked else "")
    return Verdict("no_secret", not leaked, observed)
