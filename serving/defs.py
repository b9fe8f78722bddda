"""The door of serving: one consistent release, the index the router searches, the report.

Like every door it imports dagster; the rest of `serving/` does not, nor torch.
"""

import json
import time
from dataclasses import asdict

import dagster as dg

from assets.contracts.clear import firewall
from assets.contracts.snapshot import SNAPSHOTS
from serving.blocked import block
from serving.gather import published_source
from serving.index import load_index
from serving.released import make_router_index, view_table
from training.champion import UNTRAINED, champion, current_release, make_release
from training.drift import DRIFT
from training.models import card
from training.report import inlined, write_report
from training.state import last_card, last_summary, set_name
from training.training_set import load_manifest
from warehouse.audit import Audit, Verdict
from warehouse.digest import digest
from warehouse.lance import LanceStore
from warehouse.progress import Lines
from warehouse.publish import Published, audited, publish_digest
from warehouse.store import Warehouse

ROLES = ("retriever", "caller")


@dg.asset(
    deps=["retriever_champion", "caller_champion", "snapshots", "findings"],
    group_name="serving",
    check_specs=audited("release"),
    description="One consistent set: the champions and the contracts they serve.",
)
def release(context: dg.AssetExecutionContext, warehouse: dg.ResourceParam[Warehouse]) -> Published:
    models = {role: champion(warehouse.home, role).model for role in ROLES}
    missing = [
        f"{role} {name[:12]}"
        for role, name in models.items()
        if name != UNTRAINED[role] and card(warehouse.home, name) is None
    ]
    rules = [Verdict("models_present", not missing, ", ".join(missing) or "all on disk")]
    if missing:
        yield from publish_digest("release", "", Audit(rules))
        return
    tables = warehouse.tables
    heads = {name: tables.head("snapshots", name) for name in tables.partitions("snapshots")}
    _, held = firewall(warehouse).part(tables.read(SNAPSHOTS).to_dicts())
    contracts = digest(
        {
            "snapshots": {name: head.digest for name, head in heads.items() if head},
            "held": sorted({row["contract_digest"] for row in held}),
        }
    )
    name = make_release(warehouse.home, models, contracts, set_name(warehouse))
    yield from publish_digest("release", name, Audit(rules), **models)


@dg.asset(
    deps=[
        *("release", "contract_vectors", "findings", "catalogue", "server_summaries"),
        *("deployments", "pairs", "judgements"),
    ],
    group_name="serving",
    check_specs=audited("router_index"),
    pool="lance",
    description="What the router searches: every current tool, by the release's retriever.",
)
def router_index(
    context: dg.AssetExecutionContext, warehouse: dg.ResourceParam[Warehouse]
) -> Published:
    home, served = warehouse.home, current_release(warehouse.home)
    source, held = published_source(warehouse)
    tools = {(row["server_id"], row["tool"]) for row in source.rows}
    version = make_router_index(
        home,
        source,
        LanceStore(home / "lance"),
        served["models"]["retriever"],
        served["release"],
        Lines(context.log.info),
    )
    blocked = block(home, held)
    index = load_index(home, version)
    found = f"{len(index.tools)} of {len(tools)} tools"
    verdict = Verdict("one_entry_per_tool", len(index.tools) == len(tools), found)
    yield from publish_digest(
        "router_index",
        version,
        Audit([verdict]),
        tools=len(index.tools),
        servers=len(index.servers),
        held=blocked,
        requests=sum(map(len, source.instructions.values())),
        recipes=len(index.recipes),
        embedder=index.embedder,
        views=dg.MetadataValue.md(view_table(index)),
    )


@dg.asset(
    deps=["router_index", "drift"],
    group_name="serving",
    check_specs=audited("report"),
    description="What was measured, on how much, beside which baseline; with plots.",
)
def report(context: dg.AssetExecutionContext, warehouse: dg.ResourceParam[Warehouse]) -> Published:
    home = warehouse.home
    trained_on = champion(home, "retriever").last_candidate.get("training_set")
    content = load_manifest(home, trained_on or set_name(warehouse)) or {}
    facts = {
        "manifest": content,
        "retriever_card": last_card(warehouse, "retriever"),
        "retriever": last_summary(warehouse, "retriever"),
        "caller_card": last_card(warehouse, "caller"),
        "caller": last_summary(warehouse, "caller"),
        "champions": [asdict(champion(home, role)) for role in ROLES],
        "release": current_release(home),
        "drift": warehouse.tables.read(DRIFT).to_dicts()[0],
    }
    name = digest(json.loads(json.dumps(facts)))
    # Named by the release's day and the facts: the same facts again are the same folder.
    day = time.strftime("%Y-%m-%d", time.gmtime(facts["release"]["at"]))
    path = write_report(home, f"{day}-{name[:8]}", **facts)
    verdict = Verdict("written", path.exists(), str(path))
    text = dg.MetadataValue.md(inlined(path))
    yield from publish_digest(
        "report", name, Audit([verdict]), path=dg.MetadataValue.path(str(path)), report=text
    )
