"""One night by hand: the nightly runs, the fan-ins, training when drift asks, serving."""

import fcntl
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dagster as dg

from orchestration.definitions import build_defs
from orchestration.resources import enabled, open_warehouse
from orchestration.runs.console import terminal
from orchestration.runs.dead_runs import clear_dead_runs, process_tags
from orchestration.sensors import drift_decision
from orchestration.settings.model import Settings
from warehouse.store import Warehouse

_QUIET = {"loggers": {"console": {"config": {}}}}


class AnotherRun(RuntimeError):
    """A run is going on in the same data folder."""


@dataclass
class Night:
    """What a night did: seconds and success per run, and why it trained or did not."""

    runs: list[dict[str, Any]] = field(default_factory=list)
    retrained: bool = False
    reasons: list[str] = field(default_factory=list)
    cleared: int = 0

    @property
    def failed(self) -> list[dict[str, Any]]:
        return [run for run in self.runs if not run["success"]]


@contextmanager
def only_run(state: Path) -> Iterator[None]:
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


def run_night(
    settings: Settings,
    *,
    only: list[str] | None = None,
    resources: Mapping[str, Any] | None = None,
) -> Night:
    """Runs one night over the named marketplaces (default: all that are enabled).

    A marketplace that fails leaves its yesterday's data current and does not hold back the others.
    Raises AnotherRun, HomeUnavailable, LedgerUnavailable before anything starts.
    """
    warehouse = open_warehouse(settings)
    warehouse.check_writable()
    with only_run(warehouse.state), dg.DagsterInstance.get() as instance:
        runner = _Runner(build_defs(resources=resources, loggers={"console": terminal}), instance)
        runner.night.cleared = len(clear_dead_runs(instance))
        for name in only or enabled(settings):
            if not runner.execute("nightly", partition=name) and not runner.failed("listings"):
                # A crawl that failed has decided itself whether its pages are worth keeping.
                warehouse.ledger.close_night(name)
        runner.execute("fan_in")
        _train_if_asked(runner, warehouse, settings)
        runner.execute("serve")
        return runner.night


def _train_if_asked(runner: "_Runner", warehouse: Warehouse, settings: Settings) -> None:
    decision = drift_decision(warehouse, settings.training.drift_threshold)
    runner.night.reasons = list(decision.reasons)
    if decision.retrain:
        runner.night.retrained = runner.execute("train")


class _Runner:
    """Executes jobs in this process and keeps the night's account."""

    def __init__(self, defs: dg.Definitions, instance: dg.DagsterInstance) -> None:
        self._defs = defs
        self._instance = instance
        self._failed_steps: set[str] = set()
        self.night = Night()

    def failed(self, step: str) -> bool:
        """Whether a step of the last run failed."""
        return step in self._failed_steps

    def execute(self, job: str, partition: str | None = None) -> bool:
        started = time.monotonic()
        result = self._defs.resolve_job_def(job).execute_in_process(
            instance=self._instance,
            partition_key=partition,
            tags=process_tags(),
            run_config=_QUIET,
            raise_on_error=False,
        )
        self.night.runs.append(
            {
                "job": job,
                "partition": partition,
                "run_id": result.run_id,
                "success": result.success,
                "seconds": round(time.monotonic() - started, 1),
            }
        )
        events = result.all_events
        self._failed_steps = {str(event.step_key) for event in events if event.is_step_failure}
        if any(_interrupted(event) for event in events):
            raise KeyboardInterrupt
        return result.success


def _interrupted(event: dg.DagsterEvent) -> bool:
    """Dagster turns Ctrl-C into a failed step; here it ends the night."""
    error = event.step_failure_data.error if event.is_step_failure else None
    return error is not None and error.cls_name == "DagsterExecutionInterruptedError"
