"""When runs start: the nightly schedule, and retraining on drift, a pure decision of `training`."""

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import dagster as dg
from dagster._core.definitions.run_request import InstigatorType

from orchestration.factories import list_enabled, make_embedder, make_trainer, open_warehouse
from orchestration.settings.load import load_settings
from training.drift.decide import Decision, describe_decisions, list_due_roles
from training.role import list_role_assets
from warehouse.storage.digest import digest
from warehouse.store import Warehouse

if TYPE_CHECKING:
    from training.policies import TrainerPolicy

ATTEMPT = "toolmill/attempt"  # of runs that are one attempt: its number
ROLES = "toolmill/roles"  # that a run trains
INTERRUPTED = ("toolmill/interrupted", "true")  # of a run that a person ended


def decide_on_drift(
    warehouse: Warehouse, trainer: "TrainerPolicy", failed_attempts: int = 0
) -> dict[str, Decision]:
    """Role -> whether it trains now, from what tables, settings and its last candidates say."""
    evidence = trainer.read_evidence(warehouse, failed_attempts)
    return trainer.decide(warehouse, evidence, lambda: make_embedder(load_settings()))


@dg.sensor(
    job_name="train",
    minimum_interval_seconds=60,
    description="Asks to train each role whose contracts have drifted since its last training.",
)
def retrain_on_drift(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
    training_request = find_training_request(context.instance)
    if isinstance(training_request, dg.SkipReason):
        return training_request
    return dg.SensorResult(run_requests=[training_request])


def find_training_request(instance: dg.DagsterInstance) -> dg.RunRequest | dg.SkipReason:
    settings = load_settings()
    warehouse = open_warehouse(settings)
    head = warehouse.tables.head("training_set")
    if head is None:
        return dg.SkipReason("no training set yet")
    trainer = make_trainer(settings)
    tags = make_training_tags(head.digest, trainer)
    failed = count_failed_trainings(instance, tags, trainer.drift.retry_days)
    decisions = decide_on_drift(warehouse, trainer, failed)
    roles = list_due_roles(decisions)
    if not roles:
        return dg.SkipReason("; ".join(describe_decisions(decisions)))
    # A run_key also blocks retrying a failed run, so the attempt is part of it.
    return dg.RunRequest(
        run_key="/".join([*tags.values(), str(failed), "+".join(roles)]),
        tags={**tags, ROLES: ",".join(roles)},
        asset_selection=[dg.AssetKey(name) for role in roles for name in list_role_assets(role)],
    )


def make_training_tags(training_set: str, trainer: "TrainerPolicy") -> dict[str, str]:
    recipe = digest(trainer.list_recipes())[:8]
    return {"toolmill/training_set": training_set, "toolmill/recipe": recipe}


def count_failed_trainings(instance: dg.DagsterInstance, tags: dict[str, str], days: float) -> int:
    """How many attempts at a training failed in so many days; runs of one attempt, a role each,
    count once, and those that a person ended not at all."""
    failed = dg.RunsFilter(
        job_name="train",
        tags=tags,
        statuses=[dg.DagsterRunStatus.FAILURE],
        created_after=datetime.now(UTC) - timedelta(days=days),
    )
    runs = [run for run in instance.get_runs(failed) if INTERRUPTED[0] not in run.tags]
    return len({run.tags.get(ATTEMPT, run.run_id) for run in runs})


def is_training_due(instance: dg.DagsterInstance) -> bool:
    """Whether `retrain_on_drift` is on and its next tick asks for a training, or one is starting.
    One that a person cancelled is not asked for again, so nothing waits for it."""
    sensors = instance.all_instigator_state(instigator_type=InstigatorType.SENSOR)
    if not any(sensor.name == retrain_on_drift.name and sensor.is_running for sensor in sensors):
        return False
    training_request = find_training_request(instance)
    if isinstance(training_request, dg.SkipReason):
        return False
    runs = instance.get_runs(dg.RunsFilter(job_name="train", tags=training_request.tags))
    ended = {dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.CANCELED}
    return not any(run.status in ended for run in runs)


@dg.schedule(
    cron_schedule="17 2 * * *",
    job_name="nightly",
    execution_timezone="UTC",
    description="One run per marketplace, every day at 02:17 UTC.",
)
def nightly_schedule(context: dg.ScheduleEvaluationContext) -> list[dg.RunRequest]:
    run_date = context.scheduled_execution_time.date().isoformat()
    return [
        dg.RunRequest(run_key=f"{run_date}/{name}", partition_key=name)
        for name in list_enabled(load_settings())
    ]
