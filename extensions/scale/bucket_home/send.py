"""Sending: what a working copy holds at one moment, also while a run goes on.

Pointers are read first, all of one moment; then the ledger, by SQLite's own copy; then the rest. So
all that a pointer or an effect names was there before its folder was listed.
"""

import io
import os
import stat
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO

from extensions.scale.bucket.bucket import Bucket
from extensions.scale.bucket_home.carried import Copy, is_same
from extensions.scale.bucket_home.manifest import File, Manifest, Path_, get_object_key, is_carried
from extensions.upkeep.backup.save import REPLACED, copy_database
from extensions.upkeep.backup.walk import read_pointers
from warehouse.storage.digest import sha256
from warehouse.storage.files import hash_file
from warehouse.storage.untrusted_files import UnreadableFile, open_file

THREADS = 16  # requests at once: each waits for the network
_IN_MEMORY = 8 << 20  # bytes of a file that is sent from memory; a larger one from a copy


@dataclass
class Sent:
    """What was sent: files that the last commit, and so the bucket, did not have."""

    files: dict[Path_, File] = field(default_factory=dict)
    objects: int = 0
    size: int = 0


def send_files(bucket: Bucket, copy: Copy, base: Manifest, *, anew: bool = False) -> Sent:
    """Sends what the base lacks of a working copy; anew: what the bucket lacks, also of the base.
    Raises BucketUnavailable, OSError."""
    with TemporaryDirectory(prefix="toolmill-") as scratch, ThreadPoolExecutor(THREADS) as pool:
        there = {one.sha for one in base.files.values()}
        if anew:
            held = {key: size for key, (size, _) in bucket.list_objects("objects/").items()}
            there = {one.sha for one in base.files.values()
                     if held.get(get_object_key(one.sha)) == one.size}  # fmt: skip
        return _Sender(bucket, copy, base, there, Path(scratch), pool).send()


class _Sender:
    """One commit that is being made."""

    def __init__(
        self,
        bucket: Bucket,
        copy: Copy,
        base: Manifest,
        there: set[str],
        scratch: Path,
        pool: ThreadPoolExecutor,
    ) -> None:
        self._bucket, self._copy, self._base = bucket, copy, base
        self._there, self._scratch, self._pool = there, scratch, pool
        self._sent, self._jobs = Sent(), list[Future[None]]()

    def send(self) -> Sent:
        home = self._copy.home
        for name, data in read_pointers(home).items():
            if is_carried("home", name):
                self._send_bytes(("home", name), home / name, data)
        for path, file in self._copy.list_databases():
            self._send_database(path, file)
        for path, file in self._copy.list_rest():
            with _skip_removed(file):
                found = file.lstat()
                known = self._base.files.get(path)
                if known is not None and self._is_there(found, known):
                    self._sent.files[path] = known
                elif stat.S_ISREG(found.st_mode):
                    self._start(path, file)
        for job in self._jobs:
            job.result()
        return self._sent

    def _start(self, path: Path_, file: Path) -> None:
        self._jobs.append(self._pool.submit(self._send_file, path, file))

    def _send_file(self, path: Path_, file: Path) -> None:
        with _skip_removed(file), _open_untrusted(self._copy.get_root(path[0]), file) as at:
            found = os.fstat(at.fileno())
            if found.st_size <= _IN_MEMORY:
                data = at.read()
                self._put(path, sha256(data), len(data), found, io.BytesIO(data))
                return
            beside = self._scratch / sha256(repr(path).encode())
            with beside.open("wb") as out:
                while chunk := at.read(1 << 20):
                    out.write(chunk)
            self._send_copy(path, beside, found)

    def _send_copy(self, path: Path_, beside: Path, found: os.stat_result) -> None:
        with beside.open("rb") as file:
            self._put(path, hash_file(beside), beside.stat().st_size, found, file)
        beside.unlink()

    def _send_bytes(self, path: Path_, file: Path, data: bytes) -> None:
        try:
            found = file.stat()
        except FileNotFoundError:  # replaced since it was read
            found = self._copy.home.stat()
        sha = sha256(data)
        if sha in self._there:
            self._keep(path, sha, len(data), found)
        else:
            args = (path, sha, len(data), found, io.BytesIO(data))
            self._jobs.append(self._pool.submit(self._put, *args))

    def _send_database(self, path: Path_, file: Path) -> None:
        """A database by SQLite's own copy; of the ledger the journal too, as far as the copy has
        seen it."""
        found, known = file.stat(), self._base.files.get(path)
        side, name = path
        journal_path = (side, name.removesuffix(".db") + ".journal")
        journal, log = file.with_suffix(".journal"), file.with_name(f"{file.name}-wal")
        idle = not log.exists() or not log.stat().st_size
        before = self._base.files.get(journal_path)
        if idle and known is not None and self._is_there(found, known) and self._has(before):
            self._sent.files[path] = known
            if before is not None:
                self._sent.files[journal_path] = before
            return
        beside = self._scratch / "database"
        beside.unlink(missing_ok=True)
        seen = copy_database(file, beside)
        self._send_copy(path, beside, found)
        if journal.exists():
            with journal.open("rb") as at:
                data = at.read(-1 if seen is None else seen)
            self._send_bytes(journal_path, journal, data)

    def _is_there(self, found: os.stat_result, known: File) -> bool:
        return is_same(found, known) and self._has(known)

    def _has(self, known: File | None) -> bool:
        return known is None or known.sha in self._there

    def _put(self, path: Path_, sha: str, size: int, found: os.stat_result, data: BinaryIO) -> None:
        if sha not in self._there:
            self._bucket.write_file(get_object_key(sha), data)
            self._there.add(sha)
            self._sent.objects += 1
            self._sent.size += size
        self._keep(path, sha, size, found)

    def _keep(self, path: Path_, sha: str, size: int, found: os.stat_result) -> None:
        mode = stat.S_IMODE(found.st_mode) & 0o777
        self._sent.files[path] = File(
            sha, size, mode, found.st_mtime_ns, found.st_uid, found.st_gid
        )


@contextmanager
def _open_untrusted(root: Path, file: Path) -> Iterator[BinaryIO]:
    """A server may put a link in the place of a file or folder of its volume at any time: none is
    followed below the top of the root."""
    top, *below = file.relative_to(root).parts
    at, relative = ((root / top).resolve(), Path(*below)) if below else (root, Path(top))
    with open_file(at, relative) as opened:
        yield opened


@contextmanager
def _skip_removed(file: Path) -> Iterator[None]:
    """What is taken away meanwhile is named by nothing that stays."""
    try:
        yield
    except UnreadableFile as error:
        if error.errno not in REPLACED:
            raise OSError(error.errno, error.strerror, str(file)) from error
    except FileNotFoundError:
        pass
