"""What of a home nothing refers to: by no pointer, kept version, release, ledger row or tag."""

import fcntl
import json
import re
import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path

import dagster as dg
import polars as pl
from dagster._core.storage.event_log.sqlite.sqlite_event_log import SqliteEventLogStorage

from extensions.upkeep.garbage import (
    GarbageItem,
    list_ended_trainings,
    list_leftovers,
    list_old_vectors,
    list_unused_artifacts,
    make_path_item,
    measure_size,
)
from extensions.upkeep.home_tables import ADAPTERS, KEPT_OF_SETS, KEPT_WHOLE
from extensions.upkeep.ledger_inspection import find_oldest_attempt, list_effect_blobs
from extensions.upkeep.policy import DAY, GarbageLimits
from extensions.upkeep.purge import KIND as TAKEN
from extensions.upkeep.purge import list_taken
from extensions.upkeep.storage_repair import split_lines
from extensions.upkeep.stored_versions import remove_version
from orchestration.runs.instance import UNFINISHED, find_run_process
from training.releases.retention import plan_pruning, prune_releases
from training.sets.training_set import TRAINING_SET
from training.settings import RetentionPolicy
from warehouse.ledger.database import LedgerUnavailable, find_url
from warehouse.storage.blobs import Blobs
from warehouse.storage.files import PointerBroken
from warehouse.storage.tables import TableHead, Tables

_ENDED = [dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED]
_MADE, _SEEN = dg.DagsterEventType.ASSET_MATERIALIZATION, dg.DagsterEventType.ASSET_OBSERVATION
_SLICE = 500  # storage ids of one question
SET_TAG = "toolmill/training_set"  # of trainings: `retrain_on_drift` counts those of one set


def list_old_runs(
    instance: dg.DagsterInstance, before: float, training_set: str | None
) -> Iterator[GarbageItem]:
    """Runs ended before `before`, no asset's last word, no training of `training_set`."""
    stay = collect_last_runs(instance)
    for record in instance.get_run_records(dg.RunsFilter(statuses=_ENDED)):
        run = record.dagster_run
        ended = record.end_time or record.update_timestamp.timestamp()
        counted = training_set is not None and run.tags.get(SET_TAG) == training_set
        if ended < before and run.run_id not in stay and not counted:
            file = _find_file(instance, run.run_id)
            size = file.stat().st_size if file and file.exists() else 0
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


def _find_file(instance: dg.DagsterInstance, run_id: str) -> Path | None:
    storage = instance.event_log_storage
    return (
        Path(storage.path_for_shard(run_id)) if isinstance(storage, SqliteEventLogStorage) else None
    )


def _remove_run(instance: dg.DagsterInstance, run_id: str) -> bool:
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


# What a part raises where what it must know cannot be read: it then removes nothing.
_UNKNOWN = (OSError, ValueError, RuntimeError, KeyError)
_SHA = r"[0-9a-f]{64}"
_KeptVersions = Mapping[tuple[str, str], set[str]]  # (table, partition) -> digests


class ReferencesUnknown(RuntimeError):
    """What refers to blobs cannot be read, so that none may be removed."""


@dataclass(frozen=True)
class GarbageScope:
    """A home and its settings. now: epoch seconds. own_instance: only this home's Dagster."""

    home: Path
    state: Path
    keep: GarbageLimits
    releases: RetentionPolicy
    now: float
    instance: dg.DagsterInstance | None = None
    toolchain: Callable[[], object] | None = None
    own_instance: bool = True

    @property
    def tables(self) -> Tables:
        return Tables(self.home / "tables")


@dataclass
class GarbageReport:
    """What was found; kind -> why nothing of it can be judged (skipped), or not all removed."""

    before: float
    garbage: list[GarbageItem] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


def find_garbage(scope: GarbageScope) -> GarbageReport:
    """All that may go: older than the grace period and every run under way, or taken down; nothing
    where a run's start is unknown (`skipped` says why, as of `all`). It only looks."""
    before = scope.now - scope.keep.grace_days * DAY
    try:
        began = find_oldest_start(scope.state, scope.instance)
    except _UNKNOWN as error:
        return GarbageReport(before, skipped={"all": _shorten(error)})
    report = GarbageReport(min(before, began or scope.now))
    kinds = {
        TAKEN: lambda at, _: list_taken(at.home, at.state, at.now, began),
        "tables": lambda at, limit: list_old_versions(at.tables, _map_kept(at), limit),
        "blobs": _list_blobs,
        "releases": _list_releases,
        "artifacts": _list_artifacts,
        "trainings": lambda at, limit: list_ended_trainings(at.home, limit),
        "vectors": _list_vectors,
        "events": _list_events,
        "leftovers": lambda at, limit: (
            make_path_item("leftovers", path) for path in list_leftovers(at.home, limit)
        ),
    }
    for kind, look in kinds.items():
        try:
            report.garbage += list(look(scope, report.before))
        except _UNKNOWN as error:
            report.skipped[kind] = _shorten(error)
    return report


