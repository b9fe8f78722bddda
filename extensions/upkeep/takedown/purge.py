"""What a home still holds of what was taken down, though nothing reads it: vectors, blobs, pools of
training sets, versions of the router's index, versions of tables.

The tables go last: it is by their rows that the rest is found, so that who was killed begins anew.
"""

import calendar
import json
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path

from extensions.upkeep.retention.garbage import Garbage, measure_size, remove_path
from extensions.upkeep.retention.taken import (
    Version,
    collect_blob_names,
    iterate_versions,
    rewrite_version,
)
from extensions.upkeep.takedown.derived import is_finished
from extensions.upkeep.takedown.reach import find_blobs
from extensions.upkeep.takedown.texts import RowTexts
from orchestration.tables import TABLES
from serving.index.model import IndexBroken
from serving.ranking.overlays import find_taken_tools
from training.releases.pointers import hold_pointer_lock
from training.releases.release import get_pinned_version, read_served
from warehouse.ledger.database import find_url
from warehouse.ledger.inspection import list_effect_blobs, list_errors
from warehouse.ledger.ledger import Ledger
from warehouse.storage.blobs import Blobs
from warehouse.storage.files import write_atomically
from warehouse.storage.lance import LanceStore
from warehouse.storage.tables import Tables
from warehouse.storage.takedowns import Takedowns, find_active, read_takedowns

KIND = "taken"


@dataclass
class _Found:
    """What the rows of all versions say. versions: those that hold taken rows. blobs, texts: what
    such rows name, and no row that stays."""

    versions: list[Version] = field(default_factory=list)
    blobs: set[str] = field(default_factory=set)
    texts: set[str] = field(default_factory=set)


def list_taken(home: Path, state: Path, now: float, oldest: float | None) -> Iterator[Garbage]:
    """All of it, whatever its age, in the order in which it goes; nothing where nothing is taken
    down. now: epoch seconds; oldest: when the oldest run began that goes on, which may still read
    older versions of vectors."""
    taken = read_takedowns(home)
    if not taken:
        return
    found = _look(home, taken)
    yield from _list_vectors(home, taken, found, now - (oldest or now))
    yield from _list_blobs(home, state, taken, found)
    yield from _list_pools(home, taken)
    yield from _list_jobs(home, taken)
    yield from _list_indexes(home)
    for version in found.versions:
        remove = partial(rewrite_version, TABLES.get(version.table), version.path, taken)
        name = str(version.path.relative_to(home))
        yield Garbage(KIND, f"{name}: {len(version.taken)} rows", 0, remove)


def _look(home: Path, taken: Takedowns) -> _Found:
    found, kept_blobs, kept_texts = _Found(), set[str](), set[str]()
    texts = RowTexts()
    for version in iterate_versions(Tables(home / "tables"), taken):
        kept_blobs |= collect_blob_names(version.kept)
        kept_texts |= texts.collect(version.table, version.kept)
        if len(version.taken):
            found.blobs |= collect_blob_names(version.taken)
            found.texts |= texts.collect(version.table, version.taken)
            found.versions.append(version)
    found.blobs -= kept_blobs
    found.texts -= kept_texts
    return found


def _list_vectors(
    home: Path, taken: Takedowns, found: _Found, oldest_s: float
) -> Iterator[Garbage]:
    store = LanceStore(home / "lance")
    last = max(_read_moment(one.at) for one in find_active(home).values())

    def holds(texts: list[str]) -> set[int]:
        return _find_holders(taken, texts) | {
            at for at, text in enumerate(texts) if text in found.texts
        }

    for table in store.list_tables():
        keys = store.find_texts(holds, table)
        if keys or store.has_versions(last + 1, table):
            older = timedelta(seconds=oldest_s)
            remove = partial(_call, store.remove_rows, keys, older, table)
            yield Garbage(KIND, f"lance/{table}: {len(keys)} vectors", 0, remove)


