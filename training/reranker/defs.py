"""Asset definitions of the reranker: fitted to the calls that ran, measured on others."""

from collections.abc import Sequence

import dagster as dg
import numpy as np

from assets.contracts.quarantine.clear import read_clear
from assets.contracts.tool_id import ToolId
from assets.outcomes.reliability.policy import ReliabilityPolicy
from assets.vectors.embed import Embedder, embed_queries
from serving.index.release_index import embed_views
from serving.reranking.pool import Pool
from training.evaluation.retriever import NothingToEvaluate, open_in_service, select_testable_rows
from training.policies import Trainer
from training.releases.cards.model_card import write_card
from training.releases.in_service import find_model_in_service
from training.reranker.evaluation import (
    RERANKER_EVALUATION,
    Requests,
    evaluate_reranker,
    summarise_reranker,
)
from training.reranker.history import (
    add_passed_over,
    ask_questions,
    digest_history,
    make_examples,
    make_pool,
    read_calls,
    split_calls,
)
from training.reranker.role import ROLE, UNTRAINED_ORDER, find_lack, load_reranker, train_reranker
from training.runtime.adapter_table import (
    check_adapter_rules,
    make_adapter_metadata,
    make_adapter_row,
    make_adapter_table,
)
from training.runtime.model_store import read_model_card
from training.sets.training_set import TRAINING_SET
from warehouse.audit import Verdict, expect_unique
from warehouse.progress import Silent
from warehouse.publish import Published, audit_table, describe_asset, publish
from warehouse.storage.lance import LanceStore
from warehouse.store import Warehouse

_REQUESTS = 300  # held-out requests that the right tool must still come first of
ADAPTER = make_adapter_table(ROLE)
ADAPTER_AUDIT = audit_table(
    ADAPTER, rules=["training", "loss_is_a_number", "loss_fell", "adapter_loads"]
)
EVALUATION_AUDIT = audit_table(
    RERANKER_EVALUATION, [expect_unique("model", "item_id")], rules=["test_items"]
)


@dg.asset(
    **describe_asset(ADAPTER_AUDIT, "training/reranker", kinds={"numpy"}),
    deps=["reliability", "pairs", "clear_contracts", "retriever_champion"],
    group_name="training",
    pool="lance",
    description="How likely each tool is to do what is asked, learnt from executed and logged"
    " calls; nothing while these are too few.",
)
def reranker_adapter(
    context: dg.AssetExecutionContext,
    warehouse: dg.ResourceParam[Warehouse],
    trainer: dg.ResourceParam[Trainer],
    embedder: dg.ResourceParam[Embedder],
    reliability_policy: dg.ResourceParam[ReliabilityPolicy],
) -> Published:
    calls, _ = split_calls(read_calls(warehouse, reliability_policy))
    lack = find_lack(calls["success"].to_list(), calls["tool_id"].n_unique())
    if lack is not None:
        rules = [Verdict(rule, True, lack) for rule in ADAPTER_AUDIT.rules]
        metadata = {"learnt": lack}
        yield from publish(
            context, warehouse, ADAPTER_AUDIT, ADAPTER.frame([]), rules=rules, metadata=metadata
        )
        return
    retriever, encoder, pool = _open_pool(warehouse, trainer, embedder)
    card = train_reranker(
        warehouse.home,
        digest_history(calls, pool),
        lambda: add_passed_over(
            make_examples(calls, pool, lambda words: embed_queries(encoder, words)), pool
        ),
        pool,
        (retriever, encoder.id),
    )
    write_card(warehouse.home, card["name"])
    yield from publish(
        context,
        warehouse,
        ADAPTER_AUDIT,
        ADAPTER.frame([make_adapter_row(card)]),
        rules=[
            Verdict("training", True, f"{len(calls)} calls"),
            *check_adapter_rules(warehouse.home, card),
        ],
        metadata=make_adapter_metadata(card),
    )


@dg.asset(
    **describe_asset(EVALUATION_AUDIT, "training/reranker/evaluation.py"),
    deps=["reranker_adapter", "training_set"],
    group_name="training",
    pool="lance",
    description="Held-out calls that worked, told from those that failed; held-out requests whose"
    " tool still comes first.",
)
def reranker_evaluation(
    context: dg.AssetExecutionContext,
    warehouse: dg.ResourceParam[Warehouse],
    trainer: dg.ResourceParam[Trainer],
    embedder: dg.ResourceParam[Embedder],
    reliability_policy: dg.ResourceParam[ReliabilityPolicy],
) -> Published:
    home, last = warehouse.home, warehouse.tables.read(ADAPTER).to_dicts()
    rows, summary = [], {}
    measured = "no reranker was trained: nothing to measure"
    if last:
        _, encoder, pool = _open_pool(warehouse, trainer, embedder)

        def embed(words: Sequence[str]) -> np.ndarray:
            return embed_queries(encoder, words)

        _, held_out = split_calls(read_calls(warehouse, reliability_policy))
        names = [last[0]["model"], find_model_in_service(home, ROLE).model]
        models = {
            name: load_reranker(home, card, pool) if card else None
            for name in dict.fromkeys([*names, UNTRAINED_ORDER])
            for card in (read_model_card(home, name),)
        }
        rows = evaluate_reranker(
            models,
            make_examples(held_out, pool, embed),
            _read_requests(warehouse, pool, embed),
            pool,
            last[0]["training_set"],
        )
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
        rules=[Verdict("test_items", True, measured)],
        metadata={"measured": measured, "summary": dg.MetadataValue.json(summary)},
    )


def _open_pool(
    warehouse: Warehouse, trainer: Trainer, embedder: Embedder
) -> tuple[str, Embedder, Pool]:
    """(retriever in service, its encoder, the clear contracts with its vectors)."""
    retriever = find_model_in_service(warehouse.home, "retriever").model
    kept = trainer.retriever
    encoder = open_in_service(warehouse.home, retriever, kept.start, kept.prompts, embedder)
    store = LanceStore(warehouse.home / "lance")
    rows = read_clear(warehouse)
    pool = make_pool(rows, lambda texts: embed_views(texts, encoder, store, Silent()))
    return retriever, encoder, pool


def _read_requests(warehouse: Warehouse, pool: Pool, embed) -> Requests:
    """Held-out requests with the place of the right tool."""
    held = select_testable_rows(warehouse.tables.read(TRAINING_SET).to_dicts())
    rows = [row for row in held if str(ToolId.of_row(row)) in pool.places][:_REQUESTS]
    questions = ask_questions([row["instruction"] for row in rows], pool, embed)
    return [(questions[row["instruction"]], pool.places[str(ToolId.of_row(row))]) for row in rows]
