"""Which runs are going on in a home, and since when: what they write is nobody's garbage yet."""

import fcntl
from collections.abc import Iterator
from pathlib import Path

import dagster as dg

from orchestration.runs.dead_runs import UNFINISHED, find_run_process
from warehouse.ledger.database import find_url
from warehouse.ledger.inspection import find_oldest_attempt

_COMING = [*UNFINISHED, dg.DagsterRunStatus.QUEUED, dg.DagsterRunStatus.NOT_STARTED]


def find_oldest_start(state: Path, instance: dg.DagsterInstance | None) -> float | None:
    """When the oldest run that goes on began (epoch seconds); None where none does."""
    return min(_list_starts(state, instance), default=None)


def _list_starts(state: Path, instance: dg.DagsterInstance | None) -> Iterator[float]:
    lock = state / "run.lock"
    if lock.exists() and _is_held(lock):
        yield lock.stat().st_mtime
    if (began := find_oldest_attempt(state / "ledger.db", find_url())) is not None:
        yield began
    for run in instance.get_run_records(dg.RunsFilter(statuses=_COMING)) if instance else ():
        if find_run_process(run.dagster_run) is not False:
            yield run.start_time or run.create_timestamp.timestamp()


def _is_held(lock: Path) -> bool:
    with lock.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
