"""Asset definition of `clear_contracts`, which everything downstream reads."""

import dagster as dg

from assets.contracts.history.snapshot import SNAPSHOTS
from assets.contracts.quarantine.clear import CLEAR, HELD, find_unresolvable, select_columns
from assets.contracts.quarantine.firewall import open_firewall
from assets.partitions import close_run_after, marketplaces
from warehouse.audit import Verdict, expect_match, expect_unique
from warehouse.publish import Published, audit_table, describe_asset, publish
from warehouse.store import Warehouse

CLEAR_AUDIT = audit_table(
    CLEAR,
    [expect_unique("server_id", "tool"), expect_match("contract_digest", "^c1:[0-9a-f]{64}$")],
    rules=["resolvable", "none_held"],
)


@dg.asset(
    **describe_asset(CLEAR_AUDIT, "assets/contracts/quarantine"),
    partitions_def=marketplaces,
    deps=["snapshots", "findings"],
    group_name="contracts",
    description="The contracts that nothing holds: what all that follows is made of.",
)
def clear_contracts(
    context: dg.AssetExecutionContext, warehouse: dg.ResourceParam[Warehouse]
) -> Published:
    name, tables = context.partition_key, warehouse.tables
    clear, held = open_firewall(warehouse).split(tables.read(SNAPSHOTS, name).to_dicts())
    rows = select_columns(CLEAR, clear)
    slipped = [row["contract_digest"] for row in open_firewall(warehouse).split(rows)[1]]
    lost = find_unresolvable(rows)
    # What is held goes first: a run that dies in between holds more, never less.
    kept_out = tables.stage(HELD, HELD.frame(select_columns(HELD, held)), name)
    tables.promote(kept_out, context.run_id, [])
    yield from publish(
        context,
        warehouse,
        CLEAR_AUDIT,
        CLEAR.frame(rows),
        rules=[
            Verdict("resolvable", not lost, f"{len(lost)} digests of other contracts"),
            Verdict("none_held", not slipped, f"{len(slipped)} held contracts"),
        ],
        metadata={"held": len(held)},
    )
    if held:
        context.log.info(f"tools held: {len(held)} (toolmill quarantine list)")
    close_run_after(context, warehouse.ledger, "clear_contracts")
