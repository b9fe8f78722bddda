"""What of a home and its state is backed up, and in which order it is read.

Pointers are read first, all of one moment; then the ledger; then the rest. So all that a pointer or
an effect names was there before the folder that holds it was listed.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path

# Installed packages and caches are fetched again; locks are of processes.
_LEFT_OUT = {"artifacts", "cache", "state"}
_POINTERS = (
    *("router/*.json", "releases/*.json", "releases/*.jsonl", "champions/*.json"),
    *("champions/*.jsonl", "tables/*/*/HEAD.json", "tables/*/*/HEADS.jsonl"),
)
_TRIES = 20
_VOLUMES = "volumes"  # of a state: what servers keep, whatever its names look like
_COPIED = (".db", ".db-wal", ".db-shm", ".journal")  # by SQLite; the journal beside its ledger


def read_pointers(home: Path) -> dict[str, bytes]:
    """Every pointer and its history as they were at one moment: read until two readings agree, at
    most 20 times; a run moves a pointer every few seconds, and reading all takes a few ms."""
    before = _read_all(home)
    for _ in range(_TRIES):
        now = _read_all(home)
        if now == before:
            break
        before = now
    return before


def list_pointers(home: Path) -> list[Path]:
    """The files of pointers and of their histories."""
    return sorted(path for pattern in _POINTERS for path in home.glob(pattern))


def is_pointer(name: str) -> bool:
    """Whether a path below a home is one of a pointer, or of the history of one."""
    parts = name.split("/")
    patterns = (pattern.split("/") for pattern in _POINTERS)
    return any(len(one) == len(parts) and all(map(fnmatchcase, parts, one)) for one in patterns)


def _read_all(home: Path) -> dict[str, bytes]:
    found = {}
    for path in list_pointers(home):
        try:
            found[str(path.relative_to(home))] = path.read_bytes()
        except FileNotFoundError:  # a release that is pruned meanwhile
            continue
    return found


def list_home_files(home: Path, state: Path) -> Iterator[Path]:
    """What lies in a home but its pointers, its state, what is fetched again, locks and files that
    are being written."""
    pointers = set(list_pointers(home))
    tops = [path for path in sorted(home.iterdir()) if path.name not in _LEFT_OUT and path != state]
    yield from (path for path in _walk(home, tops) if path not in pointers)


def list_state_files(state: Path, home: Path) -> Iterator[Path]:
    """What lies in a state but our SQLite databases with the ledger's journal, and a home in it.
    The journal of a ledger in Postgres is a file like others; Postgres is not backed up here."""
    for path in _walk_state(state, home):
        alone = path.suffix == ".journal" and not path.with_suffix(".db").exists()
        if alone or _is_of_a_server(state, path) or not path.name.endswith(_COPIED):
            yield path


def list_databases(state: Path, home: Path) -> list[Path]:
    """SQLite's databases, the ledger first: what it names is listed after it was copied."""
    found = [path for path in _walk_state(state, home) if path.suffix == ".db"]
    own = [path for path in found if not _is_of_a_server(state, path)]
    return sorted(own, key=lambda path: (path.name != "ledger.db", str(path)))


def _is_of_a_server(state: Path, path: Path) -> bool:
    """What a server keeps in a volume of its own is files like others."""
    return path.relative_to(state).parts[0] == _VOLUMES


def _walk_state(state: Path, home: Path) -> Iterator[Path]:
    return _walk(state, state.iterdir() if state.is_dir() else (), but=home)


def _walk(root: Path, tops: Iterable[Path], but: Path | None = None) -> Iterator[Path]:
    """Files and links below some entries of a root, but for one folder. Not by recursion: a server
    may put a thousand folders one in another."""
    left, volumes = sorted(tops, reverse=True), f"{root / _VOLUMES}{os.sep}"
    while left:
        path = left.pop()
        if path == but:
            continue
        if not str(path).startswith(volumes) and _is_passing(path):
            continue
        if _is_walked(root, path):
            with suppress(FileNotFoundError, NotADirectoryError):  # taken away meanwhile
                left += sorted(path.iterdir(), reverse=True)
        elif path.is_symlink() or path.is_file():
            yield path


def _is_passing(path: Path) -> bool:
    """Locks, files that are being written, folders on their way out."""
    hidden = path.name.startswith(".going-") or (path.name.startswith(".") and path.is_file())
    return hidden or path.name.endswith(".lock")


def _is_walked(root: Path, path: Path) -> bool:
    """Whether a path is a folder of its own, or one that its owner keeps on another disk by a link
    at the top of the root. Links further in may be anybody's."""
    if not path.is_symlink():
        return path.is_dir()
    leads_to = Path(os.path.normpath(path.parent / path.readlink()))
    return path.parent == root and not leads_to.is_relative_to(root) and path.is_dir()
