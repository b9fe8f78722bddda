"""Asset definitions of `report`: what was measured, with plots; and of `curriculum`."""

import json
import time
from dataclasses import asdict

import dagster as dg

from assets.synthesis.tables import CURRICULUM
from training.adapter_table import read_last_card, read_last_summary, set_name
from training.curriculum import make_curriculum
from training.drift.drift import DRIFT, sort_signals
from training.policies import TrainerPolicy
from training.releases.champion import read_champion
from training.releases.release import read_current_release
from training.reporting.plots import render_curriculum
from training.reporting.report import inline_plots, render_ablations, write_report
from training.role import list_trained_roles
from training.sets.set_audit import load_manifest
from warehouse.audit import AuditVerdict
from warehouse.publish import (
    AssetAudit,
    Published,
    audit_table,
    describe_asset,
    make_markdown_metadata,
    publish,
    publish_digest,
)
from warehouse.storage.digest import digest
from warehouse.store import Warehouse

CURRICULUM_AUDIT = audit_table(CURRICULUM)
REPORT_AUDIT = AssetAudit("report", rules={"written": "The report is on disk."})
# Whose words stand in it: another word in one of them makes it due.
SOURCES = (
    "training/reporting",
    "training/adapter_table.py",
    "training/figures.py",
    "extensions/bench/ablation_table.py",
    "training/evaluation/caller_markdown.py",
    "training/gates.py",
)


@dg.asset(
    **describe_asset(REPORT_AUDIT, *SOURCES, kinds={"markdown", "matplotlib"}),
    deps=["router_index", "drift"],
    group_name="serving",
    description="What was measured, on how much, beside which baseline; with plots.",
)
def report(context: dg.AssetExecutionContext, warehouse: dg.ResourceParam[Warehouse]) -> Published:
    home = warehouse.home
    trained_on = read_champion(home, "retriever").last_candidate.get("training_set")
    retriever = read_last_summary(warehouse, "retriever")
    caller = read_last_summary(warehouse, "caller")
    facts = {
        "manifest": load_manifest(home, trained_on or set_name(warehouse)) or {},
        "retriever_card": read_last_card(warehouse, "retriever"),
        "retriever": retriever,
        "caller_card": read_last_card(warehouse, "caller"),
        "caller": caller,
        "champions": [asdict(read_champion(home, role)) for role in list_trained_roles()],
        "release": read_current_release(home),
        # What was decided then is left out: what was decided since is in the champions.
        "drift": sort_signals(warehouse.tables.read(DRIFT).drop(DRIFT.volatile).to_dicts()),
        "ablations": render_ablations(warehouse),
    }
    name = digest(json.loads(json.dumps(facts)))
    # Named by the release's day and the facts: the same facts again are the same folder.
    day = time.strftime("%Y-%m-%d", time.gmtime(facts["release"]["at"]))
    path = write_report(home, f"{day}-{name[:8]}", facts)
    verdict = AuditVerdict("written", path.exists(), str(path))
    text = make_markdown_metadata(inline_plots(path))
    yield from publish_digest(
        REPORT_AUDIT, name, [verdict], path=dg.MetadataValue.path(str(path)), report=text
    )


@dg.asset(
    **describe_asset(CURRICULUM_AUDIT, "training/curriculum.py", "training/reporting"),
    deps=["caller_evaluation", "retriever_evaluation", "caller_champion", "retriever_champion"],
    group_name="training",
    description="What the next run explores and writes more of, by what the models got wrong.",
)
def curriculum(
    context: dg.AssetExecutionContext,
    warehouse: dg.ResourceParam[Warehouse],
    trainer: dg.ResourceParam[TrainerPolicy],
) -> Published:
    rows, tally = make_curriculum(warehouse, trainer.curriculum, trainer.split)
    yield from publish(
        context,
        warehouse,
        CURRICULUM_AUDIT,
        CURRICULUM.frame(rows),
        metadata={
            "granted_tools": len({(row["server_id"], row["tool"]) for row in rows}),
            "errors": make_markdown_metadata(render_curriculum(warehouse, rows, tally)),
        },
    )
