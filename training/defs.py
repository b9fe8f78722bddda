"""Assets of the training set, of drift, and (`build_role_assets`, for extensions too) of every
role."""

from collections.abc import Mapping
from typing import Any

import dagster as dg
from dagster._core.errors import DagsterPipesExecutionError

from assets.vectors.encoders.embedder import BadEmbedder, Embedder
from assets.vectors.encoders.weights import BadAdapter
from training.adapter_table import (
    ADAPTER_RULES,
    ITEM_RULES,
    NotTrained,
    check_adapter_rules,
    make_adapter_metadata,
    make_adapter_row,
    make_adapter_table,
    read_last_adapter,
)
from training.core_roles import CALLER_ASSETS, RETRIEVER_ASSETS
from training.drift.decide import describe_decisions, list_due_roles
from training.drift.drift import DRIFT, make_drift_rows, render_drift_table
from training.drift.measure import measure_drift
from training.evaluation.predictor import CannotPredict
from training.evaluation.retriever import NothingToEvaluate
from training.gates import render_gates_table
from training.policies import TrainerPolicy
from training.releases.in_service import find_model_in_service
from training.role import RETRIEVER, Summarise
from training.role_steps import RoleAssets, RoleStep, StepSpec, judge_candidate
from training.runtime.model_store import TrainingFailed
from training.sets.build import find_too_few_servers, make_set, save_built_set
from training.sets.pool import BadOffer
from training.sets.split import SPLITS
from training.sets.training_set import TRAINING_SET
from warehouse.audit import AuditVerdict
from warehouse.publish import (
    AssetAudit,
    Published,
    audit_table,
    describe_asset,
    make_markdown_metadata,
    publish,
    publish_digest,
    refuse,
    skip_version,
)
from warehouse.storage.digest import digest
from warehouse.storage.tables import TableSpec
from warehouse.store import Warehouse

TRAINING_SET_AUDIT = audit_table(TRAINING_SET, {"split": SPLITS})
DRIFT_AUDIT = audit_table(DRIFT)


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
    trainer: dg.ResourceParam[TrainerPolicy],
) -> Published:
    built = make_set(warehouse, embedder, trainer.split)
    if built.flaws and (why := find_too_few_servers(warehouse)):
        yield from skip_version(context, warehouse, TRAINING_SET_AUDIT, why)
        return
    if not built.flaws:
        save_built_set(warehouse, built, embedder)
    flaws = "; ".join(built.flaws[:3]) or "no flaw"
    yield from publish(
        context,
        warehouse,
        TRAINING_SET_AUDIT,
        built.frame,
        rules=[AuditVerdict("splits_leaks_and_contracts", not built.flaws, flaws)],
        metadata=built.get_figures(),
    )


@dg.asset(
    **describe_asset(DRIFT_AUDIT, "training/drift"),
    deps=["training_set", "clear_contracts", "contract_changes", "contract_vectors"],
    group_name="training",
    pool="lance",
    description="What has moved since the last training: signals with their tests, and whether to"
    " retrain.",
)
def drift(
    context: dg.AssetExecutionContext,
    warehouse: dg.ResourceParam[Warehouse],
    embedder: dg.ResourceParam[Embedder],
    trainer: dg.ResourceParam[TrainerPolicy],
) -> Published:
    evidence = trainer.read_evidence(warehouse)
    trained_on = evidence.roles[RETRIEVER].trained_on or ""
    sources = trainer.open_sources(warehouse, trained_on, lambda: embedder)
    signals = measure_drift(sources, trainer.drift)
    decisions = trainer.decide(warehouse, evidence, lambda: embedder)
    rows = make_drift_rows(signals, evidence, decisions)
    odd = [row["signal"] for row in rows if not -1 <= (row["value"] or 0) <= 1]
    yield from publish(
        context,
        warehouse,
        DRIFT_AUDIT,
        DRIFT.frame(rows),
        rules=[AuditVerdict("share_in_range", not odd, ", ".join(odd) or "every value", "-1 to 1")],
        metadata={
            "retrain": ", ".join(list_due_roles(decisions)) or "no role",
            "reasons": "; ".join(describe_decisions(decisions)),
            "fired": ", ".join(signal.name for signal in signals if signal.fired) or "none",
            "signals": render_drift_table(rows),
        },
    )


_CANNOT_TRAIN = (DagsterPipesExecutionError, TrainingFailed, BadOffer, CannotPredict)
_CANNOT_EVALUATE = (NothingToEvaluate, CannotPredict, BadOffer, BadAdapter, BadEmbedder)


def build_role_assets(spec: RoleAssets) -> tuple[Any, Any, Any]:
    """`<role>_adapter`, `<role>_evaluation` and `<role>_champion`."""
    champion = build_champion(spec.role, spec.table, spec.summarise, spec.champion)
    return _build_adapter(spec), _build_evaluation(spec), champion