def _list_blobs(home: Path, state: Path, taken: Takedowns, found: _Found) -> Iterator[Garbage]:
    """Blobs that hold a secret, and those that rows which go name alone; before them the answers
    of the ledger that they are, and errors that hold a secret."""
    blobs, path, url = Blobs(home / "blobs"), state / "ledger.db", find_url()
    held = find_blobs(blobs, taken.secrets) if taken.secrets else set()
    held |= {sha for sha in found.blobs if blobs.path(sha).is_file()}
    if url or path.exists():
        answers = held & list_effect_blobs(path, url)
        errors = sum(bool(_find_holders(taken, [error])) for error in list_errors(path, url))
        if answers or errors:
            name = f"ledger: {len(answers)} answers, {errors} errors"
            yield Garbage(KIND, name, 0, partial(_drop_answers, path, blobs, answers, taken))
    for sha in sorted(held):
        size = blobs.path(sha).stat().st_size
        yield Garbage(KIND, f"blobs/{sha}", size, partial(blobs.remove, sha, float("inf")))


def _drop_answers(path: Path, blobs: Blobs, answers: Collection[str], taken: Takedowns) -> bool:
    ledger = Ledger(path, blobs, url=find_url())
    try:
        errors = ledger.clear_errors(partial(_find_holders, taken))
        return bool(ledger.forget_answers(answers) + errors)
    finally:
        ledger.close()


def _find_holders(taken: Takedowns, texts: list[str]) -> set[int]:
    """The places of the texts that hold a secret."""
    return {at for secret in taken.secrets for at in secret.find_holders(texts)}


def _list_pools(home: Path, taken: Takedowns) -> Iterator[Garbage]:
    for path in sorted((home / "training_sets").glob("*.pool.json")):
        pool = json.loads(path.read_bytes())
        gone = [name for name, entry in pool.items() if _is_reached(taken, name, entry)]
        if gone:
            remove = partial(_rewrite_pool, path, gone)
            yield Garbage(KIND, f"training_sets/{path.name}: {len(gone)} contracts", 0, remove)


def _list_jobs(home: Path, taken: Takedowns) -> Iterator[Garbage]:
    """Jobs of trainings that are finished: their rows are those of the set as it was."""
    names = [json.dumps(server, ensure_ascii=False).encode() for server in taken.servers]
    names += [one.encode() for one in taken.contracts | taken.shown]
    for path in filter(partial(is_finished, home), sorted((home / "jobs").glob("*.json"))):
        data = path.read_bytes()
        held = any(secret.is_held_by(data) for secret in taken.secrets)
        if held or any(name in data for name in names):
            yield Garbage(KIND, f"jobs/{path.name}", len(data), partial(remove_path, path))


def _is_reached(taken: Takedowns, digest: str, entry: dict) -> bool:
    contract = entry.get("contract") or {}
    texts = [json.dumps(entry, ensure_ascii=False)]
    tool = str(entry.get("tool") or contract.get("name") or "")
    return taken.is_reached(str(entry.get("server_id")), tool, digest, texts)


def _rewrite_pool(path: Path, gone: Collection[str]) -> bool:
    pool = json.loads(path.read_bytes())
    left = {name: entry for name, entry in pool.items() if name not in gone}
    write_atomically(path, json.dumps(left, ensure_ascii=False).encode())
    return True


def _list_indexes(home: Path) -> Iterator[Garbage]:
    """Versions of the router's index that are not served; the served one goes when a run has built
    another."""
    stay = {read_served(home).get("version"), get_pinned_version(home)}
    for path in sorted((home / "router").glob("*/index.json")):
        folder = path.parent
        if folder.name in stay or folder.name.startswith("."):
            continue
        try:
            tools = find_taken_tools(home, folder.name)
        except IndexBroken:
            continue  # nothing serves it; retention takes it away
        if tools:
            remove = partial(_remove_index, home, folder)
            name = f"router/{folder.name}: {len(tools)} tools"
            yield Garbage(KIND, name, measure_size(folder), remove)


def _remove_index(home: Path, folder: Path) -> bool:
    with hold_pointer_lock(home):
        if folder.name in (read_served(home).get("version"), get_pinned_version(home)):
            return False
        return remove_path(folder)


def _call(act: Callable[..., object], *args: object) -> bool:
    act(*args)
    return True


def _read_moment(at: str) -> float:
    return float(calendar.timegm(time.strptime(at, "%Y-%m-%dT%H:%M:%SZ")))