def remove_garbage(report: GarbageReport) -> list[GarbageItem]:
    """Removes what was found, in its order, and returns what went. One that cannot be removed ends
    nothing. Where a table's version stays, so do all blobs: it may be the last to name them."""
    gone, versions_stay = list[GarbageItem](), False
    for item in report.garbage:
        if item.kind == "blobs" and versions_stay:
            continue
        try:
            removed = item.remove()
        except _UNKNOWN as error:
            report.failed.setdefault(item.kind, _shorten(error))
            removed = False
        versions_stay |= item.kind == "tables" and not removed
        gone += [item] * removed
    return gone


def _shorten(error: Exception) -> str:
    return " ".join(str(error).split())[:300]


def _map_kept(scope: GarbageScope) -> _KeptVersions:
    """The versions that stay of each table. What drift compares today with is of the time when the
    sets were made that models on disk learnt from, however long ago that was."""
    published = scope.tables.list_publications(TRAINING_SET.name)
    try:
        learnt = _list_learnt_sets(scope.home)
    except ValueError:  # nobody knows from which
        learnt = {head.digest for head in published}
    moments = [head.at for head in published if head.digest in learnt]
    return list_kept_versions(
        scope.tables, scope.keep, scope.now, KEPT_WHOLE, dict.fromkeys(KEPT_OF_SETS, moments)
    )


def choose_versions(
    heads: Sequence[TableHead], policy: GarbageLimits, now: float, moments: Collection[float] = ()
) -> set[str]:
    """The digests that stay of one partition's publications, oldest first: the last ones, and all
    that were current at any time of the last days, or at one of the `moments`."""
    last = list(dict.fromkeys(head.digest for head in reversed(heads)))[: policy.versions]
    since = now - policy.days * DAY
    recent = [head for head in heads if head.at >= since]
    before = [head for head in heads if head.at < since]
    then = [[head for head in heads if head.at <= at][-1:] for at in moments]
    return {*last, *(head.digest for head in [*before[-1:], *recent, *chain(*then)])}


def list_kept_versions(
    tables: Tables,
    policy: GarbageLimits,
    now: float,
    whole: Collection[str],
    moments: Mapping[str, Collection[float]] | None = None,
) -> _KeptVersions:
    """whole: tables whose versions all stay. moments: table -> times (epoch seconds) as of which it
    is read. Raises PointerBroken for an unreadable pointer or history."""
    result = {}
    for folder in sorted(path for path in tables.root.glob("*/*") if path.is_dir()):
        name, partition, history = folder.parent.name, folder.name, folder / "HEADS.jsonl"
        # A version whose publication cannot be read would pass for one that was never current.
        torn = split_lines(history)[1] if history.exists() else "all"
        if tables.head(name, partition) is not None and torn:
            raise PointerBroken(
                f"{history}: {torn} of its lines cannot be read; restore it from a backup, or take"
                " them out with `toolmill doctor --fix`, and the next collection their versions"
            )
        heads = tables.list_publications(name, partition)
        stay = {head.digest for head in heads} if name in whole else set()
        times = (moments or {}).get(name, ())
        result[name, partition] = stay | choose_versions(heads, policy, now, times)
    return result


def list_old_versions(tables: Tables, kept: _KeptVersions, before: float) -> Iterator[GarbageItem]:
    """The files of versions that do not stay and were written before `before`."""
    for (name, partition), path, stays in _iterate_files(tables, kept, before):
        if not stays:
            remove: Callable[[], bool] = partial(remove_version, tables, path, before)
            shown = f"{name}/{partition}/{path.name}"
            yield GarbageItem("tables", shown, measure_size(path), remove)


def _iterate_files(
    tables: Tables, kept: _KeptVersions, before: float
) -> Iterator[tuple[tuple[str, str], Path, bool]]:
    """((table, partition), a version's file, whether it stays: kept, or too young to go)."""
    for place, digests in kept.items():
        for path in sorted(tables.folder(*place).glob("*.parquet")):
            stays = path.name.split(".")[0] in digests or path.stat().st_mtime >= before
            yield place, path, stays