def _build_adapter(spec: RoleAssets) -> Any:
    role, table = spec.role, make_adapter_table(spec.role)
    audit = audit_table(table, rules=ADAPTER_RULES)

    @dg.asset(
        **_describe_step(audit, spec.adapter),
        required_resource_keys={"warehouse", "trainer", *spec.adapter.resources},
    )
    def adapter(context: dg.AssetExecutionContext) -> Published:
        step = _open_step(context, role)
        warehouse = step.warehouse
        try:
            card = spec.train(step)
        except _CANNOT_TRAIN as error:
            failure = RuntimeError(
                f"{role} training failed; its last words are in the log ({error})"
            )
            yield from refuse(context, warehouse, audit, "training", failure)
            return
        if isinstance(card, str):
            rows, metadata = [], {"learnt": card}
            verdicts = [AuditVerdict(rule, True, card) for rule in ADAPTER_RULES]
        else:
            rows, metadata = [make_adapter_row(card)], make_adapter_metadata(card)
            verdicts = check_adapter_rules(warehouse.home, card)
        yield from publish(
            context, warehouse, audit, table.frame(rows), rules=verdicts, metadata=metadata
        )

    return adapter


def _build_evaluation(spec: RoleAssets) -> Any:
    audit = audit_table(spec.table, rules=ITEM_RULES)

    @dg.asset(
        **_describe_step(audit, spec.evaluation),
        required_resource_keys={"warehouse", "trainer", *spec.evaluation.resources},
    )
    def evaluation(context: dg.AssetExecutionContext) -> Published:
        step = _open_step(context, spec.role)
        try:
            measured = spec.evaluate(step)
        except _CANNOT_EVALUATE as error:
            yield from refuse(context, step.warehouse, audit, "test_items", error)
            return
        differences = measured.found
        yield from publish(
            context,
            step.warehouse,
            audit,
            spec.table.frame(measured.rows),
            rules=[AuditVerdict("test_items", True, differences)] if differences else [],
            metadata={**measured.figures, "summary": dg.MetadataValue.json(dict(measured.summary))},
        )

    return evaluation


def build_champion(role: str, table: TableSpec, summarise: Summarise, description: str) -> Any:
    """`<role>_champion`, over the rows of the role's evaluation table."""
    audit = AssetAudit(
        f"{role}_champion",
        rules={"better_or_kept": "The candidate passes every gate, or the champion stays."},
    )

    @dg.asset(
        **describe_asset(audit, "training/releases", "training/gates.py"),
        deps=[f"{role}_evaluation"],
        group_name="training",
        description=description,
    )
    def champion(
        context: dg.AssetExecutionContext,
        warehouse: dg.ResourceParam[Warehouse],
        trainer: dg.ResourceParam[TrainerPolicy],
    ) -> Published:
        home, serving = warehouse.home, find_model_in_service(warehouse.home, role)
        try:
            last = read_last_adapter(warehouse, role)
        except NotTrained as error:
            verdicts = [AuditVerdict("better_or_kept", True, "there is no candidate yet")]
            yield from publish_digest(
                audit,
                digest({"role": role, "model": serving.model}),
                verdicts,
                model=serving.model,
                promoted=False,
                why=str(error),
            )
            return
        rows = warehouse.tables.read(table).to_dicts()
        by_hand = role in trainer.promotion.by_hand
        promotion = judge_candidate(
            home, role, last, serving.model, rows, summarise, by_hand=by_hand
        )
        model = promotion.champion.model
        yield from publish_digest(
            audit,
            digest({"role": role, "model": model}),
            [AuditVerdict("better_or_kept", True, promotion.why)],
            model=model,
            promoted=promotion.promoted,
            waiting=promotion.waiting,
            why=promotion.why,
            gates=make_markdown_metadata(render_gates_table(promotion.gates)),
            serves=serving.notice or "the champion",
        )

    return champion


def _describe_step(audit: AssetAudit, spec: StepSpec) -> Mapping[str, Any]:
    return {
        **describe_asset(audit, *spec.sources, kinds=spec.kinds),
        "deps": list(spec.deps),
        "group_name": "training",
        "pool": spec.pool,
        "description": spec.description,
    }


def _open_step(context: dg.AssetExecutionContext, role: str) -> RoleStep:
    resources = context.resources
    return RoleStep(
        role,
        resources.warehouse,
        resources.trainer,
        resources,
        context.log.info,
        lambda script, job: resources.scripts.launch(context, script, job),
    )


retriever_adapter, retriever_evaluation, retriever_champion = build_role_assets(RETRIEVER_ASSETS)
caller_adapter, caller_evaluation, caller_champion = build_role_assets(CALLER_ASSETS)
