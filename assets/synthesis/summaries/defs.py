"""Asset definition of `server_summaries`."""

from typing import Any

import dagster as dg

from assets.catalogue.catalogue import CATALOGUE, PRIVATE, map_descriptions
from assets.contracts.quarantine.clear import read_clear
from assets.marketplaces.adapters.private import NotApproved
from assets.synthesis.summaries.summaries import SUMMARIES, find_summary_flaws, make_summaries
from assets.synthesis.writing.endpoints import Writer
from warehouse.audit import Verdict, expect_one_of, expect_unique
from warehouse.llm.client import LLM
from warehouse.progress import Lines
from warehouse.publish import Published, audit_table, describe_asset, publish
from warehouse.store import Warehouse

SUMMARIES_AUDIT = audit_table(
    SUMMARIES,
    [expect_unique("server_id"), expect_one_of("status", ["ok", "failed", "pending"])],
    rules=["summaries"],
)


@dg.asset(
    **describe_asset(SUMMARIES_AUDIT, "assets/synthesis/summaries"),
    deps=["clear_contracts", "catalogue"],
    group_name="vectors",
    pool="llm",
    description="What kinds of things each server's tools do, in a few sentences; made once.",
)
def server_summaries(
    context: dg.AssetExecutionContext,
    warehouse: dg.ResourceParam[Warehouse],
    writer: dg.ResourceParam[Writer],
) -> Published:
    clear = read_clear(warehouse)
    previous = warehouse.tables.read(SUMMARIES).to_dicts()
    about = map_descriptions(warehouse.tables.read(CATALOGUE).to_dicts())
    public = {row["server_id"] for row in clear if row["marketplace"] != PRIVATE}
    rows: list[dict[str, Any]] = []
    spent = 0.0
    for name, own in (("_", public), (PRIVATE, {row["server_id"] for row in clear} - public)):
        llm = _open_llm(writer, warehouse, name)
        made, _ = make_summaries(
            [row for row in clear if row["server_id"] in own],
            about,
            llm,
            [row for row in previous if row["server_id"] in own],
            progress=Lines(context.log.info),
        )
        rows += made
        spent += llm.usd if llm else 0.0
    flaws = find_summary_flaws(rows)
    yield from publish(
        context,
        warehouse,
        SUMMARIES_AUDIT,
        SUMMARIES.frame(rows),
        rules=[Verdict("summaries", not flaws, "; ".join(flaws[:3]) or f"{len(rows)} servers")],
        metadata={
            "failed": sum(row["status"] != "ok" for row in rows),
            "providers": ", ".join(sorted({row["provider"] for row in rows})),
            "usd_this_run": spent,
        },
    )


def _open_llm(writer: Writer, warehouse: Warehouse, partition: str) -> LLM | None:
    """The client; None where private tools may not leave for it: they are summed up offline."""
    try:
        return writer.make_llm(warehouse, partition, batches=True)
    except NotApproved:
        return None
