"""Asset definitions of `contract_vectors`, by the base embedder, and `confusables`."""

import dagster as dg

from assets.catalogue.catalogue import CATALOGUE, map_descriptions
from assets.contracts.canonical import tool_text
from assets.contracts.quarantine.clear import read_clear, read_contracts
from assets.one_server import keep_other_servers
from assets.partitions import close_run_after, marketplaces, read_one_server
from assets.vectors.confusables import report
from assets.vectors.confusables.table import CONFUSABLES, find_confusables
from assets.vectors.embed import Embedder
from assets.vectors.index import (
    INSTRUCTIONS,
    VECTORS,
    embed_contracts,
    embed_texts,
    find_norm_flaws,
    read_contract,
)
from warehouse.audit import Verdict, expect_match, expect_one_of, expect_unique
from warehouse.progress import Lines
from warehouse.publish import (
    Published,
    audit_table,
    describe_asset,
    publish,
)
from warehouse.storage.lance import LanceStore
from warehouse.store import Warehouse

_PIECES = 8  # small files of a table that are read as fast as one
VECTORS_AUDIT = audit_table(
    VECTORS,
    [
        expect_unique("marketplace", "server_id", "tool"),
        expect_match("text_digest", "^[0-9a-f]{64}$"),
        expect_one_of("kind", ["tool", "server"]),
    ],
    rules=["unit_norm"],
)
CONFUSABLES_AUDIT = audit_table(
    CONFUSABLES,
    [
        expect_unique("server_id", "tool", "other_server_id", "other_tool"),
        expect_one_of("kind", ["twin", "confusable"]),
    ],
)


@dg.asset(
    **describe_asset(VECTORS_AUDIT, "assets/vectors", kinds={"polars", "lancedb", "onnx"}),
    partitions_def=marketplaces,
    deps=["clear_contracts"],
    group_name="vectors",
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
    clear, held = read_contracts(warehouse, name)
    if (server := read_one_server(context)) is not None:
        clear = [row for row in clear if row["server_id"] == server]
    rows = embed_contracts(clear, embedder, store, Lines(context.log.info))
    rows = keep_other_servers(warehouse.tables.read(VECTORS, name).to_dicts(), rows, server)
    if rows:  # a marketplace without one clear tool has no need of LanceDB
        store.compact(pieces=_PIECES)
        store.compact(INSTRUCTIONS, pieces=_PIECES)
    flaws = find_norm_flaws(rows, store)
    yield from publish(
        context,
        warehouse,
        VECTORS_AUDIT,
        VECTORS.frame(rows),
        rules=[
            Verdict(
                "unit_norm", not flaws, "; ".join(flaws[:3]) or f"{len(rows)} vectors of norm 1"
            )
        ],
        metadata={"embedder": embedder.id, "held": len(held)},
    )
    close_run_after(context, warehouse.ledger, "contract_vectors")


@dg.asset(
    **describe_asset(CONFUSABLES_AUDIT, "assets/vectors"),
    deps=["contract_vectors", "clear_contracts", "catalogue"],
    group_name="vectors",
    pool="lance",
    description="Tools of several servers that look alike, and what tells them apart.",
)
def confusables(
    context: dg.AssetExecutionContext,
    warehouse: dg.ResourceParam[Warehouse],
    embedder: dg.ResourceParam[Embedder],
) -> Published:
    tables = warehouse.tables
    tools = read_clear(warehouse)
    listed = list({(row["server_id"], row["tool"]): row for row in tools}.values())
    texts = [tool_text(read_contract(row)) for row in listed]
    matrix = embed_texts(texts, embedder, LanceStore(warehouse.home / "lance"))
    rows = find_confusables(listed, matrix, map_descriptions(tables.read(CATALOGUE).to_dicts()))
    yield from publish(
        context,
        warehouse,
        CONFUSABLES_AUDIT,
        CONFUSABLES.frame(rows),
        metadata={
            **report.compute_figures(rows, tools),
            "table": report.render_markdown(rows, tools),
        },
    )
