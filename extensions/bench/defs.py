"""Asset definition of the ablations: trains every arm on the same held-out items."""

import dagster as dg

from assets.vectors.encoders.embedder import Embedder
from extensions.bench.ablation_run import (
    ABLATIONS,
    build_ablation_sets,
    choose_ablation_settings,
    run_ablations,
)
from extensions.bench.ablation_table import render_ablation_table, summarise_ablations
from training.evaluation.retriever import NothingToEvaluate
from training.policies import TrainerPolicy
from training.runtime.model_store import TrainingFailed
from training.runtime.script_frame import LossLines
from warehouse.progress import ProgressLines
from warehouse.publish import (
    Published,
    audit_table,
    describe_asset,
    make_markdown_metadata,
    publish,
    refuse,
)
from warehouse.store import Warehouse

ABLATIONS_AUDIT = audit_table(
    ABLATIONS, rules={"arms": "Every arm was trained and measured on the same requests."}
)


@dg.asset(
    **describe_asset(
        ABLATIONS_AUDIT, "extensions/bench/ablation_run.py", kinds={"polars", "pytorch"}
    ),
    deps=["pairs", "judgements", "training_set"],
    group_name="training",
    pool="gpu",
    description="What filtering, hard distractors and evolution are each worth, measured.",
)
def ablations(
    context: dg.AssetExecutionContext,
    warehouse: dg.ResourceParam[Warehouse],
    embedder: dg.ResourceParam[Embedder],
    trainer: dg.ResourceParam[TrainerPolicy],
) -> Published:
    lines = LossLines(context.log.info, "ablations")
    sets = build_ablation_sets(warehouse, embedder, trainer.split)
    try:
        rows = run_ablations(
            warehouse.home,
            sets,
            choose_ablation_settings(trainer),
            ProgressLines(context.log.info),
            lambda step: lines(dict(step)),
        )
    except (NothingToEvaluate, TrainingFailed) as error:
        yield from refuse(context, warehouse, ABLATIONS_AUDIT, "arms", error)
        return
    yield from publish(
        context,
        warehouse,
        ABLATIONS_AUDIT,
        ABLATIONS.frame(rows),
        metadata={
            "table": make_markdown_metadata(render_ablation_table(summarise_ablations(rows)))
        },
    )
