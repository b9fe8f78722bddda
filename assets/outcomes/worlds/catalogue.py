"""All worlds that are known: those that come with the package, and the user's own."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from assets.outcomes.worlds.file_kinds import FOLDER_KIND, MEMORY_KIND, SQLITE_KIND, WORKBOOK_KIND
from assets.outcomes.worlds.git import GIT_KIND
from assets.outcomes.worlds.kind import WorldKind
from assets.outcomes.worlds.site import SITE_KIND
from assets.outcomes.worlds.spec import WorldSpec, load_world
from assets.outcomes.worlds.tree import WorldFileError

KINDS: Mapping[str, WorldKind] = {
    kind.name: kind
    for kind in (FOLDER_KIND, GIT_KIND, MEMORY_KIND, SITE_KIND, SQLITE_KIND, WORKBOOK_KIND)
}


def find_kind(name: str) -> WorldKind:
    """Raises WorldFileError for a kind that does not exist."""
    if name not in KINDS:
        raise WorldFileError(f"kind {name!r} does not exist; known: {', '.join(sorted(KINDS))}")
    return KINDS[name]


def check_world(world: WorldSpec) -> None:
    """Raises WorldFileError where the world's kind has no such generator, or is none."""
    try:
        kind = find_kind(world.kind)
    except WorldFileError as error:
        raise WorldFileError(f"{world.path}: {error}") from None
    if world.generator and world.generator.name not in kind.generators:
        names = ", ".join(sorted(kind.generators)) or "none"
        problem = f"generator {world.generator.name!r}: kind {kind.name!r} has {names}"
        raise WorldFileError(f"{world.path}: {problem}")


SHIPPED = Path(__file__).with_name("shipped")


@dataclass(frozen=True)
class KnownWorld:
    """A world file: its world, or why there is none."""

    path: Path
    world: WorldSpec | None = None
    problem: str | None = None


def list_worlds(paths: Sequence[Path] = ()) -> list[KnownWorld]:
    """Every world file, shipped ones first, with what is wrong with it. Raises WorldFileError for a
    folder that is not there."""
    worlds = [_read_known(path) for folder in (SHIPPED, *paths) for path in _list_files(folder)]
    by_name: dict[str, list[Path]] = {}
    for entry in worlds:
        if entry.world:
            by_name.setdefault(entry.world.name, []).append(entry.path)
    return [_tell_twin(item, by_name) for item in worlds]


def find_world(name: str, paths: Sequence[Path] = ()) -> WorldSpec:
    """The world of one name. Raises WorldFileError for none, two, or an unusable file."""
    worlds = list_worlds(paths)
    for world in worlds:
        if world.world and world.world.name == name:
            if world.problem:
                raise WorldFileError(world.problem)
            return world.world
    # The file that was meant may be one that could not be read.
    for world in worlds:
        if world.problem and world.path.stem == name:
            raise WorldFileError(world.problem)
    names = ", ".join(sorted({item.world.name for item in worlds if item.world}))
    raise WorldFileError(f"no world is called {name[:60]!r}; known: {names}")


def _list_files(folder: Path) -> list[Path]:
    if folder.is_file():
        return [folder]
    if not folder.is_dir():
        raise WorldFileError(f"worlds.paths: {folder} is no folder, and no world file")
    return sorted(folder.glob("*.toml"))


def _read_known(path: Path) -> KnownWorld:
    try:
        world = load_world(path)
        check_world(world)
        world.read_files()
    except WorldFileError as error:
        return KnownWorld(path, problem=str(error))
    return KnownWorld(path, world)


def _tell_twin(entry: KnownWorld, by_name: dict[str, list[Path]]) -> KnownWorld:
    if entry.world is None or len(by_name[entry.world.name]) == 1 or entry.path.parent == SHIPPED:
        return entry
    others = ", ".join(str(path) for path in by_name[entry.world.name])
    message = f"two worlds are called {entry.world.name!r}: {others}; rename one"
    return KnownWorld(entry.path, entry.world, message)
