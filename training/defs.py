"""The door of training: the set, drift, the adapters, their evaluations and champions."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import dagster as dg
import polars as pl
from dagster._core.errors import DagsterPipesExecutionError

from assets.contracts.canonical import tool_text
from assets.contracts.clear import firewall
from assets.contracts.snapshot import SNAPSHOTS
from assets.vectors.embed import BASE, Embedder
from assets.vectors.index import contract_of
from training.adapters import adapter_row, adapter_rules, adapter_table
from training.caller import CallerSettings, resolved_base
from training.champion import UNTRAINED, consider, in_service
from training.drift import DRIFT, drift_row, drift_state
from training.evaluate import (
    BASE_LABEL,
    RETRIEVER_EVALUATION,
    NothingToEvaluate,
    encoder,
    evaluate_retriever,
    recall_summary,
)
from training.evaluation.items import TestPlan
from training.evaluation.nightly import nightly_rows
from training.evaluation.predictors import CannotPredict
from training.evaluation.summary import call_summary
from training.evaluation.table import CALLER_EVALUATION
from training.gate import gates_table, weighed
from training.models import card, write_job
from training.offers import BadOffer
from training.retrain import RetrainPolicy, decide
from training.retriever import RetrieverSettings
from training.set_night import keep, make_set
from training.split import SPLITS, TEST, TRAIN
from training.state import last_adapter, set_name, set_rows
from training.training_set import TRAINING_SET
from warehouse.audit import Audit, Verdict, expect_one_of, expect_unique
from warehouse.digest import digest
from warehouse.effects.ledger import Outcome
from warehouse.lance import LanceStore
from warehouse.progress import Lines
from warehouse.publish import Published, audited, publish, publish_digest, refuse
from warehouse.store import Warehouse
from warehouse.tables import TableSpec, plan

ROOT = Path(__file__).resolve().parent.parent
Row = dict[str, Any]
Measure = Callable[[Sequence[Row], str, str], Row]
# The run's log shows the loss; progress bars and library notices would hide it.
QUIET = {
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TRANSFORMERS_VERBOSITY": "error",
    "PYTHONWARNINGS": "ignore",
    "TQDM_DISABLE": "1",
}
MEASURES = ("valid", "tool_ok", "ast_ok")


@dataclass(frozen=True)
class Trainer:
    """What is trained, for how long, and where."""

    retriever: RetrieverSettings = field(default_factory=RetrieverSettings)
    caller: CallerSettings = field(default_factory=CallerSettings)
    caller_base: str = "tiny"
    caller_test: TestPlan = field(default_factory=TestPlan)
    drift: RetrainPolicy = field(default_factory=RetrainPolicy)

    def job(self, role: str) -> tuple[str, Row]:
        """(base, hyper-parameters) of a role."""
        if role == "retriever":
            return BASE, asdict(self.retriever)
        return self.caller_base, asdict(self.caller)


@dg.asset(
    deps=["judgements", "pairs", "snapshots", "findings", "confusables"],
    group_name="training",
    check_specs=audited("training_set"),
    pool="lance",
    description="Accepted pairs of current contracts in their splits, with hard negatives.",
)
def training_set(
    context: dg.AssetExecutionContext,
    warehouse: dg.ResourceParam[Warehouse],
    embedder: dg.ResourceParam[Embedder],
) -> Published:
    night = make_set(warehouse, embedder)
    previous = warehouse.tables.read(TRAINING_SET)
    if not night.flaws:
        keep(warehouse, night, embedder)
    told = "; ".join(night.flaws[:3]) or "no flaw"
    yield from publish(
        context,
        warehouse,
        TRAINING_SET,
        night.frame,
        expectations=[expect_unique("pair_id"), expect_one_of("split", list(SPLITS))],
        rules=[Verdict("splits_leaks_and_contracts", not night.flaws, told)],
        plan=plan(_ids(previous), _ids(night.frame)),
        metadata=night.figures(),
    )


@dg.asset(
    deps=["training_set", "snapshots", "retriever_champion"],
    group_name="training",
    check_specs=audited("drift"),
    description="How far the contracts have moved since the last training, and whether to retrain.",
)
def drift(
    context: dg.AssetExecutionContext,
    warehouse: dg.ResourceParam[Warehouse],
    trainer: dg.ResourceParam[Trainer],
) -> Published:
    state = drift_state(warehouse)
    decision = decide(state, trainer.drift)
    yield from publish(
        context,
        warehouse,
        DRIFT,
        DRIFT.frame([drift_row(state, decision)]),
        metadata={
            "share": state.share,
            "retrain": decision.retrain,
            "reasons": "; ".join(decision.reasons),
        },
    )


def _adapter_asset(role: str, description: str) -> dg.AssetsDefinition:
    @dg.asset(
        name=f"{role}_adapter",
        deps=["training_set"],
        group_name="training",
        check_specs=audited(f"{role}_adapter"),
        pool="gpu",
        description=description,
    )
    def adapter(
        context: dg.AssetExecutionContext,
        warehouse: dg.ResourceParam[Warehouse],
        trainer: dg.ResourceParam[Trainer],
        pipes: dg.ResourceParam[dg.PipesSubprocessClient],
    ) -> Published:
        base, settings = trainer.job(role)
        yield from _train(context, warehouse, pipes, role, base, settings)

    return adapter


retriever_adapter = _adapter_asset(
    "retriever", "LoRA adapter of the embedder, trained on accepted pairs of the train servers."
)
caller_adapter = _adapter_asset(
    "caller", "LoRA adapter of a causal model that writes the call; the tiny base is made here."
)


@dg.asset(
    deps=["retriever_adapter", "training_set"],
    group_name="training",
    check_specs=audited("retriever_evaluation"),
    pool="lance",
    description="Rank of the right tool for each request of servers never trained on.",
)
def retriever_evaluation(
    context: dg.AssetExecutionContext, warehouse: dg.ResourceParam[Warehouse]
) -> Published:
    candidate = last_adapter(warehouse, "retriever")["model"]
    store = LanceStore(warehouse.home / "lance")
    labels = dict.fromkeys([BASE_LABEL, in_service(warehouse.home, "retriever").model, candidate])
    clear = firewall(warehouse).clear(warehouse.tables.read(SNAPSHOTS).to_dicts())
    texts = [tool_text(contract_of(row)) for row in clear]
    try:
        rows = evaluate_retriever(
            set_rows(warehouse, TEST),
            texts,
            {label: encoder(warehouse.home, label, store) for label in labels},
            set_name(warehouse),
        )
    except NothingToEvaluate as error:
        yield from refuse(context, warehouse, "retriever_evaluation", "test_items", error)
        return
    summary = recall_summary(rows, candidate)
    yield from publish(
        context,
        warehouse,
        RETRIEVER_EVALUATION,
        RETRIEVER_EVALUATION.frame(rows),
        expectations=[expect_unique("model", "pair_id")],
        metadata={
            "n": summary["n"],
            "recall_at_1_base": summary["recall_at_1"]["incumbent"]["value"],
            "recall_at_1": summary["recall_at_1"]["candidate"]["value"],
            "recall_at_5": summary["recall_at_5"]["candidate"]["value"],
            "summary": dg.MetadataValue.json(summary),
        },
    )


@dg.asset(
    deps=["caller_adapter", "training_set"],
    group_name="training",
    check_specs=audited("caller_evaluation"),
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
        yield from refuse(context, warehouse, "caller_evaluation", "test_items", error)
        return
    yield from publish(
        context,
        warehouse,
        CALLER_EVALUATION,
        CALLER_EVALUATION.frame(rows),
        expectations=[expect_unique("model", "item_id")],
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
    @dg.asset(
        name=f"{role}_champion",
        deps=[f"{role}_evaluation"],
        group_name="training",
        check_specs=audited(f"{role}_champion"),
        description=description,
    )
    def crowned(
        context: dg.AssetExecutionContext, warehouse: dg.ResourceParam[Warehouse]
    ) -> Published:
        last = last_adapter(warehouse, role)
        standing = in_service(warehouse.home, role)
        against = UNTRAINED[role] if standing.model == last["model"] else standing.model
        rows = warehouse.tables.read(spec).to_dicts()
        gates, summary = weighed(role, rows, last["model"], against, measure)
        made = consider(warehouse.home, role, last["model"], last["training_set"], gates, summary)
        now = made.champion.model
        yield from publish_digest(
            f"{role}_champion",
            digest({"role": role, "model": now}),
            Audit([Verdict("better_or_kept", True, made.why)]),
            model=now,
            promoted=made.promoted,
            why=made.why,
            gates=dg.MetadataValue.md(gates_table(made.gates)),
            serves=standing.told or "the champion",
        )

    return crowned


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


def _train(
    context: dg.AssetExecutionContext,
    warehouse: Warehouse,
    pipes: dg.PipesSubprocessClient,
    role: str,
    base: str,
    settings: Row,
) -> Published:
    """Trains in a process of its own, once per (role, base, set, settings); the ledger knows."""
    home, asset = warehouse.home, f"{role}_adapter"
    rows = set_rows(warehouse, TRAIN)
    if role == "caller":
        base = resolved_base(home, base, rows, CallerSettings(**settings))
    name, job = write_job(home, role, base, set_name(warehouse), settings, rows)

    def train() -> Outcome:
        pipes.run(
            context=context,
            command=[sys.executable, "-m", f"training.{role}_script", str(job)],
            cwd=str(ROOT),
            env=QUIET,
        )
        return Outcome(name.encode(), model=name)

    key = digest({"train": name})
    if card(home, name) is None:
        warehouse.ledger.forget(key)  # its product was lost, so the effect is due again
    try:
        warehouse.ledger.once(f"train:{role}", key, train)
    except DagsterPipesExecutionError as error:
        told = RuntimeError(f"{role} training failed; the run's log has its last words ({error})")
        yield from refuse(context, warehouse, asset, "training", told)
        return
    made = card(home, name) or {}
    spec = adapter_table(role)
    yield from publish(
        context,
        warehouse,
        spec,
        spec.frame([adapter_row(made)]),
        rules=adapter_rules(home, made),
        metadata={key: made[key] for key in ("pairs", "loss_first", "loss_last", "seconds")},
    )


def _ids(frame: pl.DataFrame) -> dict[str, str]:
    return dict(frame.select("pair_id", "contract_digest").iter_rows())
