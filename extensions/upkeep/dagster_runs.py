"""Dagster's finished runs that are old, and what of them must stay all the same.

The last materialization and the last check of each asset and partition hold its data version: with
its run deleted, `on_new_data` would take the asset for one that was never made.
"""

import fcntl
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import dagster as dg
from dagster._core.storage.event_log.sqlite.sqlite_event_log import SqliteEventLogStorage

from extensions.upkeep.garbage import GarbageItem
from orchestration.runs.instance import UNFINISHED, find_run_process
from warehouse.ledger.database import find_url
from warehouse.ledger.inspection import find_oldest_attempt

_ENDED = [dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED]
_MADE, _SEEN = dg.DagsterEventType.ASSET_MATERIALIZATION, dg.DagsterEventType.ASSET_OBSERVATION
_SLICE = 500  # storage ids of one question
SET_TAG = "toolmill/training_set"  # of trainings: `retrain_on_drift` counts those of one set


def list_old_runs(
    instance: dg.DagsterInstance, before: float, training_set: str | None
) -> Iterator[GarbageItem]:
    """Runs that ended before `before` (epoch seconds), and hold the last word on no asset.
    training_set: the current one, whose trainings stay."""
    stay = collect_last_runs(instance)
    for record in instance.get_run_records(dg.RunsFilter(statuses=_ENDED)):
        run = record.dagster_run
        ended = record.end_time or record.update_timestamp.timestamp()
        counted = training_set is not None and run.tags.get(SET_TAG) == training_set
        if ended < before and run.run_id not in stay and not counted:
            size = _measure_events(instance, run.run_id)
            remove = partial(_remove_run, instance, run.run_id)
            yield GarbageItem("events", f"{run.job_name} {run.run_id[:8]}", size, remove)


def collect_last_runs(instance: dg.DagsterInstance) -> set[str]:
    """The runs that each asset was last tried in, and of each partition's last version."""
    result: set[str] = set()
    storage = instance.event_log_storage
    for record in instance.get_asset_records():
        entry = record.asset_entry
        result |= {
            name for name in (entry.last_run_id, entry.last_planned_materialization_run_id) if name
        }
        for kind, fetch in (
            (_MADE, instance.fetch_materializations),
            (_SEEN, instance.fetch_observations),
        ):
            ids = sorted(storage.get_latest_storage_id_by_partition(entry.asset_key, kind).values())
            last = entry.last_materialization_storage_id if kind is _MADE else None
            for start in range(0, len(wanted := [*ids, *filter(None, [last])]), _SLICE):
                part = wanted[start : start + _SLICE]
                asked = dg.AssetRecordsFilter(asset_key=entry.asset_key, storage_ids=part)
                result |= {record.run_id for record in fetch(asked, limit=len(part)).records}
    return result


def _measure_events(instance: dg.DagsterInstance, run_id: str) -> int:
    """Bytes of the file that holds a run's events, where each run has one."""
    path = _find_file(instance, run_id)
    return path.stat().st_size if path and path.exists() else 0


def _find_file(instance: dg.DagsterInstance, run_id: str) -> Path | None:
    storage = instance.event_log_storage
    return (
        Path(storage.path_for_shard(run_id)) if isinstance(storage, SqliteEventLogStorage) else None
    )


def _remove_run(instance: dg.DagsterInstance, run_id: str) -> bool:
    """Deletes a run with its events; of a SQLite storage the file that is empty then, too."""
    instance.delete_run(run_id)
    if (path := _find_file(instance, run_id)) is not None:
        for name in (path.name, f"{path.name}-wal", f"{path.name}-shm"):
            path.with_name(name).unlink(missing_ok=True)
    return True


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
