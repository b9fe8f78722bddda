"""Saving: a home and its state into a folder of backups; what an earlier one holds is not copied
again."""

import errno
import os
import shutil
import sqlite3
import stat
import time
import uuid
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from extensions.upkeep.backup.manifest import (
    Entry,
    Manifest,
    OtherLayout,
    get_pool_path,
    identify_source,
    list_stamps,
    open_folder,
    read_manifest,
)
from extensions.upkeep.backup.resolve import find_broken_pointer, is_sound
from extensions.upkeep.backup.walk import (
    list_databases,
    list_home_files,
    list_state_files,
    read_pointers,
)
from warehouse.errors import UnusableInput
from warehouse.home import LAYOUT
from warehouse.storage.digest import sha256
from warehouse.storage.files import PointerBroken, hash_file, hold_lock, write_atomically
from warehouse.storage.untrusted_files import UnreadableFile, open_file

# Of a database's header (https://sqlite.org/fileformat2.html#the_database_header): place and value
# of what moves with each opening for writing: the counter of changes, the change that the third was
# written at, and SQLite's version.
_HEADER = ((24, 1), (92, 1), (96, 0))
REPLACED = (errno.ENOENT, errno.ELOOP, errno.ENOTDIR, errno.EINVAL)  # since it was listed
# Written beside and renamed, never changed in place: a second name for the same bytes is safe.
_RENAMED = {"blobs", "encoders", "lance", "models", "router"}


@dataclass
class Saved:
    """What a backup came to. tables: those that have a current version, each marketplace's by
    itself. copied, linked: files that no earlier backup had."""

    stamp: str
    tables: int = 0
    files: int = 0
    copied: int = 0
    linked: int = 0
    bytes_copied: int = 0


def save_backup(home: Path, state: Path, folder: Path, version: str, *, link: bool) -> Saved:
    """Saves home and state as they are now, also while a run goes on. link: files that are never
    changed in place get a second name where that is possible, instead of a copy.

    The backup counts from the moment its manifest is there: a kill leaves the ones before, and
    files that the next one needs not copy. Raises UnusableInput, OSError, and PointerBroken for a
    home whose pointers do not resolve: what a restore of it would make is broken too.
    """
    folder = folder.resolve()
    for root in (home, state):
        if folder.is_relative_to(root) or root.is_relative_to(folder):
            raise UnusableInput(f"{folder}: lies in {root} or holds it; name a folder elsewhere")
    open_folder(folder)
    with hold_lock(folder / ".lock"):
        return _Saver(home, state, folder, link).save(version)


def prune_backups(home: Path, folder: Path, keep: int) -> int:
    """Removes all but the last backups of this home, then the files that only those held; returns
    how many backups went. The last one whose pointers resolve stays, however old: the last with
    tables, where one has any, since a home may have been emptied. Those of other homes stay. A kill
    leaves files that the next call removes. Raises UnusableInput where a backup cannot be read:
    what it holds is not known."""
    folder, source = folder.resolve(), identify_source(home)
    with hold_lock(folder / ".lock"):
        made = [read_manifest(folder, stamp) for stamp in list_stamps(folder)]
        going = _choose_going(folder, [one for one in made if one.source == source], keep)
        for stamp in going:
            (folder / "backups" / f"{stamp}.json").unlink()
        kept = [one for one in made if one.stamp not in going]
        held = {one.sha256 for each in kept for one in (*each.home.values(), *each.state.values())}
        for path in (folder / "files").rglob("*"):
            if path.is_file() and path.name not in held:
                path.unlink()
    return len(going)


def _choose_going(folder: Path, made: Sequence[Manifest], keep: int) -> set[str]:
    """The stamps of all but the last backups, and but the last sound one: of those with tables,
    where there is any."""
    going = {one.stamp for one in made[:-keep]}
    if not going:
        return going
    newest = sorted(made, key=lambda one: (one.count_tables() > 0, one.stamp), reverse=True)
    sound = next((one.stamp for one in newest if is_sound(folder, one)), None)
    return going - {sound}


