"""Fetching: a working copy becomes a commit; pointers move last, what the commit lacks goes after.

A kill leaves files that nothing points to, or a copy whose record says that it is not whole; the
next fetch goes on from there.
"""

import os
import shutil
import sqlite3
import stat
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from extensions.scale.bucket.bucket import Bucket
from extensions.scale.bucket.publish import fetch_object
from extensions.scale.bucket_home.carried import Copy, is_database, is_same
from extensions.scale.bucket_home.manifest import File, Manifest, Path_, get_object_key
from extensions.scale.bucket_home.send import THREADS
from extensions.upkeep.backup.walk import is_pointer
from warehouse.storage.files import hash_file

_PATIENCE_S = 60.0  # for whoever reads a database here
_GROWING = "outcomes/"  # of a home: lines of the calls that were served on a machine


@dataclass
class Fetched:
    """What a fetch came to. objects: files that were not here; removed: those of the copy that the
    commit lacks."""

    objects: int = 0
    size: int = 0
    removed: int = 0


class Fetch:
    """One fetch: `bring` what may lie there before it is current, then `place` the rest."""

    def __init__(self, bucket: Bucket, copy: Copy, base: Manifest, wanted: Manifest) -> None:
        self._bucket, self._copy, self._base, self._wanted = bucket, copy, base, wanted
        self._late: list[tuple[Path_, Path]] = []  # (path, the file that takes its place)
        self.fetched = Fetched()

    def bring(self) -> None:
        """Fetches what is not here: a new file to its place, one that takes another's, or that
        points to others, beside it. Raises BucketUnavailable, OSError."""
        wanted = self._wanted.files
        missing = [path for path, one in wanted.items() if not self._has(path, one)]
        try:
            with ThreadPoolExecutor(THREADS) as pool:
                for made in pool.map(self._bring_one, missing):
                    self._late += [made] if made else []
        except BaseException:
            self.close()
            raise
        self.fetched.objects = len(missing)
        self.fetched.size = sum(wanted[path].size for path in missing)

    def place(self) -> None:
        """Makes the copy what the commit is. Its record says meanwhile that it is not whole."""
        for path, beside in sorted(self._late, key=lambda one: _is_pointer(one[0])):
            self._place(path, beside)
        here = dict(self._copy.list_all()) | self._list_unchanged()
        for path in here.keys() - self._wanted.files.keys():
            if path in self._base.files or not _is_kept(path):
                here[path].unlink(missing_ok=True)
                self._remove_empty(here[path].parent, self._copy.get_root(path[0]))
                self.fetched.removed += 1

    def _list_unchanged(self) -> dict[Path_, Path]:
        """Files that are as the last commit had them, of whatever kind: the journal of a ledger
        that moved to Postgres since is none of this machine's own."""
        known = ((path, self._copy.find_file(path)) for path in self._base.files)
        return {path: file for path, file in known
                if file.is_file() and is_same(file.lstat(), self._base.files[path])}  # fmt: skip

    def close(self) -> None:
        """Removes what was fetched and not placed."""
        for _, beside in self._late:
            beside.unlink(missing_ok=True)

    def _has(self, path: Path_, one: File) -> bool:
        """Whether a file is here as the commit has it; one whose time alone differs is hashed."""
        file = self._copy.find_file(path)
        try:
            found = file.lstat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        if not stat.S_ISREG(found.st_mode) or found.st_size != one.size:
            return False
        if is_database(path) and _has_log(file):
            return False
        before = self._base.files.get(path)
        known = is_same(found, before) and before is not None and before.sha == one.sha
        # A database is never read as a file: closing it would drop the locks of whoever has it open
        # in this process.
        if not known and (is_database(path) or hash_file(file) != one.sha):
            return False
        _set_facts(file, one, found)
        return True

    def _bring_one(self, path: Path_) -> tuple[Path_, Path] | None:
        one, file = self._wanted.files[path], self._copy.find_file(path)
        _make_way(self._copy.get_root(path[0]), file)
        beside = file.with_name(f".{file.name[:200]}.{os.getpid()}.{uuid.uuid4().hex[:8]}")
        try:
            fetch_object(self._bucket, get_object_key(one.sha), one.sha, one.size, beside)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise
        if _is_growing(path) and file.exists():
            _add_lines(beside, file, self._base.files.get(path))
        else:
            _set_facts(beside, one, None)
        if file.exists() or _is_pointer(path) or is_database(path) or file.suffix == ".journal":
            return path, beside
        beside.replace(file)
        return None

    def _place(self, path: Path_, beside: Path) -> None:
        file = self._copy.find_file(path)
        if is_database(path) and _fill_database(beside, file):
            beside.unlink()
        else:
            beside.replace(file)

    @staticmethod
    def _remove_empty(folder: Path, root: Path) -> None:
        with suppress(OSError):  # not empty
            while folder != root:
                folder.rmdir()
                folder = folder.parent


