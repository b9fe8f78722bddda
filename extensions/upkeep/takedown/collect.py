"""What of a home nothing refers to: by no pointer, kept version, release, ledger row or tag."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import dagster as dg

from extensions.upkeep.retention.blobs import collect_references, list_unnamed_blobs
from extensions.upkeep.retention.garbage import Garbage, measure_size, remove_path
from extensions.upkeep.retention.leftovers import list_leftovers
from extensions.upkeep.retention.policy import DAY, KeepPolicy
from extensions.upkeep.retention.versions import (
    list_kept_versions,
    list_old_versions,
    list_version_files,
)
from extensions.upkeep.takedown.derived import (
    list_ended_trainings,
    list_old_vectors,
    list_unused_artifacts,
)
from extensions.upkeep.takedown.events import list_old_runs
from extensions.upkeep.takedown.progress import find_oldest_start
from extensions.upkeep.takedown.purge import KIND as TAKEN
from extensions.upkeep.takedown.purge import list_taken
from orchestration.tables import ADAPTERS, KEPT_OF_SETS, KEPT_WHOLE
from training.releases.retention import (
    RetentionPolicy,
    plan_pruning,
    prune_releases,
)
from training.sets.training_set import TRAINING_SET
from warehouse.storage.tables import Tables

# What a part raises where what it must know cannot be read: it then removes nothing.
_UNKNOWN = (OSError, ValueError, RuntimeError, KeyError)


@dataclass(frozen=True)
class Place:
    """A home and what its settings say of it. now: epoch seconds. own_instance: whether Dagster's
    instance is this home's alone."""

    home: Path
    state: Path
    keep: KeepPolicy
    releases: RetentionPolicy
    now: float
    instance: dg.DagsterInstance | None = None
    toolchain: Callable[[], object] | None = None
    own_instance: bool = True

    @property
    def tables(self) -> Tables:
        return Tables(self.home / "tables")


@dataclass
class Collection:
    """What was found, of which kinds nothing can be said, and of which kinds something could not be
    removed: kind -> why."""

    before: float
    garbage: list[Garbage] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


def find_garbage(place: Place) -> Collection:
    """All that may go: older than the grace period and than every run that goes on, or taken down.
    It only looks; whatever is used again before it is removed stays. Where it cannot be told since
    when a run goes on, nothing may go: `skipped` says why, as of `all`."""
    try:
        began = find_oldest_start(place.state, place.instance)
    except _UNKNOWN as error:
        before = place.now - place.keep.grace_days * DAY
        return Collection(before, skipped={"all": " ".join(str(error).split())[:300]})
    before = min(place.now - place.keep.grace_days * DAY, began or place.now)
    found = Collection(before)
    parts = {
        TAKEN: lambda at, _: list_taken(at.home, at.state, at.now, began),
        "tables": _list_tables,
        "blobs": _list_blobs,
        "releases": _list_releases,
        "artifacts": _list_artifacts,
        "trainings": lambda at, limit: list_ended_trainings(at.home, limit),
        "vectors": _list_vectors,
        "events": _list_events,
        "leftovers": _list_leftovers,
    }
    for kind, look in parts.items():
        try:
            found.garbage += list(look(place, before))
        except _UNKNOWN as error:
            found.skipped[kind] = " ".join(str(error).split())[:300]
    return found


def remove_garbage(found: Collection) -> list[Garbage]:
    """Takes away what was found, in its order; returns what went. One that cannot be removed ends
    nothing; where a table's version stays, so do all blobs: it may be the last to name them."""
    gone, versions_stay = list[Garbage](), False
    for one in found.garbage:
        if one.kind == "blobs" and versions_stay:
            continue
        try:
            removed = one.remove()
        except _UNKNOWN as error:
            found.failed.setdefault(one.kind, " ".join(str(error).split())[:300])
            removed = False
        versions_stay |= one.kind == "tables" and not removed
        gone += [one] * removed
    return gone


def _map_kept(place: Place) -> dict[tuple[str, str], set[str]]:
    """The versions that stay of each table: what drift compares today with is of the time when
    the sets were made that models on disk learnt from, however long ago that was."""
    made = place.tables.list_publications(TRAINING_SET.name)
    try:
        learnt = _list_learnt_sets(place.home)
    except ValueError:  # nobody knows from which
        learnt = {head.digest for head in made}
    moments = [head.at for head in made if head.digest in learnt]
    return list_kept_versions(
        place.tables, place.keep, place.now, KEPT_WHOLE, dict.fromkeys(KEPT_OF_SETS, moments)
    )


def _list_tables(place: Place, before: float) -> Iterator[Garbage]:
    return list_old_versions(place.tables, _map_kept(place), before)


def _list_blobs(place: Place, before: float) -> Iterator[Garbage]:
    from warehouse.storage.blobs import Blobs

    files = list_version_files(place.tables, _map_kept(place), before)
    named = collect_references(files, place.state)
    return list_unnamed_blobs(Blobs(place.home / "blobs"), named, before)


def _list_releases(place: Place, before: float) -> Iterator[Garbage]:
    """One item a folder; the first one that is removed takes the others along, under the lock."""
    last = [place.tables.read(table)["model"].to_list() for table in ADAPTERS]
    protect = [name for names in last for name in names]
    found = plan_pruning(place.home, place.releases, protect, before=before)
    for folder in found.list_folders(place.home):
        remove = partial(_prune, place, protect, before)
        name = f"{folder.parent.name}/{folder.name}"
        yield Garbage("releases", name, measure_size(folder), remove)


def _prune(place: Place, protect: list[str], before: float) -> bool:
    prune_releases(place.home, place.releases, protect, before=before)
    return True


def _list_artifacts(place: Place, before: float) -> Iterator[Garbage]:
    toolchain = place.toolchain() if place.toolchain else None
    if toolchain is None:
        return iter(())
    return list_unused_artifacts(place.home, place.tables, toolchain, before)  # type: ignore[arg-type]


def _list_vectors(place: Place, before: float) -> Iterator[Garbage]:
    """The vectors of the sets that models on disk learnt from, and of the last ones, stay."""
    heads = place.tables.list_publications(TRAINING_SET.name)
    sets = {head.digest for head in heads[-place.keep.versions :]}
    grace_s = place.now - before
    return list_old_vectors(place.home, sets | _list_learnt_sets(place.home), before, grace_s)


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
                " from, so all vectors stay; remove that folder, or put it back from a backup"
            )
        sets.add(learnt)
    return sets


def _list_events(place: Place, before: float) -> Iterator[Garbage]:
    if place.instance is None or not place.own_instance:
        return iter(())
    head = place.tables.head(TRAINING_SET.name)
    limit = min(before, place.now - place.keep.event_days * DAY)
    return list_old_runs(place.instance, limit, head.digest if head else None)


def _list_leftovers(place: Place, before: float) -> Iterator[Garbage]:
    for path in list_leftovers(place.home, before):
        yield Garbage("leftovers", path.name, measure_size(path), partial(remove_path, path))
