"""Asset definitions of `pairs`, `judgements`, `spend` and `server_summaries`."""

from collections.abc import Sequence
from typing import Any

import dagster as dg

from assets.catalogue.catalogue import CATALOGUE, PRIVATE, map_descriptions
from assets.contracts.quarantined_tools import read_clear
from assets.marketplaces.adapters.private import NotApproved
from assets.partitions import close_run_after, marketplaces, read_one_server
from assets.synthesis import pair_report
from assets.synthesis.judging.plan import judge_pairs
from assets.synthesis.judging.trials import JUDGE_TRIALS
from assets.synthesis.pair_report import SPEND, audit_cost, count_accepted_pairs, make_spend_rows
from assets.synthesis.summaries import SUMMARIES, find_summary_flaws, make_summaries
from assets.synthesis.tables import JUDGEMENTS, PAIRS
from assets.synthesis.writing.plan import write_pairs
from assets.synthesis.writing.writer import PairWriter
from assets.vectors.encoders.embedder import Embedder
from warehouse.audit import AuditVerdict
from warehouse.json_types import Record
from warehouse.llm.roles import PENDING
from warehouse.progress import ProgressLines
from warehouse.publish import Published, audit_table, describe_asset, publish, refuse
from warehouse.store import Warehouse

WRITTEN_FLOOR = 0.5  # of all pairs asked for: below it the endpoint or the budget failed, not rows
_APPROVED = {
    "approved_endpoint": "Contracts and pairs go only to model endpoints that the settings approve."
}
PAIRS_AUDIT = audit_table(PAIRS, rules=_APPROVED)
JUDGEMENTS_AUDIT = audit_table(JUDGEMENTS, rules=_APPROVED)
SUMMARIES_AUDIT = audit_table(SUMMARIES)
SPEND_AUDIT = audit_table(SPEND)


@dg.asset(
    **describe_asset(PAIRS_AUDIT, "assets/synthesis", partitions=marketplaces),
    deps=["clear_contracts", "contract_vectors", "explorations"],
    group_name="synthesis",
    pool="llm",
    description="Requests and the calls that answer them, written per contract, filters applied.",
)
def pairs(
    context: dg.AssetExecutionContext,
    warehouse: dg.ResourceParam[Warehouse],
    writer: dg.ResourceParam[PairWriter],
    embedder: dg.ResourceParam[Embedder],
) -> Published:
    name = context.partition_key
    try:
        llm = writer.make_llm(warehouse, name, batches=True)
    except NotApproved as error:
        yield from refuse(context, warehouse, PAIRS_AUDIT, "approved_endpoint", error)
        return
    progress = ProgressLines(context.log.info)
    written = write_pairs(
        warehouse,
        name,
        writer.policy,
        llm,
        embedder,
        progress,
        writer.worlds,
        only=read_one_server(context),
        open_retriever=writer.open_retriever,
    )
    stale = [row["pair_id"] for row in written.rows if not written.offer.offers_contract_of(row)]
    observed = f"{len(stale)} pairs of other contracts"
    yield from publish(
        context,
        warehouse,
        PAIRS_AUDIT,
        PAIRS.frame(written.rows),
        rules=[
            _check_written(written.rows),
            AuditVerdict("contracts_current", not stale, observed),
        ],
        plan=written.due,
        metadata={
            **pair_report.report_pairs(written.rows),
            "held": len(written.offer.held),
            "asked_this_run": llm.counts["asked"],
            "usd_this_run": llm.usd,
            **pair_report.report_batches(llm.batches),
        },
    )
    close_run_after(context, warehouse.ledger, "pairs")


@dg.asset(
    **describe_asset(JUDGEMENTS_AUDIT, "assets/synthesis", partitions=marketplaces),
    deps=["pairs", "clear_contracts"],
    group_name="synthesis",
    pool="llm",
    description="A score and a verdict for each pair that passed the filters, by a tested judge.",
)
def judgements(
    context: dg.AssetExecutionContext,
    warehouse: dg.ResourceParam[Warehouse],
    writer: dg.ResourceParam[PairWriter],
) -> Published:
    name = context.partition_key
    try:
        llm = writer.make_llm(warehouse, name, batches=True)
    except NotApproved as error:
        yield from refuse(context, warehouse, JUDGEMENTS_AUDIT, "approved_endpoint", error)
        return
    judged = judge_pairs(
        warehouse,
        name,
        writer.policy,
        llm,
        ProgressLines(context.log.info),
        only=read_one_server(context),
    )
    trials = warehouse.tables.stage(JUDGE_TRIALS, JUDGE_TRIALS.frame(judged.trials), name)
    yield from publish(
        context,
        warehouse,
        JUDGEMENTS_AUDIT,
        JUDGEMENTS.frame(judged.rows),
        rules=judged.audit,
        plan=judged.due,
        metadata={
            **pair_report.report_judgements(judged.rows, judged.pairs),
            "trial": pair_report.tabulate_trials(judged.trials),
            **pair_report.report_batches(llm.batches),
        },
    )
    # `publish` returned: the audit passed, and the trial that it rests on may be read.
    warehouse.tables.promote(trials, context.run_id, [])
    close_run_after(context, warehouse.ledger, "judgements")


