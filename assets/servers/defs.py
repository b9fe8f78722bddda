"""Asset definition of `deployments`."""

import time
from collections.abc import Set
from typing import Any

import dagster as dg

from assets.marketplaces.listing import read_rows
from assets.marketplaces.listing_table import LISTINGS
from assets.partitions import close_run_after, marketplaces, read_one_server, read_run_scope
from assets.servers.deploy.deployment_table import DEPLOYMENTS, deploy_listings, summarise_rows
from assets.servers.deploy.policy import MarketplaceLauncher
from assets.servers.probe.failure_kinds import KINDS
from warehouse.audit import AuditVerdict, check_fall
from warehouse.progress import ProgressLines
from warehouse.publish import Published, audit_table, describe_asset, publish
from warehouse.sanitize.markdown import make_markdown_table
from warehouse.storage.tables import RowPlan
from warehouse.store import Warehouse

Row = dict[str, Any]

DEPLOYMENTS_AUDIT = audit_table(DEPLOYMENTS, {"error_kind?": KINDS})
# Of those that could be launched: fewer warn, or refuse the table where they launched before. 38.9%
# of 922 npm servers list their tools unattended (a public test, FACTS of the field); far below, the
# sandbox or the network is broken, not the servers.
LAUNCH_FLOOR = 0.2
_NOT_TRIED = ("policy_denied", "needs_confirmation")
_FEW = 4  # so many launches say nothing about a rate


@dg.asset(
    **describe_asset(DEPLOYMENTS_AUDIT, "assets/servers", partitions=marketplaces),
    deps=["listings"],
    group_name="servers",
    pool="sandbox",
    description="One sandboxed launch of each server by its pinned recipe, or why there is none.",
)
def deployments(
    context: dg.AssetExecutionContext,
    warehouse: dg.ResourceParam[Warehouse],
    launcher: dg.ResourceParam[MarketplaceLauncher],
) -> Published:
    name, ledger = context.partition_key, warehouse.ledger
    previous = warehouse.tables.read(DEPLOYMENTS, name)
    run = deploy_listings(
        read_rows(warehouse.tables.read(LISTINGS, name).to_dicts()),
        previous.to_dicts(),
        launcher.policy,
        ledger=ledger,
        blobs=warehouse.blobs,
        run_date=ledger.open_run(read_run_scope(context)),
        now=time.time(),
        concurrency=launcher.concurrency,
        fleet=launcher.fleet,
        progress=ProgressLines(context.log.info),
        only=read_one_server(context),
    )
    before = set(previous["server_id"])
    frame = DEPLOYMENTS.frame(run.rows)
    rows = frame.to_dicts()
    yield from publish(
        context,
        warehouse,
        DEPLOYMENTS_AUDIT,
        frame,
        rules=[_check_pinned(rows), check_launch_rate(rows, previous.to_dicts(), set(run.done))],
        plan=RowPlan(
            new=[key for key in run.done if key not in before],
            stale=[key for key in run.done if key in before],
            gone=run.gone,
            unchanged=run.kept,
        ),
        metadata={**summarise_rows(rows), **_count_findings(rows)},
    )
    close_run_after(context, ledger, "deployments")


def _check_pinned(rows: list[Row]) -> AuditVerdict:
    loose = [r["server_id"] for r in rows if r["status"] == "ok" and not r["recipe_digest"]]
    return AuditVerdict(
        "recipe_pinned", not loose, f"{len(loose)} launched without a pinned recipe"
    )


def check_launch_rate(rows: list[Row], previous: list[Row], done: Set[str]) -> AuditVerdict:
    """Whether the servers that launched before still do; what the settings forbid (remote servers,
    images) or their user has not confirmed was not tried, nor are two launches compared between
    which the settings changed. done: the servers that were launched in this run."""
    launches = {
        row["server_id"]: row
        for row in rows
        if row["recipe_digest"] and row["error_kind"] not in _NOT_TRIED
    }
    worked = {
        row["server_id"]
        for row in previous
        if row["status"] == "ok" and row["server_id"] in launches
        if row["conditions"] == launches[row["server_id"]]["conditions"]
    }
    works = {key: row["status"] == "ok" for key, row in launches.items()}
    proven = any(works.get(key) for key in done)
    return check_fall(
        "launch_rate_floor", worked, works, proven=proven, floor=LAUNCH_FLOOR, few=_FEW
    )


def _count_findings(rows: list[Row]) -> Row:
    """What is worth a look beside the counts. A server's own words are shown as text alone."""
    failed = [row for row in rows if row["status"] != "ok"]
    lines = [[row["server_id"], row["error_kind"], str(row["hint"])] for row in failed]
    ran = [row for row in rows if row["status"] == "ok"]
    return {
        "with_placeholders": sum(row["placeholders"] not in (None, "[]") for row in ran),
        "uncertified": sum(row["certified"] is False for row in rows),
        "differs_by_asker": sum(row["behaviour"] not in (None, "[]") for row in ran),
        "failures": make_markdown_table(["server", "kind", "hint"], lines),
    }
