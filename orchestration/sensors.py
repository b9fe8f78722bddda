"""The sensor that asks for retraining, thin over the pure
`training.drift.decide.decide_retraining`."""

from typing import TYPE_CHECKING

import dagster as dg

from orchestration.factories import make_trainer, open_warehouse
from orchestration.settings.load import load_settings
from training.drift.decide import Decision, decide_retraining
from training.drift.drift import read_drift_state
from warehouse.storage.digest import digest
from warehouse.store import Warehouse

if TYPE_CHECKING:
    from training.policies import Trainer

_FAILURE = [dg.DagsterRunStatus.FAILURE]


def decide_on_drift(warehouse: Warehouse, trainer: "Trainer", failed_attempts: int = 0) -> Decision:
    """Whether to train now, from what the tables, the settings and the last candidates say."""
    recipes = trainer.list_recipes()
    state = read_drift_state(warehouse, recipes, failed_attempts=failed_attempts)
    return decide_retraining(state, trainer.drift)


@dg.sensor(
    job_name="train",
    minimum_interval_seconds=60,
    description="Asks for training when the contracts have drifted from what was last trained on.",
)
def retrain_on_drift(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
    settings = load_settings()
    warehouse = open_warehouse(settings)
    head = warehouse.tables.head("training_set")
    if head is None:
        return dg.SkipReason("no training set yet")
    trainer = make_trainer(settings)
    recipe = digest(trainer.list_recipes())[:8]
    tag = {"toolmill/training_set": head.digest, "toolmill/recipe": recipe}
    runs = dg.RunsFilter(job_name="train", statuses=_FAILURE, tags=tag)
    failed = len(context.instance.get_runs(runs))
    decision = decide_on_drift(warehouse, trainer, failed)
    if not decision.retrain:
        return dg.SkipReason("; ".join(decision.reasons))
    # A run_key also blocks retrying a failed run, so the attempt is part of it.
    request = dg.RunRequest(run_key=f"{head.digest}/{recipe}/{failed}", tags=tag)
    return dg.SensorResult(run_requests=[request])
