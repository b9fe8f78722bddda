"""Asset definitions of `release`, one consistent set, and of `router_index`, what is searched."""

import dagster as dg

from assets.contracts.quarantined_tools import key_contract, read_clear
from assets.vectors.encoders.embedder import Embedder
from serving.index.build import make_router_index, view_table
from serving.index.folder import load_index
from serving.index.model import IndexSource, RouterIndex
from serving.ranking.overlays import write_blocklist
from training.adapter_table import make_adapter_table, set_name
from training.evaluation.retriever import open_in_service
from training.policies import TrainerPolicy
from training.releases.in_service import find_release_models, find_reranker_file
from training.releases.index_source import build_published_source, list_held_contracts
from training.releases.release import (
    find_release_refusal,
    get_pinned_version,
    make_release,
    read_current_release,
    serve_version,
)
from training.releases.retention import prune_releases
from training.role import get_untrained_model, list_roles
from warehouse.audit import AuditVerdict
from warehouse.progress import ProgressLines
from warehouse.publish import (
    AssetAudit,
    Published,
    describe_asset,
    make_markdown_metadata,
    publish_digest,
)
from warehouse.storage.digest import digest
from warehouse.storage.lance import LanceStore
from warehouse.store import Warehouse

RELEASE_AUDIT = AssetAudit(
    "release",
    rules={
        "models_present": "Every champion of the release is on disk.",
        "not_rolled_back": "Nobody rolled this set of models and contracts back.",
    },
)
ROUTER_INDEX_AUDIT = AssetAudit(
    "router_index", rules={"one_entry_per_tool": "Every clear tool is in the index once."}
)


@dg.asset(
    **describe_asset(RELEASE_AUDIT, "training/releases"),
    deps=[*(f"{role}_champion" for role in list_roles()), "clear_contracts"],
    group_name="serving",
    description="One consistent set: the champions and the contracts they serve.",
)
def release(context: dg.AssetExecutionContext, warehouse: dg.ResourceParam[Warehouse]) -> Published:
    home = warehouse.home
    standing = find_release_models(home)
    models = {role: one.model for role, one in standing.items()}
    notes = [item.notice for item in standing.values() if item.notice]
    rules = [AuditVerdict("models_present", True, "; ".join(notes) or "all champions are on disk")]
    contracts = digest(sorted(key_contract(row) for row in read_clear(warehouse)))
    facts = (models, contracts, set_name(warehouse))
    refused = find_release_refusal(home, *facts)
    rules.append(AuditVerdict("not_rolled_back", True, refused or "nobody rolled this set back"))
    yield from publish_digest(RELEASE_AUDIT, make_release(home, *facts), rules, **models)


@dg.asset(
    **describe_asset(
        ROUTER_INDEX_AUDIT, "training/releases", "serving/index", kinds={"numpy", "onnx"}
    ),
    deps=[
        *("release", "contract_vectors", "clear_contracts", "catalogue", "server_summaries"),
        "contract_changes",
        *("deployments", "pairs", "judgements", "listed_contracts"),
    ],
    group_name="serving",
    pool="lance",
    description="What the router searches: every current tool, by the release's retriever.",
)
def router_index(
    context: dg.AssetExecutionContext,
    warehouse: dg.ResourceParam[Warehouse],
    trainer: dg.ResourceParam[TrainerPolicy],
    embedder: dg.ResourceParam[Embedder],
) -> Published:
    home, current = warehouse.home, read_current_release(warehouse.home)
    retriever = current["models"]["retriever"]
    encoder = open_in_service(home, retriever, trainer.retriever.start, embedder)
    reranker = find_reranker_file(home, current["models"])
    source, held = build_published_source(warehouse, unverified=trainer.unverified)
    pinned_version = get_pinned_version(home)
    version = pinned_version or make_router_index(
        home,
        source,
        LanceStore(home / "lance"),
        retriever,
        current["release"],
        ProgressLines(context.log.info),
        serve_version,
        encoder,
        reranker,
        trainer.search_from,
    )
    old = list_held_contracts(warehouse, pinned_version) if pinned_version else []
    blocked = write_blocklist(home, [*held, *old], version=version)
    index = load_index(home, version)
    verdict = _check_entries(index, source, pinned_version or index.release != current["release"])
    last = [
        warehouse.tables.read(make_adapter_table(role))["model"].to_list() for role in list_roles()
    ]
    pruned = prune_releases(
        home, trainer.releases, protect=[name for names in last for name in names]
    )
    yield from publish_digest(
        ROUTER_INDEX_AUDIT,
        version,
        [verdict],
        pruned=len(pruned.versions) + len(pruned.models),
        tools=len(index.tools),
        servers=len(index.servers),
        held=blocked,
        unverified=sum(tool.unverified for tool in index.tools),
        requests=sum(map(len, source.instructions.values())),
        recipes=len(index.recipes),
        embedder=index.embedder,
        reranker=index.reranker or get_untrained_model("reranker"),
        views=make_markdown_metadata(view_table(index)),
    )


def _check_entries(index: RouterIndex, source: IndexSource, stays: object) -> AuditVerdict:
    """stays: whether a rollback pinned what is served."""
    if stays:
        return AuditVerdict("one_entry_per_tool", True, "what a rollback serves stays as it is")
    tools = {(row["server_id"], row["tool"]) for row in source.rows}
    found = f"{len(index.tools)} of {len(tools)} tools"
    return AuditVerdict("one_entry_per_tool", len(index.tools) == len(tools), found)
