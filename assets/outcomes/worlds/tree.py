"""A tree of files, written, read and cleared without following a link, also while a server in its
sandbox writes to the same folder."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from pathlib import Path, PurePosixPath
from stat import S_ISDIR, S_ISLNK, S_ISREG
from typing import Any

from warehouse.errors import UnusableInput
from warehouse.storage.digest import digest
from warehouse.storage.untrusted_files import UnreadableFile, hold_folder, open_folder, read_file


class WorldFileError(UnusableInput):
    """A world file, or a name, that cannot be used; says which, what was found and the fix."""


class WorldFailed(RuntimeError):
    """A world that cannot be opened, reset or read here: which and why."""


class PlaceUnusable(WorldFailed, UnusableInput):
    """A place that is a file, or a folder with files of somebody else."""


_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_TIME = 1_767_225_600  # 2026-01-01 UTC: of every seed file, so that listings repeat
_MOST_NAMES, _MOST_BYTES, _DEEPEST = 20_000, 64 * 2**20, 60


@dataclass(frozen=True)
class TreeLink:
    """A symbolic link, never followed."""

    to: str


@dataclass(frozen=True)
class SpecialNode:
    """A pipe, socket or device: `kind` is its type of file."""

    kind: int


Node = (
    bytes | TreeLink | SpecialNode | None
)  # a file's bytes, a link, something else; None is a folder
Tree = Mapping[str, Node]  # by path below the root, `/` between its parts


def write_tree(folder: Path, tree: Tree) -> None:
    """Writes all nodes into an empty folder, with the same modes and times. Raises OSError."""
    with hold_folder(os.open(folder, _OPEN)) as top:
        root: dict[str, Any] = {}
        for path, node in sorted(tree.items()):
            here, (*above, name) = root, PurePosixPath(path).parts
            for part in above:
                here = here.setdefault(part, {})
            here.setdefault(name, {} if node is None else node)
        _write_level(top, root)
        os.fchmod(top, 0o777)
        os.utime(top, (_TIME, _TIME))


def read_tree(folder: Path) -> dict[str, Node]:
    """All that lies below a folder, in order. Raises WorldFailed where it cannot be read."""
    nodes: dict[str, Node] = {}
    left, size = [""], 0
    try:
        while left:
            here = left.pop()
            if here.count("/") >= _DEEPEST:
                raise WorldFailed(f"{here[:60]}…: more than {_DEEPEST} folders one in another")
            for name, kind, target in _list_here(folder, here):
                path = f"{here}/{name}" if here else name
                if S_ISDIR(kind):
                    nodes[path] = None
                    left.append(path)
                elif S_ISREG(kind):
                    nodes[path] = data = read_file(folder, path, _MOST_BYTES - size)
                    size += len(data)
                else:
                    nodes[path] = TreeLink(target) if S_ISLNK(kind) else SpecialNode(kind)
            if len(nodes) > _MOST_NAMES:
                raise WorldFailed(f"{folder.name} holds more than {_MOST_NAMES:,} files")
    except (UnreadableFile, OSError) as error:
        raise WorldFailed(f"the state cannot be read: {error}") from error
    return dict(sorted(nodes.items()))


def digest_tree(tree: Tree) -> str:
    """Of paths, bytes and links; modes and times are left out."""
    return digest([[path, describe_node(node)] for path, node in sorted(tree.items())])


def describe_node(node: Node) -> dict[str, str | int]:
    """What a node is, as JSON: a file by size and SHA-256."""
    if node is None:
        return {"is": "folder"}
    if isinstance(node, TreeLink):
        return {"is": "link", "to": node.to.encode("utf-8", "replace").decode()}
    if isinstance(node, SpecialNode):
        return {"is": "special", "kind": node.kind}
    return {"is": "file", "bytes": len(node), "sha256": sha256(node).hexdigest()}


def add_folders(tree: Tree) -> dict[str, Node]:
    """The tree with every folder on the way to a node, in order, as it is read back."""
    above = {
        str(parent) for path in tree for parent in PurePosixPath(path).parents if str(parent) != "."
    }
    return dict(sorted({**dict.fromkeys(above), **tree}.items()))


def _write_level(here: int, level: Mapping[str, Any]) -> None:
    for name, node in level.items():
        if isinstance(node, Mapping):
            os.mkdir(name, 0o777, dir_fd=here)
            with hold_folder(os.open(name, _OPEN, dir_fd=here)) as below:
                _write_level(below, node)
                os.fchmod(below, 0o777)
                os.utime(below, (_TIME, _TIME))
        elif isinstance(node, TreeLink):
            os.symlink(node.to, name, dir_fd=here)
        else:
            assert isinstance(node, bytes)
            with os.fdopen(os.open(name, _NEW, 0o666, dir_fd=here), "wb") as file:
                file.write(node)
                file.flush()
                # A sandboxed server runs as a user of its own, whatever the umask here.
                os.fchmod(file.fileno(), 0o666)
                os.utime(file.fileno(), (_TIME, _TIME))


def _list_here(root: Path, relative: str) -> list[tuple[str, int, str]]:
    """(name, type and mode, where a link leads) of what lies in one folder."""
    with hold_folder(open_folder(root, relative)) as here, os.scandir(here) as entries:
        found = []
        for entry in islice(entries, _MOST_NAMES + 1):
            kind = entry.stat(follow_symlinks=False).st_mode
            target = os.readlink(entry.name, dir_fd=here) if S_ISLNK(kind) else ""
            found.append((entry.name.encode("utf-8", "replace").decode(), kind, target))
    return sorted(found)
