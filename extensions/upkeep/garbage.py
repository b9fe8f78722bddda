"""What `toolmill gc` finds and how it removes it; the kinds that need no other knowledge of a home:
leftovers of killed writers, installed packages, ended trainings, vectors."""

import json
import re
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from assets.servers.deploy.deployment_table import DEPLOYMENTS
from assets.servers.recipes.fetch_phase import MANIFEST
from assets.servers.recipes.install import artifact_digest
from assets.servers.recipes.recipe import load_recipe
from assets.servers.sandbox.toolchain import HostToolchain, ToolMissing
from extensions.upkeep.policy import DAY
from extensions.upkeep.stored_versions import LanceVersions
from training.runtime.model_store import CARD
from training.sets.build import VECTOR_TAG, make_vector_tag
from warehouse.storage.digest import is_sha256
from warehouse.storage.tables import Tables
from warehouse.storage.untrusted_files import measure_tree, remove_tree

_GOING = ".going-"
# `.name.<pid>.<8 hex>` of `write_atomically`; `.going-<8 hex>` of a folder that is being removed.
_LEFTOVER = re.compile(r"\..+\.\d+\.[0-9a-f]{8}|\.going-[0-9a-f]{8}")
_FOLDERS = ("blobs", "champions", "jobs", "models", "releases", "router", "tables", "training_sets")
_SMALLEST = 1 << 20  # bytes of a vector table below which compaction is not worth its reading


@dataclass(frozen=True)
class GarbageItem:
    """One thing that nothing refers to. size: bytes. remove: removes it and returns whether it did:
    what is used again since it was found stays."""

    kind: str
    name: str
    size: int
    remove: Callable[[], bool]


def count_garbage(items: Iterable[GarbageItem]) -> dict[str, dict[str, Any]]:
    kinds: dict[str, dict[str, Any]] = defaultdict(lambda: {"count": 0, "bytes": 0})
    for item in items:
        kinds[item.kind]["count"] += 1
        kinds[item.kind]["bytes"] += item.size
    return dict(kinds)


def measure_size(path: Path) -> int:
    if path.is_symlink() or not path.is_dir():
        return path.lstat().st_size
    return measure_tree(path, unread={})


def remove_path(path: Path) -> bool:
    """Removes a file, or a folder, which is renamed first so that a kill leaves no half."""
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
        return True
    aside = path
    if not path.name.startswith(_GOING):
        aside = path.with_name(f"{_GOING}{uuid.uuid4().hex[:8]}")
        path.rename(aside)
    with suppress(OSError):  # what is left goes with the next run
        remove_tree(aside)
    return True


def make_path_item(kind: str, path: Path) -> GarbageItem:
    name = f"{path.parent.name}/{path.name}"
    return GarbageItem(kind, name, measure_size(path), partial(remove_path, path))


def list_leftovers(home: Path, before: float) -> Iterator[Path]:
    """Unfinished files and folders that nobody has written to since `before` (epoch seconds)."""
    for name in _FOLDERS:
        for path in (home / name).rglob(".*"):
            try:
                if _LEFTOVER.fullmatch(path.name) and path.lstat().st_mtime < before:
                    yield path
            except FileNotFoundError:  # its writer ended meanwhile
                continue


def list_unused_artifacts(
    home: Path, tables: Tables, toolchain: HostToolchain, before: float
) -> Iterator[GarbageItem]:
    """Installed packages that no current deployment and no index on disk launches; those of a
    runtime that is not on this host stay. Raises ValueError for an unreadable recipe."""
    used, missing = set(), set[str]()  # names of artifacts; programs that are not on PATH
    for facts in _iterate_recipes(home, tables):
        recipe = load_recipe(facts)
        if recipe.ecosystem == "npm" and toolchain.node is None:
            missing.add("node")
            continue
        try:
            used.add(artifact_digest(recipe, toolchain))
        except ToolMissing:
            missing.add("python")
    for folder in sorted((home / "artifacts").glob("*")):
        manifest = folder / MANIFEST
        if not is_sha256(folder.name) or folder.name in used or _is_run_by(folder, missing):
            continue
        if (manifest if manifest.exists() else folder).stat().st_mtime < before:
            yield make_path_item("artifacts", folder)


def _iterate_recipes(home: Path, tables: Tables) -> Iterator[dict]:
    for text in tables.read(DEPLOYMENTS)["recipe"].drop_nulls():
        yield json.loads(text)
    for path in sorted((home / "router").glob("*/recipes.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            yield json.loads(line)["recipe"]


def _is_run_by(folder: Path, programs: set[str]) -> bool:
    if not programs:
        return False
    try:
        program = Path(json.loads((folder / MANIFEST).read_bytes())["argv"][0]).name
    except (OSError, ValueError, KeyError, IndexError, TypeError):
        return True
    return program.startswith(tuple(programs))


def is_finished(home: Path, path: Path) -> bool:
    return (home / "models" / path.name.removesuffix(".json") / CARD).exists()


def list_ended_trainings(home: Path, before: float) -> Iterator[GarbageItem]:
    """Jobs and checkpoints of models that are finished: the card has all that is read later."""
    for path in sorted([*(home / "jobs").glob("*.json"), *(home / "checkpoints").glob("*")]):
        if is_finished(home, path) and path.stat().st_mtime < before:
            yield make_path_item("trainings", path)


def list_old_vectors(
    home: Path, sets: set[str], before: float, grace_s: float
) -> Iterator[GarbageItem]:
    """Tags of training sets other than `sets`, and the files of old versions, which go when the
    tables are compacted. What compaction frees is not known before."""
    store = LanceVersions(home / "lance")
    kept = {make_vector_tag(name) for name in sets}
    for table in store.list_tables():
        for tag in store.list_tags(table):
            if tag.startswith(VECTOR_TAG) and tag not in kept:
                remove = partial(store.remove_tag, tag, table)
                yield GarbageItem("vectors", f"{table} {tag}", 0, remove)
        folder = store.root / f"{table}.lance"
        old = [path for path in folder.glob("_versions/*") if path.stat().st_mtime < before]
        # The current version and those that a tag keeps are old, too.
        if len(old) > 1 + len(store.list_tags(table)) and measure_size(folder) >= _SMALLEST:
            remove = partial(_compact, store, table, grace_s)
            yield GarbageItem("vectors", f"{table}: {len(old)} old versions", 0, remove)


def _compact(store: LanceVersions, table: str, grace_s: float) -> bool:
    store.compact(table, timedelta(days=grace_s / DAY))
    return True
