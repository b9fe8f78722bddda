"""Asset definitions of the training set, drift and the adapters."""

from pathlib import Path
from typing import Any, Protocol

import dagster as dg
from dagster._core.errors import DagsterPipesExecutionError

from assets.vectors.embed import Embedder
from extensions.publishing.cards.model_card import write_card
from extensions.sidecar.data.read import open_drafter, read_revision_rows
from extensions.sidecar.rows import write_row
from training.caller.train import resolve_base
from training.drift.contract_moves import count_moves
from training.drift.decide import Retrain, decide_retraining
from training.drift.drift import DRIFT, make_drift_rows, read_drift_history
from training.drift.measure import measure_drift
from training.evaluation.predictors.interface import CannotPredict
from training.last_run import set_name, set_rows
from training.policies import Trainer
from training.reporting.drift_page import make_drift_page, render_drift_table
from training.retriever.train import resolve_retriever_base
from training.runtime.adapter_table import (
    check_adapter_rules,
    make_adapter_metadata,
    make_adapter_row,
    make_adapter_table,
)
from training.runtime.model_store import TrainingFailed, read_model_card, write_job
from training.sets.build import find_too_few_servers, make_set, save_built_set
from training.sets.pool import BadOffer, load_pool
from training.sets.split import SPLITS, TRAIN
from training.sets.training_set import TRAINING_SET
from warehouse.audit import Verdict, expect_one_of, expect_unique
from warehouse.ledger.attempts import Outcome
from warehouse.publish import (
    Published,
    audit_table,
    describe_asset,
    publish,
    refuse,
    skip_version,
)
from warehouse.storage.digest import digest
from warehouse.store import Warehouse

# Role -> the package of its training script.
_PACKAGES = {
    "retriever": "training.retriever",
    "caller": "training.caller",
    "sidecar": "extensions.sidecar",
}


class Scripts(Protocol):
    """Where training scripts run; `orchestration/pipes.py` has one for each place."""

    def launch(self, context: Any, script: str, job: Path) -> dict[str, Any]: ...


TRAINING_SET_AUDIT = audit_table(
    TRAINING_SET,
    [expect_unique("pair_id"), expect_one_of("split", list(SPLITS))],
    rules=["splits_leaks_and_contracts"],
)
DRIFT_AUDIT = audit_table(DRIFT, rules=["share_in_range"])


@dg.asset(
    **describe_asset(TRAINING_SET_AUDIT, "training/sets"),
    deps=["judgements", "pairs", "clear_contracts", "confusables", "executions", "catalogue"],
    group_name="training",
    pool="lance",
    description="Accepted pairs of current contracts in their splits, with hard negatives.",
    output_required=False,
)
def training_set(
    context: dg.AssetExecutionContext,
    warehouse: dg.ResourceParam[Warehouse],
    embedder: dg.ResourceParam[Embedder],
    trainer: dg.ResourceParam[Trainer],
) -> Published:
    made = make_set(warehouse, embedder, trainer.split)
    if made.flaws and (why := find_too_few_servers(warehouse)):
        yield from skip_version(context, warehouse, TRAINING_SET_AUDIT, why)
        return
    if not made.flaws:
        save_built_set(warehouse, made, embedder)
    flaws = "; ".join(made.flaws[:3]) or "no flaw"
    yield from publish(
        context,
        warehouse,
        TRAINING_SET_AUDIT,
        made.frame,
        rules=[Verdict("splits_leaks_and_contracts", not made.flaws, flaws)],
        metadata=made.get_figures(),
    )


@dg.asset(
    **describe_asset(
        DRIFT_AUDIT,
        "training/drift",
        "training/reporting/drift_page.py",
        kinds={"polars", "parquet", "matplotlib"},
    ),
    deps=["training_set", "clear_contracts", "contract_changes", "contract_vectors", "judgements"],
    group_name="training",
    pool="lance",
    description="What has moved since the last training: signals with their tests, and whether to"
    " retrain.",
)
def drift(
    context: dg.AssetExecutionContext,
    warehouse: dg.ResourceParam[Warehouse],
    embedder: dg.ResourceParam[Embedder],
    trainer: dg.ResourceParam[Trainer],
) -> Published:
    facts = trainer.read_facts(warehouse)
    sources = trainer.open_sources(warehouse, facts, lambda: embedder)
    signals = measure_drift(sources, trainer.drift)
    decision = decide_retraining(signals, *facts.as_arguments(), trainer.drift)
    rows = make_drift_rows(signals, count_moves(sources.then, sources.now), facts, decision)
    odd = [row["signal"] for row in rows if not -1 <= (row["value"] or 0) <= 1]
    yield from publish(
        context,
        warehouse,
        DRIFT_AUDIT,
        DRIFT.frame(rows),
        rules=[Verdict("share_in_range", not odd, ", ".join(odd) or "every value", "-1 to 1")],
        metadata={
            "retrain": isinstance(decision, Retrain),
            "reasons": "; ".join(decision.why),
            "fired": ", ".join(signal.name for signal in signals if signal.fired) or "none",
            "signals": render_drift_table(rows),
            "history": make_drift_page(read_drift_history(warehouse.tables), rows, warehouse.home),
        },
    )


