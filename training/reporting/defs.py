"""Asset definition of `report`: what was measured, with plots."""

import json
import time
from dataclasses import asdict

import dagster as dg

from training.drift.drift import DRIFT
from training.last_run import last_card, last_summary, set_name
from training.policies import ROLES
from training.releases.champion import champion
from training.releases.release import current_release
from training.reporting.gather import more_facts
from training.reporting.report import inlined, write_report
from training.sets.training_set import load_manifest
from warehouse.audit import Verdict
from warehouse.publish import AssetAudit, Published, audited, publish_digest
from warehouse.storage.digest import digest
from warehouse.store import Warehouse

REPORT_AUDIT = AssetAudit("report", rules=["written"])


@dg.asset(
    **audited(REPORT_AUDIT, "training/reporting", kinds={"markdown", "matplotlib"}),
    deps=["router_index", "drift"],
    group_name="serving",
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
    facts |= more_facts(warehouse, facts["caller"])
    name = digest(json.loads(json.dumps(facts)))
    # Named by the release's day and the facts: the same facts again are the same folder.
    day = time.strftime("%Y-%m-%d", time.gmtime(facts["release"]["at"]))
    path = write_report(home, f"{day}-{name[:8]}", **facts)
    verdict = Verdict("written", path.exists(), str(path))
    text = dg.MetadataValue.md(inlined(path))
    yield from publish_digest(
        REPORT_AUDIT, name, [verdict], path=dg.MetadataValue.path(str(path)), report=text
    )
