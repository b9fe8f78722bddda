"""What a kind of world is, and the state that most have: a folder of files."""

import json
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from random import Random
from typing import Any, Protocol

from assets.outcomes.worlds.changes import Facts
from assets.outcomes.worlds.tree import (
    Node,
    Tree,
    WorldFailed,
    WorldFileError,
    add_folders,
    clear_folder,
    describe_node,
    read_tree,
    write_tree,
)
from assets.servers.deploy.grants import LocalSite
from warehouse.storage.digest import canonical_json

Action = Callable[[dict[str, Node], str], Node]  # (tree, path of a file that is hit) -> what it is


class WorldState(Protocol):
    """The state of one open world. folder: what a server is shown; sites: what it is led to;
    first_facts: of the state as it was before a fault was put in."""

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
    """One kind. generators: by name, of (random numbers, number of items). actions: what a fault
    does to each file that it hits. hold: what a fault keeps hold of while the world is open, of the
    file that it hits. programs: what must be on this host, with its Debian package. open_state:
    of one that is more than files in a folder, with the actions that it knows (faults)."""

    name: str
    generators: Mapping[str, Callable[[Random, int], Tree]]
    read_facts: Callable[[Tree], Facts]
    actions: Mapping[str, Action] = field(default_factory=dict)
    hold: Mapping[str, Callable[[Path], AbstractContextManager[Any]]] = field(default_factory=dict)
    programs: Mapping[str, str] = field(default_factory=dict)
    open_state: Callable[..., WorldState] | None = None
    faults: tuple[str, ...] = ()

    def list_actions(self) -> list[str]:
        """What a fault can do."""
        if self.open_state:
            return sorted(self.faults)
        return sorted({REMOVE, *_ACTIONS, *self.actions, *self.hold, READ_ONLY})


READ_ONLY = "read_only"  # the folder is shown without the right to write
REMOVE = "remove"
JUNK = b"\x00\xffthis is no longer what it was\n"


def damage_tree(kind: WorldKind, tree: Tree, action: str, target: str) -> dict[str, Node]:
    """The tree with a fault in each file that matches. Raises WorldFileError where none does."""
    hit = [path for path, node in tree.items() if fnmatchcase(path, target) and node is not None]
    if not hit:
        raise WorldFileError(f"a fault {action!r} hits nothing: no file matches {target!r}")
    if action == REMOVE:
        return {path: node for path, node in tree.items() if path not in hit}
    make = {**_ACTIONS, **kind.actions}[action]
    return {**tree, **{path: make(dict(tree), path) for path in hit}}


class FolderState:
    """A state that is the files of one folder."""

    sites: tuple[LocalSite, ...] = ()

    def __init__(self, kind: WorldKind, folder: Path, tree: Tree, first: Tree) -> None:
        self.folder, self._kind, self._tree = folder, kind, add_folders(tree)
        self.first_facts = kind.read_facts(add_folders(first))

    def reset(self) -> None:
        clear_folder(self.folder)
        write_tree(self.folder, self._tree)

    def read_facts(self) -> Facts:
        return self._kind.read_facts(read_tree(self.folder))

    def close(self) -> None:
        """Nothing is held open."""


def read_file_facts(tree: Tree) -> Facts:
    """A fact for each node: a small text as it is, anything else by what it is."""
    return {path: _describe_file(node) for path, node in tree.items()}


def _describe_file(node: Node) -> Any:
    if isinstance(node, bytes) and len(node) <= _MOST_TEXT:
        try:
            return node.decode()
        except UnicodeDecodeError:
            pass
    return describe_node(node)


def add_fact(facts: Facts, key: str, value: Any, counts: Counter[str]) -> None:
    """Adds a fact under its key or, where that is taken, under a name of its own: two alike are
    another state than one. counts: of the keys that were taken; one for all calls, so that a
    million alike take no longer each than the first."""
    name = key
    while name in facts:
        counts[key] += 1
        name = f"{key}+{counts[key]}"
    facts[name] = value


def read_json(text: str) -> Any:
    """The JSON value that a server wrote; the text itself where it is none, or has no canonical
    form (a number beyond 2**53, NaN, half a character)."""
    try:
        result = json.loads(text)
        canonical_json(result)
    except (ValueError, RecursionError):
        return text
    return result


def require_file(tree: Tree, path: str) -> bytes:
    """The bytes of a file that a world of this kind is made of. Raises WorldFailed."""
    node = tree.get(path)
    if not isinstance(node, bytes):
        raise WorldFailed(f"{path} is gone, or no file any more")
    return node


_MOST_TEXT = 1 << 18
_ACTIONS: dict[str, Action] = {"empty": lambda tree, path: b"", "corrupt": lambda tree, path: JUNK}