def _list_blobs(scope: GarbageScope, before: float) -> Iterator[GarbageItem]:
    files = _iterate_files(scope.tables, _map_kept(scope), before)
    references = collect_references((path for _, path, stays in files if stays), scope.state)
    return list_unnamed_blobs(Blobs(scope.home / "blobs"), references, before)


def collect_references(versions: Iterable[Path], state: Path) -> set[str]:
    """Every SHA-256 in a version's texts, the ledger or the memo. Raises ReferencesUnknown."""
    try:
        references = set().union(*map(_read_names, versions), _read_memo_names(state / "memo.db"))
        path, url = state / "ledger.db", find_url()
        if not url and not path.exists():
            raise LedgerUnavailable(f"no ledger in {state}; TOOLMILL_STATE says where it lies")
        return references | list_effect_blobs(path, url)
    except (OSError, pl.exceptions.PolarsError, sqlite3.Error, LedgerUnavailable) as error:
        raise ReferencesUnknown(
            f"blobs: what refers to them cannot be read ({_shorten(error)}), so none is removed;"
            " `toolmill doctor` says what to do"
        ) from error


def _read_names(version: Path) -> set[str]:
    frame = pl.read_parquet(version)
    texts = [name for name, kind in frame.schema.items() if kind == pl.String]
    return set().union(
        *(frame[name].drop_nulls().str.extract_all(_SHA).explode().drop_nulls() for name in texts)
    )


def _read_memo_names(path: Path) -> set[str]:
    if not path.exists():
        return set()
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=5)) as db:
        texts = [json.dumps(text) for (text,) in db.execute("SELECT value FROM memo")]
    return {sha for text in texts for sha in re.findall(_SHA, text)}


def list_unnamed_blobs(blobs: Blobs, references: set[str], before: float) -> Iterator[GarbageItem]:
    """Blobs that nothing names and nobody has put since `before`."""
    for path in blobs.list_files():
        if path.name not in references and (facts := path.stat()).st_mtime < before:
            remove = partial(blobs.remove, path.name, before)
            yield GarbageItem("blobs", path.name, facts.st_size, remove)


def _list_releases(scope: GarbageScope, before: float) -> Iterator[GarbageItem]:
    """One item a folder. The first one that is removed takes the others along, under the lock."""
    last = [scope.tables.read(table)["model"].to_list() for table in ADAPTERS]
    protect = [name for names in last for name in names]

    def prune() -> bool:
        prune_releases(scope.home, scope.releases, protect, before=before)
        return True

    plan = plan_pruning(scope.home, scope.releases, protect, before=before)
    for folder in plan.list_folders(scope.home):
        name = f"{folder.parent.name}/{folder.name}"
        yield GarbageItem("releases", name, measure_size(folder), prune)


def _list_artifacts(scope: GarbageScope, before: float) -> Iterator[GarbageItem]:
    toolchain = scope.toolchain() if scope.toolchain else None
    if toolchain is None:
        return iter(())
    return list_unused_artifacts(scope.home, scope.tables, toolchain, before)  # type: ignore[arg-type]


def _list_vectors(scope: GarbageScope, before: float) -> Iterator[GarbageItem]:
    """The vectors of the sets that models on disk learnt from, and of the last ones, stay."""
    heads = scope.tables.list_publications(TRAINING_SET.name)
    sets = {head.digest for head in heads[-scope.keep.versions :]}
    grace_s = scope.now - before
    return list_old_vectors(scope.home, sets | _list_learnt_sets(scope.home), before, grace_s)


def _list_learnt_sets(home: Path) -> set[str]:
    """Raises ValueError for a card that does not say: nobody knows which set's vectors it needs."""
    from training.runtime.model_store import CARD, read_card

    sets = set()
    for path in sorted((home / "models").glob(f"*/{CARD}")):
        try:
            card = read_card(path.parent)
        except (ValueError, RecursionError):
            card = None
        learnt = card.get("training_set") if isinstance(card, dict) else None
        if not isinstance(learnt, str) or not learnt:
            raise ValueError(
                f"models/{path.parent.name[:12]}/{CARD}: does not say which training set it learnt"
                " from, so all vectors stay; remove that folder, or restore it from a backup"
            )
        sets.add(learnt)
    return sets


def _list_events(scope: GarbageScope, before: float) -> Iterator[GarbageItem]:
    if scope.instance is None or not scope.own_instance:
        return iter(())
    head = scope.tables.head(TRAINING_SET.name)
    limit = min(before, scope.now - scope.keep.event_days * DAY)
    return list_old_runs(scope.instance, limit, head.digest if head else None)
