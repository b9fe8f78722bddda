"""One ad hoc run of everything: marketplaces, fan-ins, training when drift asks, serving."""

import fcntl
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import dagster as dg

from orchestration.factories import list_enabled, make_trainer, open_warehouse
from orchestration.runs.console import RunView, send_lines
from orchestration.runs.dead_runs import clear_dead_runs
from orchestration.runs.instance import explain_gone_postgres, open_instance, size_pools
from orchestration.runs.task import Outcome, Task
from orchestration.runs.workers import Workers
from orchestration.sensors import (
    ATTEMPT,
    count_failed_trainings,
    decide_on_drift,
    make_training_tags,
)
from orchestration.settings.model import Settings
from orchestration.settings.place import SUBPROCESS
from training.drift.decide import Decision, Retrain
from training.role import list_trained_roles
from warehouse.store import Warehouse


class AnotherRun(RuntimeError):
    """A run is going on in the same data folder."""


@dataclass
class RunResult:
    """What a run did: seconds and success per job, and why it trained or did not."""

    runs: list[dict[str, Any]] = field(default_factory=list)
    retrained: bool = False
    reasons: list[str] = field(default_factory=list)
    cleared: int = 0
    started: float = field(default_factory=time.monotonic)
    seconds: float = 0.0

    def add(self, outcome: Outcome) -> bool:
        """Notes a run's outcome and returns whether it succeeded; Ctrl-C in it ends everything."""
        self.runs.append(outcome.as_row())
        self.seconds = round(time.monotonic() - self.started, 1)
        if outcome.interrupted:
            raise KeyboardInterrupt
        return outcome.success

    def add_all(self, outcomes: Iterable[Outcome]) -> bool:
        """Notes them all and returns whether all succeeded."""
        succeeded = [self.add(outcome) for outcome in outcomes]
        return all(succeeded)

    @property
    def failed(self) -> list[dict[str, Any]]:
        return [run for run in self.runs if not run["success"]]


@contextmanager
def hold_run_lock(state: Path) -> Iterator[None]:
    """Holds the data folder's run lock. Raises AnotherRun naming the process that has it."""
    path = state / "run.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "unknown"
            raise AnotherRun(
                f"{state}: a run is going on (process {holder}); wait for it to end, or set"
                " TOOLMILL_HOME to another folder"
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def run_once(settings: Settings, *, only: list[str] | None = None) -> RunResult:
    """Runs everything once over the named marketplaces (default: all that are enabled).

    A marketplace that fails keeps its last data current and does not hold back the others.
    Raises AnotherRun, HomeUnavailable, LedgerUnavailable before anything starts.
    """
    warehouse = open_warehouse(settings)
    warehouse.check_writable()
    names = only or list_enabled(settings)
    with (
        hold_run_lock(warehouse.state),
        explain_gone_postgres(),
        open_instance() as instance,
        RunView().open() as view,
    ):
        send_lines(view.show)
        size_pools(instance)
        result = RunResult(cleared=len(clear_dead_runs(instance)))
        with Workers(instance, view.show) as workers:
            for outcome in workers.run(*(Task("nightly", partition=name) for name in names)):
                result.add(outcome)
                if not outcome.success and "listings" not in outcome.failed_steps:
                    # A crawl that failed has decided itself whether its pages are worth keeping.
                    warehouse.ledger.close_run(str(outcome.task.partition))
            result.add_all(workers.run(Task("fan_in")))
            decision, tags = _decide_on_training(settings, warehouse, instance)
            result.reasons = list(decision.why)
            if isinstance(decision, Retrain):
                tasks = [replace(task, tags=tags) for task in list_trainings(settings)]
                result.retrained = result.add_all(workers.run(*tasks))
            result.add_all(workers.run(Task("serve")))
        return result


def _decide_on_training(
    settings: Settings, warehouse: Warehouse, instance: dg.DagsterInstance
) -> tuple[Decision, tuple[tuple[str, str], ...]]:
    """Whether to train now, and the tags by which an attempt that fails is known again."""
    trainer, head = make_trainer(settings), warehouse.tables.head("training_set")
    tags = make_training_tags(head.digest if head else "", trainer)
    failed = count_failed_trainings(instance, tags)
    tags[ATTEMPT] = str(failed)
    return decide_on_drift(warehouse, trainer, failed), tuple(tags.items())


def list_trainings(settings: Settings) -> list[Task]:
    """One task a role where the processors train here; a GPU or another place takes one job."""
    from training.runtime.device import pick_device

    chosen, place = settings.training.device, settings.training.place
    if place.runs_on != SUBPROCESS or ("cuda" in (chosen, pick_device("auto")) and chosen != "cpu"):
        return [Task("train")]
    return [Task("train", role=role) for role in list_trained_roles()]
