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
from assets.contracts.clear import contract_key, firewall
from assets.contracts.snapshot import SNAPSHOTS
from assets.synthesis.rows import JUDGEMENTS, PAIRS, accepted
from assets.vectors.confusables import CONFUSABLES, hard_negatives
from assets.vectors.embed import BASE, Embedder
from assets.vectors.index import contract_of, embed_texts
from training.adapters import adapter_row, adapter_rules, adapter_table
from training.caller import CallerSettings, resolved_base
from training.champion import UNTRAINED, champion, consider
from training.drift import DRIFT, drift_row, drift_state
from training.evaluate import (
    BASE_LABEL,
    RETRIEVER_EVALUATION,
    NothingToEvaluate,
    encoder,
    evaluate_retriever,
    recall_summary,
)
from training.evaluate_caller import (
    BASELINE,
    CALLER_EVALUATION,
    CallerTest,
    call_summary,
    evaluate_callers,
)
from training.models import card, write_job
from training.retrain import RetrainPolicy, decide
from training.retriever import RetrieverSettings
from training.split import TEST, TRAIN
from training.state import last_adapter, set_name, set_rows
from training.training_set import (
    TRAINING_SET,
    build_training_set,
    load_manifest,
    manifest,
    save_manifest,
    set_flaws,
)
from warehouse.audit import Audit, Verdict, expect_one_of, expect_unique
from warehouse.digest import digest
from warehouse.effects.ledger import Outcome
from warehouse.lance import LanceStore
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
    caller_test: CallerTest = field(default_factory=CallerTest)
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
    description="Accepted pairs of current contracts, split by server, with hard negatives.",
)
def training_set(
    context: dg.AssetExecutionContext,
    warehouse: dg.ResourceParam[Warehouse],
    embedder: dg.ResourceParam[Embedder],
) -> Published:
    tables, store = warehouse.tables, LanceStore(warehouse.home / "lance")
    chosen = accepted(tables.read(PAIRS).to_dicts(), tables.read(JUDGEMENTS).to_dicts())
    contracts = tables.read(SNAPSHOTS).unique(["server_id", "tool"], keep="first").to_dicts()
    wall = firewall(warehouse)
    _, kept_out = wall.part(contracts)
    held = {(row["server_id"], row["tool"]) for row in kept_out}
    bought = wall.aliases.as_bought(contracts, chosen)
    made = build_training_set(
        chosen,
        bought,
        lambda texts: embed_texts(texts, embedder, store),
        held={contract_key(row) for row in bought if (row["server_id"], row["tool"]) in held},
        hard=hard_negatives(tables.read(CONFUSABLES).to_dicts()),
    )
    frame = TRAINING_SET.frame(made.rows)
    name = TRAINING_SET.digest(frame)
    flaws = set_flaws(made.rows)
    previous = tables.read(TRAINING_SET)
    if not flaws and load_manifest(warehouse.home, name) is None:
        # Kept before the pointer moves: a set without its manifest cannot be compared with.
        lance = store.tag(f"training-set-{name[:16]}") if made.rows else None
        save_manifest(
            warehouse.home, manifest(made, name, embedder=embedder.id, lance_version=lance)
        )
    yield from publish(
        context,
        warehouse,
        TRAINING_SET,
        frame,
        expectations=[expect_unique("pair_id"), expect_one_of("split", [TRAIN, TEST])],
        rules=[Verdict("splits_and_negatives", not flaws, "; ".join(flaws[:3]) or "no flaw")],
        plan=plan(_ids(previous), _ids(frame)),
        metadata={
            "train": len(frame.filter(pl.col("split") == TRAIN)),
            "test": len(frame.filter(pl.col("split") == TEST)),
            "dropped": made.dropped,
        },
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
    labels = dict.fromkeys([BASE_LABEL, champion(warehouse.home, "retriever").model, candidate])
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
    description="Tool and AST of the caller on servers never trained on, beside BM25 + slots.",
)
def caller_evaluation(
    context: dg.AssetExecutionContext,
    warehouse: dg.ResourceParam[Warehouse],
    trainer: dg.ResourceParam[Trainer],
) -> Published:
    candidate = last_adapter(warehouse, "caller")["model"]
    incumbent = champion(warehouse.home, "caller").model
    models = [name for name in dict.fromkeys([incumbent, candidate]) if name != BASELINE]
    try:
        rows = evaluate_callers(
            set_rows(warehouse, TEST),
            warehouse.home,
            models,
            set_name(warehouse),
            trainer.caller_test,
        )
    except NothingToEvaluate as error:
        yield from refuse(context, warehouse, "caller_evaluation", "test_items", error)
        return
    summary = call_summary(rows, candidate)
    yield from publish(
        context,
        warehouse,
        CALLER_EVALUATION,
        CALLER_EVALUATION.frame(rows),
        expectations=[expect_unique("model", "pair_id")],
        metadata={
            "n": summary["n"],
            **{
                name: summary[name]["candidate"]["value"] for name in ("valid", "tool_ok", "ast_ok")
            },
            "baseline_ast": summary["ast_ok"]["incumbent"]["value"],
            "summary": dg.MetadataValue.json(summary),
        },
    )


def _champion_asset(role: str, spec: TableSpec, measure: Measure, gain: str, description: str):
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
        incumbent = champion(warehouse.home, role).model
        against = UNTRAINED[role] if incumbent == last["model"] else incumbent
        summary = measure(warehouse.tables.read(spec).to_dicts(), last["model"], against)
        made = consider(
            warehouse.home, role, last["model"], last["training_set"], summary[gain], summary
        )
        now = made.champion.model
        yield from publish_digest(
            f"{role}_champion",
            digest({"role": role, "model": now}),
            Audit([Verdict("better_or_kept", True, made.why)]),
            model=now,
            promoted=made.promoted,
            why=made.why,
        )

    return crowned


retriever_champion = _champion_asset(
    "retriever",
    RETRIEVER_EVALUATION,
    recall_summary,
    "gain_at_1",
    "The best retriever so far; a candidate must be better beyond its interval.",
)
caller_champion = _champion_asset(
    "caller",
    CALLER_EVALUATION,
    call_summary,
    "gain",
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
