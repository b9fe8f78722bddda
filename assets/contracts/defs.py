"""The door of the contracts: `snapshots` and `contract_changes`."""

import time as clock
from collections.abc import Iterator

import dagster as dg

from assets.contracts.snapshot import CHANGES, SNAPSHOTS, changes, malformed, snapshot
from assets.partitions import close_night_after, marketplaces
from assets.servers.deploy import DEPLOYMENTS
from warehouse.audit import Verdict, expect_match, expect_one_of, expect_unique
from warehouse.publish import Published, audited, publish
from warehouse.store import Warehouse
from warehouse.tables import plan


@dg.asset(
    partitions_def=marketplaces,
    deps=["deployments"],
    group_name="contracts",
    check_specs=audited("snapshots"),
    description="Every tool contract in canonical form, with when it was first and last seen.",
)
def snapshots(
    context: dg.AssetExecutionContext, warehouse: dg.ResourceParam[Warehouse]
) -> Published:
    name = context.partition_key
    deployments = warehouse.tables.read(DEPLOYMENTS, name).to_dicts()
    previous = warehouse.tables.read(SNAPSHOTS, name)
    rows = snapshot(previous.to_dicts(), deployments, warehouse.blobs, clock.time())
    left_out = malformed(deployments, warehouse.blobs)
    launched = sum(row["status"] == "ok" for row in deployments)
    yield from publish(
        context,
        warehouse,
        SNAPSHOTS,
        SNAPSHOTS.frame(rows),
        expectations=[
            expect_unique("server_id", "tool"),
            expect_match("contract_digest", "^c1:[0-9a-f]{64}$"),
        ],
        rules=[
            Verdict(
                "tools_floor",
                bool(rows) or not launched,
                f"{len(rows)} tools of {launched} launched servers",
                "some tools when any server runs",
            )
        ],
        plan=plan(_contracts(previous.to_dicts()), _contracts(rows)),
        metadata={
            "servers": len({row["server_id"] for row in rows}),
            "malformed": dg.MetadataValue.json(left_out),
        },
    )
    close_night_after(context, warehouse.ledger, "snapshots")


@dg.asset(
    deps=["snapshots"],
    group_name="contracts",
    check_specs=audited("contract_changes"),
    description="What changed in each contract, night by night: breaking, compatible, wording.",
)
def contract_changes(
    context: dg.AssetExecutionContext, warehouse: dg.ResourceParam[Warehouse]
) -> Published:
    previous = warehouse.tables.read(CHANGES).to_dicts()
    rows = previous
    for old, new, at in _history(warehouse):
        rows = changes(rows, old, new, at)
    yield from publish(
        context,
        warehouse,
        CHANGES,
        CHANGES.frame(rows),
        expectations=[
            expect_unique(*CHANGES.key),
            expect_one_of("cls", ["breaking", "compatible", "wording", "suspicious"]),
        ],
        plan=plan(_changes(previous), _changes(rows)),
        metadata={"tonight": len(rows) - len(previous)},
    )


def _history(warehouse: Warehouse) -> Iterator[tuple[list[dict], list[dict], float]]:
    """Consecutive states of all snapshots since the last published changes, and their times.

    A fold over publications, so that a change is found whichever night looks for it.
    """
    tables = warehouse.tables
    head = tables.head(CHANGES.name)
    times = sorted(
        head.at
        for name in tables.partitions(SNAPSHOTS.name)
        for head in tables.history(SNAPSHOTS.name, name)
    )
    since = head.at if head else 0.0
    old = tables.read(SNAPSHOTS, as_of=since).to_dicts()
    for at in [time for time in times if time > since]:
        new = tables.read(SNAPSHOTS, as_of=at).to_dicts()
        yield old, new, at
        old = new


def _contracts(rows: list[dict]) -> dict[str, str]:
    return {f"{row['server_id']}::{row['tool']}": row["contract_digest"] for row in rows}


def _changes(rows: list[dict]) -> dict[str, str]:
    return {"|".join(str(row[name]) for name in CHANGES.key): row["cls"] for row in rows}