class _Saver:
    """One backup that is being made."""

    def __init__(self, home: Path, state: Path, folder: Path, link: bool) -> None:
        self._home, self._state, self._folder, self._link = home, state, folder, link
        stamps, self._source = list_stamps(folder), identify_source(home)
        last = self._find_last(stamps)
        self._before = {"home": last.home, "state": last.state} if last else {}
        now = time.time()
        stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(now))
        while stamp in stamps:
            now += 1
            stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(now))
        self._at, self.saved = now, Saved(stamp)

    def _find_last(self, stamps: Sequence[str]) -> Manifest | None:
        """The last backup of this very home: a file of another one may have the same name, size and
        time. Raises UnusableInput."""
        for stamp in reversed(stamps):
            try:
                found = read_manifest(self._folder, stamp)
            except OtherLayout as error:
                raise OtherLayout(
                    f"{self._folder}: holds backups of a home that another version made; back up"
                    f" into a new folder, and keep this one for that version ({error})"
                ) from None
            if found.source == self._source:
                return found
        return None

    def save(self, version: str) -> Saved:
        home, state = self._home, self._state
        pointers = {
            name: self._keep_bytes(home / name, data) for name, data in read_pointers(home).items()
        }
        databases = {}
        for path in list_databases(state, home):
            databases |= self._keep_database(path)
        rest = self._keep_all("state", state, list_state_files(state, home))
        files = self._keep_all("home", home, list_home_files(home, state))
        manifest = Manifest(
            self.saved.stamp,
            self._at,
            LAYOUT,
            version,
            {**files, **pointers},
            {**rest, **databases},
            self._source,
        )
        self._require_pointers(manifest)
        path = self._folder / "backups" / f"{self.saved.stamp}.json"
        write_atomically(path, manifest.dump(), 0o600)
        self.saved.tables = manifest.count_tables()
        self.saved.files = len(manifest.home) + len(manifest.state)
        return self.saved

    def _require_pointers(self, manifest: Manifest) -> None:
        """Raises PointerBroken."""
        if found := find_broken_pointer(self._folder, manifest):
            path, problem = self._home / found[0], found[1]
            raise PointerBroken(f"{path}: {problem}; `toolmill doctor` says what to do")

    def _keep_all(self, side: str, root: Path, paths: Iterable[Path]) -> dict[str, Entry]:
        found = {}
        for path in paths:
            name = str(path.relative_to(root))
            try:
                found[name] = self._keep_file(root, path, self._before.get(side, {}).get(name))
            except FileNotFoundError:  # taken away meanwhile: nothing that stays names it
                continue
            except UnreadableFile as error:
                if error.errno not in REPLACED:
                    raise OSError(error.errno, error.strerror, str(path)) from error
        return found

    def _keep_file(self, root: Path, path: Path, before: Entry | None) -> Entry:
        """One file, read only if it is another one than in the last backup."""
        found = path.lstat()
        facts = (found.st_size, stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid)
        if stat.S_ISLNK(found.st_mode):
            return Entry("", *facts, found.st_mtime_ns, os.readlink(path))
        same = before and (before.size, before.written) == (found.st_size, found.st_mtime_ns)
        if same and before and get_pool_path(self._folder, before.sha256).exists():
            return Entry(before.sha256, *facts, found.st_mtime_ns)
        top = path.relative_to(self._home).parts[0] if path.is_relative_to(self._home) else ""
        renamed = top in _RENAMED or path.suffix == ".parquet"
        sha = self._link_file(path) if renamed and self._link else None
        return Entry(sha or self._copy_file(root, path), *facts, found.st_mtime_ns)

    def _link_file(self, path: Path) -> str | None:
        """A second name for the file; None where the file system has none to give."""
        sha = hash_file(path)
        target = get_pool_path(self._folder, sha)
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(path, target)
        except FileExistsError:
            return sha
        except OSError:
            return None
        if hash_file(target) != sha:  # another file had taken its name
            target.unlink()
            return None
        self.saved.linked += 1
        return sha

    def _copy_file(self, root: Path, path: Path) -> str:
        """A copy, named by the bytes that were copied. A server may put a link in the place of a
        file or folder of its volume at any time: none is followed below the top of the root."""
        top, *below = path.relative_to(root).parts
        at, relative = ((root / top).resolve(), Path(*below)) if below else (root, Path(top))
        beside = self._folder / "files" / f".{os.getpid()}.{uuid.uuid4().hex[:8]}"
        beside.parent.mkdir(exist_ok=True)
        try:
            with open_file(at, relative) as source, os.fdopen(_open_private(beside), "wb") as out:
                shutil.copyfileobj(source, out, 1 << 20)
                out.flush()
                os.fsync(out.fileno())
            return self._settle(beside)
        finally:
            beside.unlink(missing_ok=True)

    def _settle(self, beside: Path) -> str:
        sha = hash_file(beside)
        target = get_pool_path(self._folder, sha)
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            self.saved.copied += 1
            self.saved.bytes_copied += beside.stat().st_size
            beside.replace(target)
        return sha

    def _keep_bytes(self, path: Path, data: bytes) -> Entry:
        sha = sha256(data)
        target = get_pool_path(self._folder, sha)
        if not target.exists():
            write_atomically(target, data, 0o600)
            self.saved.copied += 1
            self.saved.bytes_copied += len(data)
        try:
            found = path.stat()
        except FileNotFoundError:
            found = self._home.stat()
        facts = (0o644, found.st_uid, found.st_gid, found.st_mtime_ns)
        return Entry(sha, len(data), *facts)

    def _keep_database(self, path: Path) -> dict[str, Entry]:
        """A database by SQLite's own copy; of the ledger the journal too, as far as the copy has
        seen it."""
        name, found = str(path.relative_to(self._state)), path.stat()
        before, log = self._before.get("state", {}).get(name), _describe_log(path)
        if before and (before.written, before.log) == (found.st_mtime_ns, log):
            made = {name: before}
            journal = str(Path(name).with_suffix(".journal"))
            if known := self._before["state"].get(journal):
                made[journal] = known
            if all(get_pool_path(self._folder, one.sha256).exists() for one in made.values()):
                return made
        beside = self._folder / "files" / f".{os.getpid()}.{uuid.uuid4().hex[:8]}"
        beside.parent.mkdir(exist_ok=True)
        try:
            os.close(_open_private(beside))
            seen = copy_database(path, beside)
            size = beside.stat().st_size
            facts = (stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid, found.st_mtime_ns)
            made = {name: Entry(self._settle(beside), size, *facts, log=log)}
        finally:
            beside.unlink(missing_ok=True)
        journal_file = path.with_suffix(".journal")
        if journal_file.exists():
            with journal_file.open("rb") as file:
                data = file.read(-1 if seen is None else seen)
            made[str(journal_file.relative_to(self._state))] = self._keep_bytes(journal_file, data)
        return made


def _open_private(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)


def _describe_log(path: Path) -> str:
    """What tells that a database's log is as it was."""
    log = path.with_name(f"{path.name}-wal")
    if not log.exists():
        return ""
    found = log.stat()
    return f"{found.st_size}:{found.st_mtime_ns}"


def copy_database(path: Path, to: Path) -> int | None:
    """Copies a database in one read transaction; returns how much of its journal a ledger has seen,
    None for another database. Equal content gives equal bytes, however often it was opened. Raises
    OSError naming one that cannot be read."""
    try:
        with (
            closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as source,
            closing(sqlite3.connect(to)) as target,
        ):
            source.backup(target)
            target.execute("PRAGMA journal_mode=DELETE")  # else its log would stand beside it
            seen = _read_journaled(target)
    except sqlite3.Error as error:
        raise OSError(f"{path}: {error}; `toolmill doctor` says what to do") from error
    with to.open("r+b") as file:
        for place, value in _HEADER:
            file.seek(place)
            file.write(value.to_bytes(4, "big"))
    return seen


def _read_journaled(database: sqlite3.Connection) -> int | None:
    try:
        row = database.execute("SELECT size FROM journaled").fetchone()
    except sqlite3.OperationalError:
        return None
    return row[0] if row else None
