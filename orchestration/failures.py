"""What a killed run leaves behind in Dagster, and how the next entry clears it.

What belongs here: finding runs whose process is gone, failing them, freeing their pool slots.
What does not: domain state (the ledger finds its own dead attempts).

A run killed with SIGKILL stays STARTED and holds its slot: the next one was seen to spin on
"Step blocked by limit" for ten minutes. So every entry clears the dead first (3 s).
"""

import os
from collections.abc import Mapping

import dagster as dg
import psutil

PID_TAG = "toolmill/pid"
BORN_TAG = "toolmill/process_started"
# The tag Dagster's own default launcher writes: a run the daemon started is watched by the daemon.
_UNFINISHED = [dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED]


def process_tags() -> dict[str, str]:
    """Tags that say which process carries a run out; a pid alone may have been reused."""
    return {PID_TAG: str(os.getpid()), BORN_TAG: f"{psutil.Process().create_time():.2f}"}


def clear_dead_runs(instance: dg.DagsterInstance) -> list[str]:
    """Fails runs whose process is dead, frees their pool slots, and returns their ids."""
    cleared = []
    for run in instance.get_runs(dg.RunsFilter(statuses=_UNFINISHED)):
        if PID_TAG not in run.tags or _alive(run.tags):
            continue
        pid = run.tags[PID_TAG]
        instance.report_run_failed(run, message=f"process {pid} is gone: it was killed")
        instance.event_log_storage.free_concurrency_slots_for_run(run.run_id)
        cleared.append(run.run_id)
    return cleared


def _alive(tags: Mapping[str, str]) -> bool:
    try:
        process = psutil.Process(int(tags[PID_TAG]))
        return abs(process.create_time() - float(tags[BORN_TAG])) < 1
    except (psutil.NoSuchProcess, ValueError, KeyError):
        return False
