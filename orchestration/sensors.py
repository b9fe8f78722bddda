"""The sensor that asks for retraining, thin over the pure
`training.drift.decide.decide_retraining`."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import dagster as dg
from dagster._core.definitions.run_request import InstigatorType

from orchestration.factories import make_embedder, make_trainer, open_warehouse
from orchestration.settings.load import load_settings
from training.drift.decide import Decision, Skip, decide_before_drift, decide_retraining
from warehouse.storage.digest import digest
from warehouse.store import Warehouse

if TYPE_CHECKING:
    from assets.vectors.embed import Embedder
    from training.policies import Trainer


def decide_on_drift(
    warehouse: Warehouse,
    trainer: "Trainer",
    failed_attempts: int = 0,
    embedder: "Callable[[], Embedder] | None" = None,
) -> Decision:
    """Whether to train now, from what the tables, the settings and the last candidates say. Drift
    is measured only where it decides, and read where the asset measured the same."""
    from training.drift.measure import measure_drift

    facts = trainer.read_facts(warehouse, failed_attempts)
    known, policy = (facts.trained_on, facts.last_run, facts.budget), trainer.drift
    if (early := decide_before_drift(*known, policy)) is not None:
        return early
    opened = embedder or (lambda: make_embedder(load_settings()))
    signals = measure_drift(trainer.open_sources(warehouse, facts, opened), policy)
    return decide_retraining(signals, facts.accepted_new, *known, policy)


@dg.sensor(
    job_name="train",
    minimum_interval_seconds=60,
    description="Asks for training when the contracts have drifted from what was last trained on.",
)
def retrain_on_drift(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
    asked = find_training_request(context.instance)
    if isinstance(asked, dg.SkipReason):
        return asked
    return dg.SensorResult(run_requests=[asked])


def find_training_request(instance: dg.DagsterInstance) -> dg.RunRequest | dg.SkipReason:
    """The training that is due now, or why none is."""
    settings = load_settings()
    warehouse = open_warehouse(settings)
    head = warehouse.tables.head("training_set")
    if head is None:
        return dg.SkipReason("no training set yet")
    trainer = make_trainer(settings)
    recipe = digest(trainer.list_recipes())[:8]
    tag = {"toolmill/training_set": head.digest, "toolmill/recipe": recipe}
    runs = instance.get_runs(dg.RunsFilter(job_name="train", tags=tag))
    failed = sum(run.status is dg.DagsterRunStatus.FAILURE for run in runs)
    decision = decide_on_drift(warehouse, trainer, failed)
    if isinstance(decision, Skip):
        return dg.SkipReason("; ".join(decision.why))
    # A run_key also blocks retrying a failed run, so the attempt is part of it.
    return dg.RunRequest(run_key=f"{head.digest}/{recipe}/{failed}", tags=tag)


def is_training_due(instance: dg.DagsterInstance) -> bool:
    """Whether `retrain_on_drift` is on and its next tick asks for a training, or one is starting.

    One that a person cancelled is not asked for again, so nothing waits for it.
    """
    sensors = instance.all_instigator_state(instigator_type=InstigatorType.SENSOR)
    if not any(one.name == retrain_on_drift.name and one.is_running for one in sensors):
        return False
    asked = find_training_request(instance)
    if isinstance(asked, dg.SkipReason):
        return False
    runs = instance.get_runs(dg.RunsFilter(job_name="train", tags=asked.tags))
    ended = {dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.CANCELED}
    return not any(run.status in ended for run in runs)
