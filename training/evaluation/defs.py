"""Asset definitions of each role's evaluation and champion."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import dagster as dg
import polars as pl

from assets.contracts.canonical import tool_text
from assets.contracts.quarantine.clear import read_clear
from assets.vectors.embed import BadAdapter, BadEmbedder, Embedder
from assets.vectors.index import read_contract
from assets.vectors.scale import get_plain
from extensions.publishing.cards.model_card import write_card
from extensions.recommender.training.evaluation import RERANKER_EVALUATION, summarise_reranker
from extensions.sidecar.evaluation import SIDECAR_EVALUATION
from extensions.sidecar.summary import summarise_sidecar
from training.evaluation.caller.bench import evaluate_candidate
from training.evaluation.caller.summary import summarise_calls
from training.evaluation.caller_table import CALLER_EVALUATION
from training.evaluation.predictors.interface import CannotPredict
from training.evaluation.retriever import (
    BASE_LABEL,
    RETRIEVER_EVALUATION,
    NothingToEvaluate,
    evaluate_retriever,
    make_encoder,
    read_beginning,
    summarise_recall,
)
from training.last_run import NotTrained, read_last_adapter, set_name
from training.policies import ROLES, Trainer
from training.releases.champion import UNTRAINED
from training.releases.gate import as_rows, render_gates_table
from training.releases.gate_rules import check_evaluation
from training.releases.in_service import find_model_in_service
from training.releases.promotion import Promotion, consider_candidate
from training.sets.pool import BadOffer
from training.sets.split import TRAIN
from training.sets.training_set import TRAINING_SET
from warehouse.audit import Verdict, expect_unique
from warehouse.progress import Lines
from warehouse.publish import (
    AssetAudit,
    Published,
    audit_table,
    describe_asset,
    make_markdown_metadata,
    publish,
    publish_digest,
    refuse,
)
from warehouse.storage.digest import digest
from warehouse.storage.lance import LanceStore
from warehouse.storage.tables import TableSpec
from warehouse.store import Warehouse

Row = dict[str, Any]
Measure = Callable[[Sequence[Row], str, str], Row]

RETRIEVER_AUDIT = audit_table(
    RETRIEVER_EVALUATION, [expect_unique("model", "pair_id")], rules=["test_items"]
)
CALLER_AUDIT = audit_table(
    CALLER_EVALUATION, [expect_unique("model", "item_id")], rules=["test_items"]
)


@dg.asset(
    **describe_asset(RETRIEVER_AUDIT, "training/evaluation/retriever.py"),
    deps=["retriever_adapter", "training_set"],
    group_name="training",
    pool="lance",
    description="Rank of the right tool for each request of servers never trained on.",
)
def retriever_evaluation(
    context: dg.AssetExecutionContext,
    warehouse: dg.ResourceParam[Warehouse],
    embedder: dg.ResourceParam[Embedder],
) -> Published:
    candidate = read_last_adapter(warehouse, "retriever")["model"]
    store = LanceStore(warehouse.home / "lance")
    labels = dict.fromkeys(
        [BASE_LABEL, find_model_in_service(warehouse.home, "retriever").model, candidate]
    )
    clear = read_clear(warehouse)
    texts = [tool_text(read_contract(row)) for row in clear]
    try:
        start, prompts = read_beginning(warehouse.home, candidate)
        rows = evaluate_retriever(
            warehouse.tables.read(TRAINING_SET).filter(pl.col("split") != TRAIN).to_dicts(),
            texts,
            {
                label: make_encoder(
                    warehouse.home, label, store, start, get_plain(embedder), prompts
                )
                for label in labels
            },
            set_name(warehouse),
        )
    except (NothingToEvaluate, BadAdapter, BadEmbedder) as error:
        yield from refuse(context, warehouse, RETRIEVER_AUDIT, "test_items", error)
        return
    summary = summarise_recall(rows, candidate)
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
    **describe_asset(CALLER_AUDIT, "training/evaluation/caller", "training/evaluation/predictors"),
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
    candidate = read_last_adapter(warehouse, "caller")["model"]
    incumbent = find_model_in_service(warehouse.home, "caller").model
    try:
        rows, notes = evaluate_candidate(
            warehouse, candidate, incumbent, trainer.caller_test, Lines(context.log.info)
        )
        summary = summarise_calls(rows, candidate)
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
            "signature": summary["signature"]["verdict"],
            "left_out": "; ".join(notes) or "nothing",
            "summary": dg.MetadataValue.json(summary),
        },
    )


def _judge_candidate(
    home: Path,
    role: str,
    last: Row,
    standing: str,
    rows: Sequence[Row],
    measure: Measure,
    trainer: Trainer,
) -> Promotion:
    """Promotes the last model if its gates pass against the one in service, and writes its card."""
    against = UNTRAINED[role] if standing == last["model"] else standing
    gates, summary = check_evaluation(role, rows, last["model"], against, measure)
    made = consider_candidate(
        home,
        role,
        last["model"],
        last["training_set"],
        gates,
        summary,
        by_hand=role in trainer.promotion.by_hand,
    )
    own = made.champion.model == last["model"]  # its card tells the evaluation that promoted it
    evaluation = (made.champion.evidence, made.champion.gates) if own else (summary, made.gates)
    write_card(home, last["model"], summary=evaluation[0], gates=as_rows(evaluation[1]))
    return made


def _build_champion_asset(role: str, spec: TableSpec, measure: Measure, description: str):
    checked = AssetAudit(f"{role}_champion", rules=["better_or_kept"])

    @dg.asset(
        **describe_asset(checked, "training/releases"),
        deps=[f"{role}_evaluation"],
        group_name="training",
        description=description,
    )
    def champion(
        context: dg.AssetExecutionContext,
        warehouse: dg.ResourceParam[Warehouse],
        trainer: dg.ResourceParam[Trainer],
    ) -> Published:
        standing = find_model_in_service(warehouse.home, role)
        try:
            last = read_last_adapter(warehouse, role)
        except NotTrained as error:
            if role in ROLES:
                raise
            # What learns from calls has none before there were enough of them.
            named = digest({"role": role, "model": standing.model})
            kept = [Verdict("better_or_kept", True, "there is no candidate yet")]
            yield from publish_digest(
                checked, named, kept, model=standing.model, promoted=False, why=str(error)
            )
            return
        rows = warehouse.tables.read(spec).to_dicts()
        made = _judge_candidate(warehouse.home, role, last, standing.model, rows, measure, trainer)
        now = made.champion.model
        yield from publish_digest(
            checked,
            digest({"role": role, "model": now}),
            [Verdict("better_or_kept", True, made.why)],
            model=now,
            promoted=made.promoted,
            waiting=made.waiting,
            why=made.why,
            gates=make_markdown_metadata(render_gates_table(made.gates)),
            serves=standing.notice or "the champion",
        )

    return champion


retriever_champion = _build_champion_asset(
    "retriever",
    RETRIEVER_EVALUATION,
    summarise_recall,
    "The best retriever so far; a candidate must be better beyond its interval.",
)
reranker_champion = _build_champion_asset(
    "reranker",
    RERANKER_EVALUATION,
    summarise_reranker,
    "The best reranker so far; it starts with the order of the retriever.",
)
caller_champion = _build_champion_asset(
    "caller",
    CALLER_EVALUATION,
    summarise_calls,
    "The best caller so far; it starts with BM25 selection and slot copying.",
)
sidecar_champion = _build_champion_asset(
    "sidecar",
    SIDECAR_EVALUATION,
    summarise_sidecar,
    "The best sidecar so far; it starts with the repair ladder alone.",
)