def _fill_database(fetched: Path, file: Path) -> bool:
    """Fills a database that is there in one transaction: a process that has it open, and ends
    later, would take the log of one that took its name away. Whether it did; a damaged one is
    replaced."""
    if not file.exists():
        return False
    try:
        with (
            closing(sqlite3.connect(fetched)) as source,
            closing(sqlite3.connect(file, timeout=_PATIENCE_S)) as target,
        ):
            source.backup(target)
    except sqlite3.DatabaseError as error:
        if isinstance(error, sqlite3.OperationalError):  # locked, or a full disk
            raise OSError(f"{file}: {error}") from error
        for end in ("-wal", "-shm"):
            file.with_name(file.name + end).unlink(missing_ok=True)
        return False
    return True


def _is_pointer(path: Path_) -> bool:
    side, name = path
    return side == "home" and ("/" not in name or is_pointer(name))


def _is_kept(path: Path_) -> bool:
    """Whether a file that no commit ever had stays: an answer that was paid for here, which a
    ledger in Postgres still names, and lines of served calls."""
    return _is_growing(path) or (path[0] == "home" and path[1].startswith("blobs/"))


def _is_growing(path: Path_) -> bool:
    return path[0] == "home" and path[1].startswith(_GROWING)


def _has_log(file: Path) -> bool:
    """Whether a database holds more than its file."""
    log = file.with_name(f"{file.name}-wal")
    return log.exists() and log.stat().st_size > 0


def _add_lines(fetched: Path, here: Path, before: File | None) -> None:
    """Adds the lines to a fetched file that were written here since the last commit."""
    data, size = here.read_bytes(), before.size if before else 0
    known = set(fetched.read_bytes().split(b"\n"))
    new = [line for line in data[size:].split(b"\n") if line not in known]
    with fetched.open("ab") as file:
        file.write(b"".join(line + b"\n" for line in new))


def _set_facts(file: Path, one: File, found: os.stat_result | None) -> None:
    """Mode, owner and time of a file as they were where it was sent from."""
    if found is None or stat.S_IMODE(found.st_mode) != one.mode & 0o777:
        file.chmod(one.mode & 0o777)
    if found is None or (found.st_uid, found.st_gid) != (one.owner, one.group):
        with suppress(PermissionError):
            os.chown(file, one.owner, one.group)
    if found is None or found.st_mtime_ns != one.written:
        os.utime(file, ns=(one.written, one.written))


def _make_way(root: Path, file: Path) -> None:
    """The folders on the way to a file, none of them a link or a file; a folder in its own place
    goes. A link at the top of the root is its owner's, who keeps that folder on another disk."""
    root.mkdir(parents=True, exist_ok=True)
    here = root
    parts = file.relative_to(root).parts
    for at, name in enumerate(parts[:-1]):
        here /= name
        if (here.is_symlink() and at > 0) or (here.exists() and not here.is_dir()):
            here.unlink(missing_ok=True)
        here.mkdir(exist_ok=True)
    if file.is_symlink():
        file.unlink()
    elif file.is_dir():
        shutil.rmtree(file)
