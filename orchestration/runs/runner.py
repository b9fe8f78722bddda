"""Executes jobs in this process and keeps what they came to."""

import time
from dataclasses import asdict, dataclass, field
from typing import Any

import dagster as dg

from orchestration.definitions import build_defs
from orchestration.runs.console import name_partition, terminal
from orchestration.runs.dead_runs import make_process_tags

_QUIET = {"loggers": {"console": {"config": {}}}}


@dataclass(frozen=True)
class Outcome:
    """What one run of a job came to."""

    job: str
    partition: str | None
    run_id: str
    success: bool
    seconds: float
    failed_steps: list[str] = field(default_factory=list)
    interrupted: bool = False

    def as_row(self) -> dict[str, Any]:
        return asdict(self)


class Runner:
    """The code location and the instance its runs are recorded in."""

    def __init__(self, instance: dg.DagsterInstance) -> None:
        self._defs = build_defs(loggers={"console": terminal})
        self._instance = instance

    def execute(self, job: str, partition: str | None = None) -> Outcome:
        """Runs a job to its end; a failed step is in the outcome, not raised."""
        started = time.monotonic()
        name_partition(partition)
        result = self._defs.resolve_job_def(job).execute_in_process(
            instance=self._instance,
            partition_key=partition,
            tags=make_process_tags(),
            run_config=_QUIET,
            raise_on_error=False,
        )
        failures = [event for event in result.all_events if event.is_step_failure]
        return Outcome(
            job,
            partition,
            result.run_id,
            result.success,
            round(time.monotonic() - started, 1),
            [str(event.step_key) for event in failures],
            any(_is_interruption(event) for event in failures),
        )


def _is_interruption(event: dg.DagsterEvent) -> bool:
    """Whether Ctrl-C ended the step: Dagster turns it into a failed one."""
    error = event.step_failure_data.error
    return error is not None and error.cls_name == "DagsterExecutionInterruptedError"
