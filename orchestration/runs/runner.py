"""Executes jobs in this process and keeps what they came to."""

import time
from collections.abc import Mapping
from typing import Any

import dagster as dg

from assets.partitions import SERVER_TAG
from orchestration.definitions import build_defs
from orchestration.runs.console import name_partition, terminal
from orchestration.runs.dead_runs import make_process_tags
from orchestration.runs.task import Outcome, Task
from orchestration.sensors import INTERRUPTED

_QUIET = {"loggers": {"console": {"config": {}}}}


class Runner:
    """The code location and the instance its runs are recorded in. resources: instead of those
    that the settings make."""

    def __init__(
        self, instance: dg.DagsterInstance, resources: Mapping[str, Any] | None = None
    ) -> None:
        self._defs = build_defs(resources=resources, loggers={"console": terminal})
        self._instance = instance

    def execute(self, task: Task) -> Outcome:
        """Runs a task to its end; a failed step is in the outcome, not raised."""
        started = time.monotonic()
        name_partition(task.partition)
        result = self._defs.resolve_job_def(task.job).execute_in_process(
            instance=self._instance,
            partition_key=task.partition,
            asset_selection=task.list_assets(),
            tags={
                **make_process_tags(),
                **dict(task.tags),
                **({SERVER_TAG: task.server} if task.server else {}),
            },
            run_config=_QUIET,
            raise_on_error=False,
        )
        failures = [event for event in result.all_events if event.is_step_failure]
        interrupted = any(_is_interruption(event) for event in failures)
        if interrupted:
            self._instance.add_run_tags(result.run_id, dict([INTERRUPTED]))
        return Outcome(
            task,
            result.run_id,
            result.success,
            round(time.monotonic() - started, 1),
            [str(event.step_key) for event in failures],
            interrupted,
        )


def _is_interruption(event: dg.DagsterEvent) -> bool:
    """Whether Ctrl-C ended the step: Dagster turns it into a failed one."""
    error = event.step_failure_data.error
    return error is not None and error.cls_name == "DagsterExecutionInterruptedError"
