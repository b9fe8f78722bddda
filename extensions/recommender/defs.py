"""Asset definitions of the reranker (fitted, measured, champion) and of the page of outcomes."""

from collections.abc import Sequence
from typing import Any

import dagster as dg
import polars as pl

from assets.contracts.tool_id import ToolId
from assets.outcomes.policy import ReliabilityPolicy
from assets.vectors.encoders.embedder import Embedder
from extensions.recommender.call_history import (
    ServedOrder,
    add_passed_over,
    digest_history,
    make_examples,
    open_served_order,
    read_calls,
    split_calls,
)
from extensions.recommender.evaluation import (
    RERANKER_EVALUATION,
    evaluate_reranker,
    summarise_reranker,
)
from extensions.recommender.outcomes_page import (
    gather_outcome_facts,
    render_outcomes,
    write_outcomes,
)
from extensions.recommender.role import (
    ROLE,
    UNTRAINED_ORDER,
    find_lack,
    load_reranker,
    train_reranker,
)
from training.adapter_table import (
    ADAPTER_RULES,
    ITEM_RULES,
    check_adapter_rules,
    make_adapter_metadata,
    make_adapter_row,
    make_adapter_table,
)
from training.defs import build_champion
from training.evaluation.retriever import NothingToEvaluate, open_in_service, select_testable_rows
from training.policies import TrainerPolicy
from training.releases.in_service import find_model_in_service
from training.role_steps import write_model_card
from training.runtime.model_store import read_model_card
from training.sets.training_set import TRAINING_SET
from warehouse.audit import AuditVerdict
from warehouse.json_types import Row
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

_REQUESTS = 300  # held-out requests that the right tool must still come first of
# What the order comes from that a reranker is handed; of `router_index` all but listed contracts.
_ORDERED_BY = ("pairs", "judgements", "clear_contracts", "catalogue", "server_summaries")
ADAPTER = make_adapter_table(ROLE)
ADAPTER_AUDIT = audit_table(ADAPTER, rules=ADAPTER_RULES)
EVALUATION_AUDIT = audit_table(RERANKER_EVALUATION, rules=ITEM_RULES)
OUTCOMES_AUDIT = AssetAudit("outcomes_report", rules={"written": "The page is on disk."})


@dg.asset(
    **describe_asset(ADAPTER_AUDIT, "extensions/recommender", kinds={"numpy"}),
    deps=["reliability", "retriever_champion", *_ORDERED_BY],
    group_name="training",
    pool="lance",
    description="How likely each tool is to do what is asked, learnt from executed and logged"
    " calls; nothing while these are too few.",
)
def reranker_adapter(
    context: dg.AssetExecutionContext,
    warehouse: dg.ResourceParam[Warehouse],
    trainer: dg.ResourceParam[TrainerPolicy],
    embedder: dg.ResourceParam[Embedder],
    reliability_policy: dg.ResourceParam[ReliabilityPolicy],
) -> Published:
    calls, _ = split_calls(read_calls(warehouse, reliability_policy))
    lack = find_lack(calls["success"].to_list(), calls["tool_id"].n_unique())
    if lack is not None:
        rules = [AuditVerdict(rule, True, lack) for rule in ADAPTER_AUDIT.rules]
        metadata = {"learnt": lack}
        yield from publish(
            context, warehouse, ADAPTER_AUDIT, ADAPTER.frame([]), rules=rules, metadata=metadata
        )
        return
    retriever, encoder = _open_retriever(warehouse, trainer, embedder)
    with open_served_order(warehouse, encoder, set(calls["query"])) as served:
        card = train_reranker(
            warehouse.home,
            digest_history(calls, served.version),
            lambda: add_passed_over(make_examples(calls, served.pool, served.ask), served.pool),
            served.pool,
            (retriever, encoder.id),
        )
    write_model_card(warehouse.home, card["name"])
    yield from publish(
        context,
        warehouse,
        ADAPTER_AUDIT,
        ADAPTER.frame([make_adapter_row(card)]),
        rules=[
            AuditVerdict("training", True, f"{len(calls)} calls"),
            *check_adapter_rules(warehouse.home, card),
        ],
        metadata=make_adapter_metadata(card),
    )


