"""Asset definitions of `contract_vectors` (by the base embedder) and `confusables`."""

from collections.abc import Iterable, Sequence

import dagster as dg

from assets.contracts.canonical import tool_text
from assets.contracts.quarantined_tools import read_clear, read_contracts
from assets.one_server import keep_other_servers
from assets.partitions import close_run_after, marketplaces, read_one_server
from assets.vectors.confusable_table import CONFUSABLE, CONFUSABLES, TWINS, find_confusables
from assets.vectors.encoders.embedder import Embedder
from assets.vectors.index import (
    INSTRUCTIONS,
    VECTORS,
    embed_contracts,
    embed_texts,
    find_norm_flaws,
    read_contract,
)
from warehouse.audit import AuditVerdict
from warehouse.json_types import Row
from warehouse.progress import ProgressLines
from warehouse.publish import Published, audit_table, describe_asset, publish
from warehouse.storage.lance import LanceStore
from warehouse.store import Warehouse


def compute_figures(rows: Sequence[Row], tools: Iterable[Row]) -> dict[str, int]:
    """Counts over all marketplaces. `tools`: snapshot rows, all of them."""
    tool_keys = {(row["server_id"], row["tool"]) for row in tools}
    return {
        "tools": len(tool_keys),
        "clusters": len({row["cluster"] for row in rows}),
        "largest_cluster": max((row["cluster_tools"] for row in rows), default=0),
        "pairs": len(rows),
        "with_a_twin": len(_select_kind(rows, TWINS) & tool_keys),
        "with_a_confusable": len(_select_kind(rows, CONFUSABLE) & tool_keys),
    }


def _select_kind(rows: Sequence[Row], kind: str) -> set[tuple[str, str]]:
    """The tools of all pairs of one kind, (server_id, tool) each."""
    pairs = [row for row in rows if row["kind"] == kind]
    left = {(row["server_id"], row["tool"]) for row in pairs}
    return left | {(row["other_server_id"], row["other_tool"]) for row in pairs}


_PIECES = 8  # small files of a table that are read as fast as one
VECTORS_AUDIT = audit_table(VECTORS)
CONFUSABLES_AUDIT = audit_table(CONFUSABLES)


@dg.asset(
    **describe_asset(
        VECTORS_AUDIT,
        "assets/vectors",
        kinds={"polars", "lancedb", "onnx"},
        partitions=marketplaces,
    ),
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
    clear, quarantined = read_contracts(warehouse, name)
    if (server := read_one_server(context)) is not None:
        clear = [row for row in clear if row["server_id"] == server]
    rows = embed_contracts(clear, embedder, store, ProgressLines(context.log.info))
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
            AuditVerdict(
                "unit_norm", not flaws, "; ".join(flaws[:3]) or f"{len(rows)} vectors of norm 1"
            )
        ],
        metadata={"embedder": embedder.id, "held": len(quarantined)},
    )
    close_run_after(context, warehouse.ledger, "contract_vectors")


@dg.asset(
    **describe_asset(CONFUSABLES_AUDIT, "assets/vectors"),
    deps=["contract_vectors", "clear_contracts"],
    group_name="vectors",
    pool="lance",
    description="Tools of several servers that look alike.",
)
def confusables(
    context: dg.AssetExecutionContext,
    warehouse: dg.ResourceParam[Warehouse],
    embedder: dg.ResourceParam[Embedder],
) -> Published:
    tools = read_clear(warehouse)
    tools_once = list({(row["server_id"], row["tool"]): row for row in tools}.values())
    texts = [tool_text(read_contract(row)) for row in tools_once]
    matrix = embed_texts(texts, embedder, LanceStore(warehouse.home / "lance"))
    rows = find_confusables(tools_once, matrix)
    yield from publish(
        context,
        warehouse,
        CONFUSABLES_AUDIT,
        CONFUSABLES.frame(rows),
        metadata=compute_figures(rows, tools),
    )