def _build_adapter_asset(role: str, description: str) -> Any:
    spec = make_adapter_table(role)
    checked = audit_table(
        spec, rules=["training", "loss_is_a_number", "loss_fell", "adapter_loads"]
    )

    @dg.asset(
        **describe_asset(
            checked, _PACKAGES[role].replace(".", "/"), kinds={"pytorch", "huggingface"}
        ),
        deps=["training_set"],
        group_name="training",
        pool="gpu",
        description=description,
    )
    def adapter(
        context: dg.AssetExecutionContext,
        warehouse: dg.ResourceParam[Warehouse],
        trainer: dg.ResourceParam[Trainer],
        scripts: dg.ResourceParam[Scripts],
    ) -> Published:
        try:
            name, job = _write_job(warehouse, trainer, role)
            made = _train_once(context, warehouse, scripts, role, name, job)
        except (DagsterPipesExecutionError, TrainingFailed, BadOffer, CannotPredict) as error:
            failure = RuntimeError(
                f"{role} training failed; its last words are in the log ({error})"
            )
            yield from refuse(context, warehouse, checked, "training", failure)
            return
        yield from publish(
            context,
            warehouse,
            checked,
            spec.frame([make_adapter_row(made)]),
            rules=check_adapter_rules(warehouse.home, made),
            metadata=make_adapter_metadata(made),
        )

    return adapter


retriever_adapter = _build_adapter_asset(
    "retriever", "LoRA adapter of the embedder, trained on accepted pairs of the train split."
)
caller_adapter = _build_adapter_asset(
    "caller",
    "LoRA adapter of a causal model that writes the call; default base: the shipped tiny one.",
)
sidecar_adapter = _build_adapter_asset(
    "sidecar",
    "LoRA adapter of a causal model that revises what the repair ladder leaves; default base: the"
    " shipped tiny one.",
)


def _write_job(warehouse: Warehouse, trainer: Trainer, role: str) -> tuple[str, Path]:
    """(model name, file of the job): everything a training script needs."""
    home, of_set = warehouse.home, set_name(warehouse)
    base, settings = trainer.get_role_job(role)
    if role == "sidecar":
        chosen, drafter = trainer.sidecar, open_drafter(warehouse, trainer.drafter)
        drafts = read_revision_rows(
            warehouse, [TRAIN], chosen.rows, candidates=chosen.candidates, drafter=drafter
        )
        data = digest([draft.row_id for draft in drafts])
        rows = list(map(write_row, drafts))
        return write_job(home, role, resolve_base(base), of_set, settings, rows, data=data)
    pool = load_pool(home, of_set)
    if role == "retriever":
        rows = set_rows(warehouse, TRAIN)
        return write_job(home, role, resolve_retriever_base(base), of_set, settings, rows, pool)
    rows = set_rows(warehouse, TRAIN, tasks=None)
    return write_job(home, role, resolve_base(base), of_set, settings, rows, pool)


def _train_once(
    context: dg.AssetExecutionContext,
    warehouse: Warehouse,
    scripts: Scripts,
    role: str,
    name: str,
    job: Path,
) -> dict[str, Any]:
    """The model's card; trains once per (role, base, set, settings), as the ledger knows."""

    def train() -> Outcome:
        scripts.launch(context, f"{_PACKAGES[role]}.script", job)
        return Outcome(name.encode(), model=name)

    key = digest({"train": name})
    if read_model_card(warehouse.home, name) is None:
        warehouse.ledger.forget(key)  # its product was lost, so the effect is due again
    warehouse.ledger.once(f"train:{role}", key, train)
    write_card(warehouse.home, name)
    return read_model_card(warehouse.home, name) or {}