@dg.asset(
    **describe_asset(EVALUATION_AUDIT, "extensions/recommender/evaluation.py"),
    deps=["reranker_adapter", "training_set", *_ORDERED_BY],
    group_name="training",
    pool="lance",
    description="Held-out calls that worked, told from those that failed; held-out requests whose"
    " tool still comes first.",
)
def reranker_evaluation(
    context: dg.AssetExecutionContext,
    warehouse: dg.ResourceParam[Warehouse],
    trainer: dg.ResourceParam[TrainerPolicy],
    embedder: dg.ResourceParam[Embedder],
    reliability_policy: dg.ResourceParam[ReliabilityPolicy],
) -> Published:
    last = warehouse.tables.read(ADAPTER).to_dicts()
    rows, summary = [], {}
    measured = "no reranker was trained: nothing to measure"
    if last:
        _, encoder = _open_retriever(warehouse, trainer, embedder)
        _, held_out = split_calls(read_calls(warehouse, reliability_policy))
        requests = select_testable_rows(warehouse.tables.read(TRAINING_SET).to_dicts())
        words = {*held_out["query"], *(row["instruction"] for row in requests)}
        with open_served_order(warehouse, encoder, words) as served:
            rows = _measure_models(warehouse, last[0], served, held_out, requests)
        try:
            summary = summarise_reranker(rows, last[0]["model"])
            measured = f"{summary['n']} calls of {summary['tools']} tools"
        except NothingToEvaluate as error:
            measured = str(error)
    yield from publish(
        context,
        warehouse,
        EVALUATION_AUDIT,
        RERANKER_EVALUATION.frame(rows),
        rules=[AuditVerdict("test_items", True, measured)],
        metadata={"measured": measured, "summary": dg.MetadataValue.json(summary)},
    )


reranker_champion = build_champion(
    ROLE,
    RERANKER_EVALUATION,
    summarise_reranker,
    "The best reranker so far; it starts with the order of the retriever.",
)


def _open_retriever(
    warehouse: Warehouse, trainer: TrainerPolicy, embedder: Embedder
) -> tuple[str, Embedder]:
    retriever = find_model_in_service(warehouse.home, "retriever").model
    start = trainer.retriever.start
    return retriever, open_in_service(warehouse.home, retriever, start, embedder)


def _measure_models(
    warehouse: Warehouse,
    last: Row,
    served: ServedOrder,
    held_out: pl.DataFrame,
    requests: Sequence[Row],
) -> list[dict[str, Any]]:
    home, pool = warehouse.home, served.pool
    names = [last["model"], find_model_in_service(home, ROLE).model]
    models = {
        name: load_reranker(home, card, pool) if card else None
        for name in dict.fromkeys([*names, UNTRAINED_ORDER])
        for card in (read_model_card(home, name),)
    }
    # The first of these rows whose tool is served, with its place
    places = served.pool.places
    rows = [row for row in requests if str(ToolId.of_row(row)) in places][:_REQUESTS]
    questions = served.ask([row["instruction"] for row in rows], lifted=True)
    return evaluate_reranker(
        models,
        make_examples(held_out, pool, served.ask),
        [(questions[row["instruction"]], places[str(ToolId.of_row(row))]) for row in rows],
        pool,
        served.score,
        last["training_set"],
    )


@dg.asset(
    **describe_asset(OUTCOMES_AUDIT, "extensions/recommender/outcomes_page.py", kinds={"markdown"}),
    deps=["reliability", "confusables", "contract_changes", "reranker_evaluation"],
    group_name="outcomes",
    description="What calls that really ran say: success over time,"
    " look-alikes, calibration, changed contracts.",
)
def outcomes_report(
    context: dg.AssetExecutionContext,
    warehouse: dg.ResourceParam[Warehouse],
    reliability_policy: dg.ResourceParam[ReliabilityPolicy],
) -> Published:
    facts = gather_outcome_facts(warehouse, reliability_policy)
    page = render_outcomes(facts)
    path = write_outcomes(warehouse.home, page)
    yield from publish_digest(
        OUTCOMES_AUDIT,
        digest(facts),
        [AuditVerdict("written", path.exists(), str(path))],
        path=dg.MetadataValue.path(str(path)),
        calls=sum(rate["n"] for rate in facts["days"]["all"].values()),
        report=make_markdown_metadata(page),
    )