@dg.asset(
    **describe_asset(SPEND_AUDIT, "assets/synthesis"),
    deps=["judgements"],
    group_name="synthesis",
    description="What every stage cost per marketplace and model, and per accepted pair.",
)
def spend(context: dg.AssetExecutionContext, warehouse: dg.ResourceParam[Warehouse]) -> Published:
    tables = warehouse.tables
    per_market, distinct = count_accepted_pairs(tables.read(JUDGEMENTS))
    rows = make_spend_rows(warehouse.ledger.costs(), per_market, distinct)
    spent, limit = warehouse.ledger.spent(), warehouse.budget_usd
    within = limit is None or spent <= limit + 1e-9
    yield from publish(
        context,
        warehouse,
        SPEND_AUDIT,
        SPEND.frame(rows),
        rules=[
            AuditVerdict("budget", within, f"{spent:.4f} USD", f"at most {limit} USD"),
            audit_cost(rows, tables.read(SPEND).to_dicts()),
        ],
        metadata={
            "spent_usd": spent,
            "accepted": distinct,
            "costs": pair_report.tabulate_costs(rows),
        },
    )


@dg.asset(
    **describe_asset(SUMMARIES_AUDIT, "assets/synthesis"),
    deps=["clear_contracts", "catalogue"],
    group_name="vectors",
    pool="llm",
    description="What kinds of things each server's tools do, in a few sentences; made once.",
)
def server_summaries(
    context: dg.AssetExecutionContext,
    warehouse: dg.ResourceParam[Warehouse],
    writer: dg.ResourceParam[PairWriter],
) -> Published:
    clear = read_clear(warehouse)
    previous = warehouse.tables.read(SUMMARIES).to_dicts()
    about = map_descriptions(warehouse.tables.read(CATALOGUE).to_dicts())
    public = {row["server_id"] for row in clear if row["marketplace"] != PRIVATE}
    rows: list[dict[str, Any]] = []
    spent = 0.0
    for name, server_ids in (
        ("_", public),
        (PRIVATE, {row["server_id"] for row in clear} - public),
    ):
        try:
            llm = writer.make_llm(warehouse, name, batches=True)
        except NotApproved:
            llm = None  # private tools may not leave for it: they are summed up offline
        summaries, _ = make_summaries(
            [row for row in clear if row["server_id"] in server_ids],
            about,
            llm,
            [row for row in previous if row["server_id"] in server_ids],
            progress=ProgressLines(context.log.info),
        )
        rows += summaries
        spent += llm.usd if llm else 0.0
    flaws = find_summary_flaws(rows)
    yield from publish(
        context,
        warehouse,
        SUMMARIES_AUDIT,
        SUMMARIES.frame(rows),
        rules=[
            AuditVerdict("summaries", not flaws, "; ".join(flaws[:3]) or f"{len(rows)} servers")
        ],
        metadata={
            "failed": sum(row["status"] != "ok" for row in rows),
            "providers": ", ".join(sorted({row["provider"] for row in rows})),
            "usd_this_run": spent,
        },
    )


def _check_written(rows: Sequence[Record]) -> AuditVerdict:
    due = [row for row in rows if row["status"] != PENDING]
    lost = [row for row in due if row["status"] != "ok"]
    ok, enough = len(due) - len(lost), len(due) - len(lost) >= WRITTEN_FLOOR * len(due)
    kinds = sorted({row["error_kind"] for row in lost})
    observed = f"{ok} of {len(due)} written" + (f"; failed by {', '.join(kinds)}" if kinds else "")
    if lost and not enough:
        observed += f", e.g. {lost[0]['hint']}"
    if len(due) < len(rows):
        observed += f"; {len(rows) - len(due)} wait for a batch"
    expected = f"at least {WRITTEN_FLOOR:.0%} of the pairs asked for"
    return AuditVerdict("written_floor", enough, observed, expected)
