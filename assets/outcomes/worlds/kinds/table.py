"""All kinds of worlds, by name."""

from collections.abc import Mapping

from assets.outcomes.worlds.errors import WorldFileError
from assets.outcomes.worlds.kinds import (
    folder,
    git,
    mail,
    memory,
    postgres,
    site,
    sqlite,
    workbook,
)
from assets.outcomes.worlds.kinds.kind import Kind
from assets.outcomes.worlds.spec import World

_ALL = (folder, git, mail, memory, postgres, site, sqlite, workbook)
KINDS: Mapping[str, Kind] = {one.KIND.name: one.KIND for one in _ALL}


def find_kind(name: str) -> Kind:
    """Raises WorldFileError for a kind that does not exist."""
    if name not in KINDS:
        raise WorldFileError(f"kind {name!r} does not exist; known: {', '.join(sorted(KINDS))}")
    return KINDS[name]


def check_world(world: World) -> None:
    """Raises WorldFileError where the world's kind has no such generator or action, or is none."""
    try:
        kind = find_kind(world.kind)
    except WorldFileError as error:
        raise WorldFileError(f"{world.path}: {error}") from None
    if world.generator and world.generator.name not in kind.generators:
        known = ", ".join(sorted(kind.generators)) or "none"
        problem = f"generator {world.generator.name!r}: kind {kind.name!r} has {known}"
        raise WorldFileError(f"{world.path}: {problem}")
    for fault in world.faults:
        if fault.action not in kind.list_actions():
            known = ", ".join(kind.list_actions())
            problem = (
                f"fault {fault.name!r}: action {fault.action!r}: kind {kind.name!r} has {known}"
            )
            raise WorldFileError(f"{world.path}: {problem}")
