"""What can be made again and no longer is needed: installed packages, jobs and checkpoints of
models, reports of days past, vectors of training sets."""

import json
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path

from assets.servers.deploy.deployment_table import DEPLOYMENTS
from assets.servers.recipes.fetch_phase import MANIFEST
from assets.servers.recipes.install import artifact_digest
from assets.servers.recipes.recipe import load_recipe
from assets.servers.sandbox.toolchain import HostToolchain, ToolMissing
from extensions.upkeep.retention.garbage import Garbage, measure_size, remove_path
from extensions.upkeep.retention.policy import DAY
from training.runtime.model_store import CARD
from training.sets.build import VECTOR_TAG, make_vector_tag
from warehouse.storage.digest import is_sha256
from warehouse.storage.lance import LanceStore
from warehouse.storage.tables import Tables

_SMALLEST = 1 << 20  # bytes of a vector table below which compaction is not worth its reading


def list_unused_artifacts(
    home: Path, tables: Tables, toolchain: HostToolchain, before: float
) -> Iterator[Garbage]:
    """Installed packages that neither a current deployment nor an index on disk launches. Where a
    runtime is not on this host, nobody knows which packages of it are used: those stay. Raises
    ValueError where a recipe cannot be read: then nobody knows what is used at all."""
    used, unknown = set(), set[str]()  # names of artifacts; programs that are not on PATH
    for facts in _iterate_recipes(home, tables):
        recipe = load_recipe(facts)
        if recipe.ecosystem == "npm" and toolchain.node is None:
            unknown.add("node")
            continue
        for scripts in (False, True):
            try:
                used.add(artifact_digest(recipe, toolchain, scripts=scripts))
            except ToolMissing:
                unknown.add("python")
    for folder in sorted((home / "artifacts").glob("*")):
        if not is_sha256(folder.name) or folder.name in used or _is_of_any(folder, unknown):
            continue
        if _is_older(folder, before):
            remove = partial(remove_path, folder)
            yield Garbage("artifacts", folder.name, measure_size(folder), remove)


def _iterate_recipes(home: Path, tables: Tables) -> Iterator[dict]:
    for text in tables.read(DEPLOYMENTS)["recipe"].drop_nulls():
        yield json.loads(text)
    for path in sorted((home / "router").glob("*/recipes.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            yield json.loads(line)["recipe"]


def _is_of_any(folder: Path, programs: set[str]) -> bool:
    """Whether an installed package is run by one of these programs, or may be."""
    if not programs:
        return False
    try:
        program = Path(json.loads((folder / MANIFEST).read_bytes())["argv"][0]).name
    except (OSError, ValueError, KeyError, IndexError, TypeError):
        return True
    return any(program.startswith(name) for name in programs)


def _is_older(folder: Path, before: float) -> bool:
    made = folder / MANIFEST
    return (made if made.exists() else folder).stat().st_mtime < before


def is_finished(home: Path, path: Path) -> bool:
    """Whether the model of a job or of a folder of checkpoints is there."""
    return (home / "models" / path.name.removesuffix(".json") / CARD).exists()


def list_ended_trainings(home: Path, before: float) -> Iterator[Garbage]:
    """Jobs and checkpoints of models that are finished: the card says all that is asked later."""
    for path in sorted([*(home / "jobs").glob("*.json"), *(home / "checkpoints").glob("*")]):
        if is_finished(home, path) and path.stat().st_mtime < before:
            remove = partial(remove_path, path)
            name = f"{path.parent.name}/{path.name}"
            yield Garbage("trainings", name, measure_size(path), remove)


def list_old_vectors(
    home: Path, sets: set[str], before: float, grace_s: float
) -> Iterator[Garbage]:
    """Tags of training sets that are gone or older than retention, and the files of old versions,
    which go when the tables are compacted. sets: training sets whose vectors stay.

    The size of what compaction frees is known afterwards alone.
    """
    store = LanceStore(home / "lance")
    kept = {make_vector_tag(name) for name in sets}
    for table in store.list_tables():
        for tag in store.list_tags(table):
            if tag.startswith(VECTOR_TAG) and tag not in kept:
                yield Garbage("vectors", f"{table} {tag}", 0, partial(store.remove_tag, tag, table))
        folder = store.root / f"{table}.lance"
        old = [path for path in folder.glob("_versions/*") if path.stat().st_mtime < before]
        # The current version and those that a tag keeps are old, too.
        if len(old) > 1 + len(store.list_tags(table)) and measure_size(folder) >= _SMALLEST:
            remove = partial(_join_files, store, table, grace_s)
            yield Garbage("vectors", f"{table}: {len(old)} old versions", 0, remove)


def _join_files(store: LanceStore, table: str, grace_s: float) -> bool:
    store.compact(table, timedelta(days=grace_s / DAY))
    return True
