"""Asset definitions of `contract_vectors` (by the base embedder) and `confusables`."""

import json
from collections import Counter, defaultdict
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
from warehouse.sanitize.markdown import Markdown, fill_markdown, join_markdown, make_markdown_table
from warehouse.storage.lance import LanceStore
from warehouse.store import Warehouse

_WORST = 15
_SENTENCE = 420
_HEAD = (
    "names",
    "tools",
    "servers",
    "twin / confusable pairs",
    "what tells the nearest pair apart",
)
_LED = ("clusters", "with_a_twin", "tools", "with_a_confusable", "names_shared_across_servers")

Tool = tuple[str, str]


def compute_figures(rows: Sequence[Row], tools: Iterable[Row]) -> dict[str, float]:
    """Counts over all marketplaces. `tools`: snapshot rows, all of them."""
    tool_keys = {(row["server_id"], row["tool"]) for row in tools}
    twins, look = _select_kind(rows, TWINS), _select_kind(rows, CONFUSABLE)
    named_pairs = [row for row in rows if row["kind"] == CONFUSABLE]
    return {
        "tools": len(tool_keys),
        "clusters": len({row["cluster"] for row in rows}),
        "largest_cluster": max((row["cluster_tools"] for row in rows), default=0),
        "pairs": len(rows),
        "with_a_twin": len(twins & tool_keys),
        "with_a_confusable": len(look & tool_keys),
        "names_shared_across_servers": _count_sharing(tool_keys),
        "confusable_pairs_told_apart": sum(row["apart_by"] != "[]" for row in named_pairs),
        "confusable_pairs_not_told_apart": sum(row["apart_by"] == "[]" for row in named_pairs),
    }


def render_markdown(rows: Sequence[Row], tools: Sequence[Row]) -> Markdown:
    """The report: what was found, by which differences, and the worst clusters."""
    figures = compute_figures(rows, tools)
    total = figures["tools"] or 1
    lead = fill_markdown(
        "{clusters:,} clusters of look-alike tools across servers; {with_a_twin:,} of {tools:,}"
        " tools ({twin_share:.0%}) have a twin on another server, {with_a_confusable:,}"
        " ({confusable_share:.0%}) a tool that looks like them and is another,"
        " {names_shared_across_servers:,} ({name_share:.0%}) a name that another server uses too.",
        **{name: figures[name] for name in _LED},
        twin_share=figures["with_a_twin"] / total,
        confusable_share=figures["with_a_confusable"] / total,
        name_share=figures["names_shared_across_servers"] / total,
    )
    if not rows:
        return fill_markdown(
            "No tool of one server looks like a tool of another, of {:,}.", figures["tools"]
        )
    kinds = Counter(
        kind for row in rows if row["kind"] == CONFUSABLE
        for kind in json.loads(row["apart_by"]) or ["nothing"]
    )  # fmt: skip
    pairs = sum(row["kind"] == CONFUSABLE for row in rows)
    by_kind = make_markdown_table(
        ["told apart by", "confusable pairs"],
        ([kind, _compute_share(count, pairs)] for kind, count in kinds.most_common()),
    )
    worst = make_markdown_table(_HEAD, map(_describe_worst, _list_largest(rows)), cap=_SENTENCE)
    sections = [lead, by_kind, Markdown("### Largest clusters"), worst]
    return join_markdown("\n\n", sections)


def _select_kind(rows: Sequence[Row], kind: str) -> set[Tool]:
    mine = [row for row in rows if row["kind"] == kind]
    own_keys = {(row["server_id"], row["tool"]) for row in mine}
    return own_keys | {(row["other_server_id"], row["other_tool"]) for row in mine}


def _count_sharing(tools: Iterable[Tool]) -> int:
    """How many tools have a name, modulo case and separators, that another server uses too."""
    names = [(server, "".join(filter(str.isalnum, tool.casefold()))) for server, tool in tools]
    servers: dict[str, set[str]] = defaultdict(set)
    for server, name in names:
        servers[name].add(server)
    return sum(len(servers[name]) > 1 for _, name in names)


def _list_largest(rows: Sequence[Row]) -> list[list[Row]]:
    grouped: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        grouped[row["cluster"]].append(row)
    ranked = sorted(grouped.items(), key=lambda item: (-item[1][0]["cluster_tools"], item[0]))
    return [members for _, members in ranked[:_WORST]]


def _describe_worst(members: Sequence[Row]) -> list[str]:
    """One line of the table: the nearest pair that is not one tool twice, and its sentence."""
    names = Counter(row["tool"] for row in members) + Counter(row["other_tool"] for row in members)
    servers = {row["server_id"] for row in members} | {row["other_server_id"] for row in members}
    kinds = Counter(row["kind"] for row in members)
    nearest = min(members, key=lambda row: (row["kind"] == TWINS, -row["cosine"], row["server_id"],
                                            row["other_server_id"]))  # fmt: skip
    return [
        ", ".join(name for name, _ in names.most_common(2)),
        f"{members[0]['cluster_tools']:,}",
        f"{len(servers):,}",
        f"{kinds[TWINS]:,} / {kinds[CONFUSABLE]:,}",
        nearest["tells_apart"],
    ]


def _compute_share(part: int, whole: int) -> Markdown:
    return fill_markdown("{:,} ({:.0%})", part, part / whole) if whole else Markdown("0")


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
    description="Tools of several servers that look alike, and what tells them apart.",
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
        metadata={**compute_figures(rows, tools), "table": render_markdown(rows, tools)},
    )
