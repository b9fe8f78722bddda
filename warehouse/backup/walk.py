"""What of a home and its state is backed up, and in which order it is read.

Pointers are read first, all of one moment; then the ledger; then the rest. So all that a pointer or
an effect names was there before the folder that holds it was listed.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

# Installed packages and caches are fetched again; locks are of processes.
_LEFT_OUT = {"artifacts", "cache", "state"}
_POINTERS = (
    *("router/*.json", "releases/*.json", "releases/*.jsonl", "champions/*.json"),
    *("champions/*.jsonl", "tables/*/*/HEAD.json", "tables/*/*/HEADS.jsonl"),
)
_TRIES = 20
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


def _read_all(home: Path) -> dict[str, bytes]:
    found = {}
    for path in sorted(path for pattern in _POINTERS for path in home.glob(pattern)):
        try:
            found[str(path.relative_to(home))] = path.read_bytes()
        except FileNotFoundError:  # a release that is pruned meanwhile
            continue
    return found


def list_home_files(home: Path, state: Path) -> Iterator[Path]:
    """What lies in a home but its pointers, its state, what is fetched again, locks and files that
    are being written."""
    pointers = {path for pattern in _POINTERS for path in home.glob(pattern)}
    tops = [path for path in sorted(home.iterdir()) if path.name not in _LEFT_OUT and path != state]
    yield from (path for path in _walk(tops) if path not in pointers)


def list_state_files(state: Path) -> Iterator[Path]:
    """What lies in a state but our SQLite databases and the ledger's journal."""
    if not state.is_dir():
        return
    for path in _walk(sorted(state.iterdir())):
        if _is_of_a_server(state, path) or not path.name.endswith(_COPIED):
            yield path


def list_databases(state: Path) -> list[Path]:
    """SQLite's databases, the ledger first: what it names is listed after it was copied."""
    found = [path for path in state.rglob("*.db") if not _is_of_a_server(state, path)]
    return sorted(found, key=lambda path: (path.name != "ledger.db", str(path)))


def _is_of_a_server(state: Path, path: Path) -> bool:
    """What a server keeps in a volume of its own is files like others."""
    return path.relative_to(state).parts[0] == "volumes"


def _walk(tops: Iterable[Path]) -> Iterator[Path]:
    for path in tops:
        if path.name.endswith(".lock") or (path.name.startswith(".") and path.is_file()):
            continue
        if path.is_symlink() or path.is_file():
            yield path
        elif path.is_dir() and not path.name.startswith(".going-"):
            yield from _walk(sorted(path.iterdir()))
