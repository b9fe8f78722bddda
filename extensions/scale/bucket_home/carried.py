"""What of a home and its state a commit holds, where that lies on this machine, and what of it was
changed here."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from extensions.scale.bucket_home.manifest import VOLUMES, File, Manifest, Path_, is_carried
from extensions.upkeep.backup.save import copy_database
from extensions.upkeep.backup.walk import (
    list_databases,
    list_home_files,
    list_pointers,
    list_state_files,
)
from warehouse.ledger.files import find_journal
from warehouse.storage.files import hash_file


@dataclass(frozen=True)
class Copy:
    """A working copy: a home and its state on this machine."""

    home: Path
    state: Path

    @property
    def _ledger(self) -> Path:
        return self.state / "ledger.db"

    def get_root(self, side: str) -> Path:
        return self.home if side == "home" else self.state

    def find_file(self, path: Path_) -> Path:
        side, name = path
        return self.get_root(side) / name

    def list_databases(self) -> Iterator[tuple[Path_, Path]]:
        """SQLite's databases, the ledger first."""
        return self._name("state", list_databases(self.state, self.home))

    def list_pointers(self) -> Iterator[tuple[Path_, Path]]:
        return self._name("home", list_pointers(self.home))

    def list_rest(self) -> Iterator[tuple[Path_, Path]]:
        """All files but pointers, databases and the ledger's journal, in the order in which a
        backup reads them. Links are not carried: who fetches would write by way of one; nor is the
        journal of a ledger in Postgres, which is of what this machine alone was answered."""
        rest = list_state_files(self.state, self.home)
        yield from self._name("state", (one for one in rest if one != find_journal(self._ledger)))
        if self.home.is_dir():
            yield from self._name("home", list_home_files(self.home, self.state))

    def list_all(self) -> Iterator[tuple[Path_, Path]]:
        """Every file here that a commit would hold."""
        for path, file in self.list_databases():
            yield path, file
            side, name = path
            if (journal := file.with_suffix(".journal")).exists():
                yield (side, name.removesuffix(".db") + ".journal"), journal
        yield from self.list_rest()
        yield from self.list_pointers()

    def _name(self, side: str, files: Iterator[Path] | list[Path]) -> Iterator[tuple[Path_, Path]]:
        root = self.get_root(side)
        for file in files:
            name = file.relative_to(root).as_posix()
            if is_carried(side, name) and not file.is_symlink():
                yield (side, name), file


def is_database(path: Path_) -> bool:
    """Whether a path is one of our SQLite databases; what a server keeps in its volume is none."""
    side, name = path
    return side == "state" and name.endswith(".db") and not name.startswith(f"{VOLUMES}/")


def is_same(found: os.stat_result, known: File | None) -> bool:
    """Whether a file is as it was, by size and time of change."""
    return known is not None and (known.size, known.written) == (found.st_size, found.st_mtime_ns)


def count_given_up(copy: Copy, base: Manifest) -> int:
    """Files that were written here since the base, but databases, whose state follows from reading
    too, and lines of served calls, which a fetch keeps."""
    return sum(
        not is_same(file.lstat(), base.files.get(path))
        for path, file in copy.list_all()
        if file.suffix not in (".db", ".journal") and not path[1].startswith("outcomes/")
    )


def count_changed(copy: Copy, base: Manifest) -> int:
    """Files of a working copy that are others than in the base, gone or new, by size and time; a
    database, which changes by being opened, by what it holds."""
    here = dict(copy.list_all())
    with TemporaryDirectory(prefix="toolmill-") as scratch:
        changed = sum(
            not is_same(file.lstat(), base.files.get(path))
            and not (is_database(path) and _holds(file, base.files.get(path), Path(scratch)))
            for path, file in here.items()
        )
    return changed + len(base.files.keys() - here.keys())


def _holds(file: Path, known: File | None, scratch: Path) -> bool:
    """Whether a database holds what the base has of it."""
    if known is None:
        return False
    beside = scratch / "database"
    beside.unlink(missing_ok=True)
    try:
        copy_database(file, beside)
    except OSError:  # damaged here
        return False
    return hash_file(beside) == known.sha
