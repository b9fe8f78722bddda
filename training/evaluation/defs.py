"""Asset definitions of each role's evaluation and champion."""

from collections.abc import Callable, Sequence
from typing import Any

import dagster as dg
import polars as pl

from assets.contracts.canonical import tool_text
from assets.contracts.quarantine.clear import read_clear
from assets.vectors.embed import BadAdapter
from assets.vectors.index import contract_of
from training.evaluation.caller.nightly import nightly_rows
from training.evaluation.caller.summary import call_summary
from training.evaluation.caller_table import CALLER_EVALUATION
from training.evaluation.predictors.interface import CannotPredict
from training.evaluation.retriever import (
    BASE_LABEL,
    RETRIEVER_EVALUATION,
    NothingToEvaluate,
    encoder,
    evaluate_retriever,
    recall_summary,
)
from training.last_run import last_adapter, set_name
from training.policies import Trainer
from training.releases.cards.model_card import write_card
from training.releases.champion import UNTRAINED, consider, in_service
from training.releases.gate import as_rows, gates_table, weighed
from training.sets.candidates import BadOffer
from training.sets.split import TRAIN
from training.sets.training_set import TRAINING_SET
from warehouse.audit import Verdict, expect_unique
from warehouse.progress import Lines
from warehouse.publish import (
    AssetAudit,
    Published,
    audited,
    publish,
    publish_digest,
    refuse,
    table_audit,
)
from warehouse.storage.digest import digest
from warehouse.storage.lance import LanceStore
from warehouse.storage.tables import TableSpec
from warehouse.store import Warehouse

Row = dict[str, Any]
Measure = Callable[[Sequence[Row], str, str], Row]

RETRIEVER_AUDIT = table_audit(
    RETRIEVER_EVALUATION, [expect_unique("model", "pair_id")], rules=["test_items"]
)
CALLER_AUDIT = table_audit(
    CALLER_EVALUATION, [expect_unique("model", "item_id")], rules=["test_items"]
)


@dg.asset(
    **audited(RETRIEVER_AUDIT, "training/evaluation/retriever.py"),
    deps=["retriever_adapter", "training_set"],
    group_name="training",
    pool="lance",
    description="Rank of the right tool for each request of servers never trained on.",
)
def retriever_evaluation(
    context: dg.AssetExecutionContext, warehouse: dg.ResourceParam[Warehouse]
) -> Published:
    candidate = last_adapter(warehouse, "retriever")["model"]
    store = LanceStore(warehouse.home / "lance")
    labels = dict.fromkeys([BASE_LABEL, in_service(warehouse.home, "retriever").model, candidate])
    clear = read_clear(warehouse)
    texts = [tool_text(contract_of(row)) for row in clear]
    try:
        rows = evaluate_retriever(
            warehouse.tables.read(TRAINING_SET).filter(pl.col("split") != TRAIN).to_dicts(),
            texts,
            {label: encoder(warehouse.home, label, store) for label in labels},
            set_name(warehouse),
        )
    except (NothingToEvaluate, BadAdapter) as error:
        yield from refuse(context, warehouse, RETRIEVER_AUDIT, "test_items", error)
        return
    summary = recall_summary(rows, candidate)
    yield from publish(
        context,
        warehouse,
        RETRIEVER_AUDIT,
        RETRIEVER_EVALUATION.frame(rows),
        metadata={
            "n": summary["n"],
            "recall_at_1_base": summary["recall_at_1"]["incumbent"]["value"],
            "recall_at_1": summary["recall_at_1"]["candidate"]["value"],
            "recall_at_5": summary["recall_at_5"]["candidate"]["value"],
            "summary": dg.MetadataValue.json(summary),
        },
    )


@dg.asset(
    **audited(CALLER_AUDIT, "training/evaluation/caller", "training/evaluation/predictors"),
    deps=["caller_adapter", "training_set"],
    group_name="training",
    pool="gpu",
    description="Tool, arguments, abstention and phantom calls of the caller, beside BM25 + slots.",
)
def caller_evaluation(
    context: dg.AssetExecutionContext,
    warehouse: dg.ResourceParam[Warehouse],
    trainer: dg.ResourceParam[Trainer],
) -> Published:
    candidate = last_adapter(warehouse, "caller")["model"]
    incumbent = in_service(warehouse.home, "caller").model
    try:
        rows, notes = nightly_rows(
            warehouse, candidate, incumbent, trainer.caller_test, Lines(context.log.info)
        )
        summary = call_summary(rows, candidate)
    except (NothingToEvaluate, CannotPredict, BadOffer) as error:
        yield from refuse(context, warehouse, CALLER_AUDIT, "test_items", error)
        return
    yield from publish(
        context,
        warehouse,
        CALLER_AUDIT,
        CALLER_EVALUATION.frame(rows),
        metadata={
            "n": summary["n"],
            "items": summary["items"],
            **{
                name: summary[name]["candidate"]["value"] for name in ("valid", "tool_ok", "ast_ok")
            },
            "baseline_ast": summary["ast_ok"]["incumbent"]["value"],
            "phantom_rate": summary["gate"]["phantom_rate"]["value"],
            "signature": summary["signature"]["told"],
            "left_out": "; ".join(notes) or "nothing",
            "summary": dg.MetadataValue.json(summary),
        },
    )


def _champion_asset(role: str, spec: TableSpec, measure: Measure, description: str):
    checked = AssetAudit(f"{role}_champion", rules=["better_or_kept"])

    @dg.asset(
        **audited(checked, "training/releases"),
        deps=[f"{role}_evaluation"],
        group_name="training",
        description=description,
    )
    def champion(
        context: dg.AssetExecutionContext, warehouse: dg.ResourceParam[Warehouse]
    ) -> Published:
        last = last_adapter(warehouse, role)
        standing = in_service(warehouse.home, role)
        against = UNTRAINED[role] if standing.model == last["model"] else standing.model
        rows = warehouse.tables.read(spec).to_dicts()
        gates, summary = weighed(role, rows, last["model"], against, measure)
        made = consider(warehouse.home, role, last["model"], last["training_set"], gates, summary)
        now = made.champion.model
        own = now == last["model"]  # its card tells the evaluation that promoted it
        told = (made.champion.evidence, made.champion.gates) if own else (summary, made.gates)
        write_card(warehouse.home, last["model"], summary=told[0], gates=as_rows(told[1]))
        yield from publish_digest(
            checked,
            digest({"role": role, "model": now}),
            [Verdict("better_or_kept", True, made.why)],
            model=now,
            promoted=made.promoted,
            why=made.why,
            gates=dg.MetadataValue.md(gates_table(made.gates)),
            serves=standing.told or "the champion",
        )

    return champion


retriever_champion = _champion_asset(
    "retriever",
    RETRIEVER_EVALUATION,
    recall_summary,
    "The best retriever so far; a candidate must be better beyond its interval.",
)
caller_champion = _champion_asset(
    "caller",
    CALLER_EVALUATION,
    call_summary,
    "The best caller so far; it starts with BM25 selection and slot copying.",
)
