"""Checks of Dagster's instance: it answers, and no run is started that nobody carries out."""

import os
from collections.abc import Iterator
from pathlib import Path

from extensions.upkeep.doctor.check import RUN, Finding, Home, Looked

_SILENT_S = 300.0  # after which a daemon that says nothing is none


def check_instance(at: Home) -> Looked:
    """Whether the instance can be asked, and every run that is under way has a process."""
    from orchestration.runs.instance import open_history
    from warehouse.errors import UnusableInput
    from warehouse.home import POSTGRES

    folder = Path(os.environ.get("DAGSTER_HOME") or at.state / "dagster")
    if not (folder / "dagster.yaml").is_file():
        return Looked(0)
    try:
        with open_history(folder) as instance:
            found = list(_list_dead_runs(instance, at.now))
            return Looked(instance.get_runs_count(), found)
    except UnusableInput as error:
        problem, _, fix = str(error).rpartition(": ")
        return Looked(1, [Finding(str(folder), problem, fix)])
    except Exception as error:  # Dagster's storages raise what their databases do
        reason = " ".join(str(error).split())[:200]
        if POSTGRES in os.environ:  # its words may hold the password
            reason = type(error).__name__
        fix = f"look at {folder}/dagster.yaml; a damaged history may be moved away: tables stay"
        return Looked(1, [Finding(str(folder), f"does not answer: {reason}", fix)])


def _list_dead_runs(instance: "object", now: float) -> Iterator[Finding]:
    """Runs that are under way by Dagster's word and by no process's."""
    import dagster as dg

    from orchestration.runs.dead_runs import PROCESS_TAG, UNFINISHED, find_run_process

    assert isinstance(instance, dg.DagsterInstance)
    beats = instance.get_daemon_heartbeats().values()
    watched = any(now - beat.timestamp < _SILENT_S for beat in beats)
    for run in instance.get_runs(dg.RunsFilter(statuses=UNFINISHED)):
        alive = find_run_process(run)
        if alive is False:
            problem = f"{run.status.value}, and its process is gone; it holds its slots"
            yield Finding(f"run {run.run_id[:8]}", problem, f"{RUN} clears it first")
        elif PROCESS_TAG not in run.tags and not watched:
            problem = f"{run.status.value}, and no daemon was seen that could carry it out"
            fix = "start `toolmill dev`, or mark it as failed there"
            yield Finding(f"run {run.run_id[:8]}", problem, fix)
