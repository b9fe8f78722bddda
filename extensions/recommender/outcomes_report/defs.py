"""Asset definition of `outcomes_report`: what calls that really ran say, on one page."""

import dagster as dg

from assets.outcomes.policy import ReliabilityPolicy
from extensions.recommender.outcomes_report.gather import gather_outcome_facts
from extensions.recommender.outcomes_report.page import write_outcomes
from training.reporting.report import inline_plots
from warehouse.audit import Verdict
from warehouse.publish import (
    AssetAudit,
    Published,
    describe_asset,
    make_markdown_metadata,
    publish_digest,
)
from warehouse.storage.digest import digest
from warehouse.store import Warehouse

OUTCOMES_AUDIT = AssetAudit("outcomes_report", rules=["written"])


@dg.asset(
    **describe_asset(
        OUTCOMES_AUDIT, "extensions/recommender/outcomes_report", kinds={"markdown", "matplotlib"}
    ),
    deps=["reliability", "confusables", "contract_changes", "reranker_evaluation"],
    group_name="outcomes",
    description="What calls that really ran say: success over time, the order that was served,"
    " look-alikes, calibration, changed contracts.",
)
def outcomes_report(
    context: dg.AssetExecutionContext,
    warehouse: dg.ResourceParam[Warehouse],
    reliability_policy: dg.ResourceParam[ReliabilityPolicy],
) -> Published:
    facts = gather_outcome_facts(warehouse, reliability_policy)
    path = write_outcomes(warehouse.home, facts)
    yield from publish_digest(
        OUTCOMES_AUDIT,
        digest(facts),
        [Verdict("written", path.exists(), str(path))],
        path=dg.MetadataValue.path(str(path)),
        calls=sum(rate["n"] for rate in facts["days"]["all"].values()),
        report=make_markdown_metadata(inline_plots(path)),
    )
