"""What a kind of world is, and the state that most have: a folder of files."""

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Protocol

from assets.outcomes.worlds.changes import Facts
from assets.outcomes.worlds.tree import Tree, add_folders, describe_node, read_tree, write_tree
from assets.servers.deploy.grants import LocalSite
from warehouse.storage.digest import canonical_json
from warehouse.storage.untrusted_files import clear_folder


class WorldState(Protocol):
    """folder: what a server is shown; sites: what it is led to; first_facts: of the first state."""

    folder: Path
    sites: tuple[LocalSite, ...]
    first_facts: Facts

    def reset(self) -> None:
        """Makes the state the first one, whatever was done to it. Raises WorldFailed or OSError."""
        ...

    def read_facts(self) -> Facts:
        """Raises WorldFailed."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class WorldKind:
    """generators: name -> of (random numbers, items). programs: needed here, with their package.
    open_state: of (folder, seed files), where the state is more than files."""

    name: str
    generators: Mapping[str, Callable[[Random, int], Tree]]
    read_facts: Callable[[Tree], Facts]
    programs: Mapping[str, str] = field(default_factory=dict)
    open_state: Callable[[Path, Tree], WorldState] | None = None


class FolderState:
    """A state that is the files of one folder."""

    sites: tuple[LocalSite, ...] = ()

    def __init__(self, kind: WorldKind, folder: Path, tree: Tree) -> None:
        self.folder, self._kind, self._tree = folder, kind, add_folders(tree)
        self.first_facts = kind.read_facts(self._tree)

    def reset(self) -> None:
        clear_folder(self.folder)
        write_tree(self.folder, self._tree)

    def read_facts(self) -> Facts:
        return self._kind.read_facts(read_tree(self.folder))

    def close(self) -> None:
        """Nothing is held open."""


def read_file_facts(tree: Tree) -> Facts:
    """A fact for each node: a small text as it is, anything else by what it is."""
    facts: Facts = {}
    for path, node in tree.items():
        facts[path] = describe_node(node)
        if isinstance(node, bytes) and len(node) <= _MOST_TEXT:
            with suppress(UnicodeDecodeError):
                facts[path] = node.decode()
    return facts


def read_json(text: str) -> Any:
    """The JSON value that a server wrote; the text itself where it has no canonical form."""
    try:
        result = json.loads(text)
        canonical_json(result)
    except (ValueError, RecursionError):
        return text
    return result


_MOST_TEXT = 1 << 18
