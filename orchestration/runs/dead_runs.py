"""What a killed run leaves behind in Dagster, and how the next entry clears it.

A run killed with SIGKILL stays STARTED and holds its slot: the next one was seen to spin on
"Step blocked by limit" for ten minutes. So every entry clears the dead first (3 s).
"""

import os
import platform

import dagster as dg

from warehouse.process_identity import identify_process

# Hidden from the UI's list of runs by its prefix. A run that the daemon started has no such tag:
# the daemon watches it.
PROCESS_TAG = ".dagster/toolmill_process"
UNFINISHED = [dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED]


def make_process_tags() -> dict[str, str]:
    """The tag that says which process carries a run out, as "pid@start@host": a pid is reused, and
    several hosts may keep their runs in one Postgres."""
    return {PROCESS_TAG: f"{os.getpid()}@{identify_process()}@{platform.node()}"}


def clear_dead_runs(instance: dg.DagsterInstance) -> list[str]:
    """Fails runs of this host whose process is dead, frees their pool slots, and returns their
    ids."""
    cleared = []
    for run in instance.get_runs(dg.RunsFilter(statuses=UNFINISHED)):
        if find_run_process(run) is not False:
            continue
        pid = run.tags[PROCESS_TAG].split("@")[0]
        instance.report_run_failed(run, message=f"process {pid} is gone: it was killed")
        instance.event_log_storage.free_concurrency_slots_for_run(run.run_id)
        cleared.append(run.run_id)
    return cleared


def find_run_process(run: dg.DagsterRun) -> bool | None:
    """Whether the process that carries a run out lives; None where this host cannot tell: the
    daemon started it, or another host."""
    if PROCESS_TAG not in run.tags:
        return None
    pid, identity, host = (*run.tags[PROCESS_TAG].split("@", 2), "", "")[:3]
    if host not in ("", platform.node()):  # "": of a version that did not name it
        return None
    return pid.isdecimal() and identify_process(int(pid)) == identity
