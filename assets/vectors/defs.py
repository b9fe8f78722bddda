"""The door of the vectors: `contract_vectors`, by the base embedder."""

import dagster as dg
import polars as pl

from assets.contracts.aliases import read_aliases
from assets.contracts.clear import firewall
from assets.contracts.snapshot import SNAPSHOTS
from assets.partitions import close_night_after, marketplaces
from assets.vectors.embed import Embedder
from assets.vectors.index import (
    INSTRUCTIONS,
    TOOL,
    VECTORS,
    embed_contracts,
    unit_norm_flaws,
)
from warehouse.audit import Verdict, expect_match, expect_one_of, expect_unique
from warehouse.lance import LanceStore
from warehouse.progress import Lines
from warehouse.publish import Published, audited, publish
from warehouse.store import Warehouse
from warehouse.tables import plan

EXPECTATIONS = [
    expect_unique("marketplace", "server_id", "tool"),
    expect_match("text_digest", "^[0-9a-f]{64}$"),
    expect_one_of("kind", ["tool", "server"]),
]


@dg.asset(
    partitions_def=marketplaces,
    deps=["snapshots", "findings"],
    group_name="vectors",
    check_specs=audited("contract_vectors"),
    pool="lance",
    description="Which text stands for each tool and server, embedded once in LanceDB.",
)
def contract_vectors(
    context: dg.AssetExecutionContext,
    warehouse: dg.ResourceParam[Warehouse],
    embedder: dg.ResourceParam[Embedder],
) -> Published:
    name = context.partition_key
    store = LanceStore(warehouse.home / "lance")
    previous = warehouse.tables.read(VECTORS, name)
    clear, held = firewall(warehouse).part(warehouse.tables.read(SNAPSHOTS, name).to_dicts())
    aliases = read_aliases(warehouse.tables, name)
    bought = aliases.as_bought(clear, previous.filter(pl.col("kind") == TOOL).to_dicts())
    rows = embed_contracts(bought, embedder, store, Lines(context.log.info))
    store.refresh_indexes()
    store.compact(INSTRUCTIONS)
    flaws = unit_norm_flaws(rows, store)
    frame = VECTORS.frame(rows)
    yield from publish(
        context,
        warehouse,
        VECTORS,
        frame,
        expectations=EXPECTATIONS,
        rules=[
            Verdict(
                "unit_norm", not flaws, "; ".join(flaws[:3]) or f"{len(rows)} vectors of norm 1"
            )
        ],
        plan=plan(_digests(previous), _digests(frame)),
        metadata={"embedder": embedder.id, "held": len(held)},
    )
    close_night_after(context, warehouse.ledger, "contract_vectors")


def _digests(frame: pl.DataFrame) -> dict[str, str]:
    return {
        f"{server}::{tool}": text
        for server, tool, text in frame.select("server_id", "tool", "text_digest").iter_rows()
    }
