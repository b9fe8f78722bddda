"""What a working copy knows of itself: which commit it is of, and whether it holds the lease.

<home>/.bucket.json            the record; hidden, as locks are, so that no commit or backup has it
      /.bucket.manifest.json   the commit that the copy is of
      /.bucket.lock            held while record or root are read and moved
      /.bucket.commit.lock     held by who commits
      /.bucket.users.lock      shared by the processes here that work under the lease
"""

import fcntl
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO

from extensions.scale.bucket.bucket import Bucket, BucketUnavailable
from extensions.scale.bucket_home.manifest import Manifest, parse_manifest, read_manifest
from warehouse.errors import UnusableInput
from warehouse.home import BUCKET_LOCKS, MARKER
from warehouse.storage.files import hold_lock, write_atomically
from warehouse.storage.pointers import read_pointer, write_pointer

RECORD = ".bucket.json"
_MANIFEST = ".bucket.manifest.json"
_FIX = "remove it: the next command fetches what is committed"


@dataclass
class Record:
    """Which commit a copy is of. token: of the lease that it holds or held; until, committed: epoch
    seconds; whole: whether all files of the commit are in place."""

    url: str
    version: str = ""
    number: int = 0
    token: str = ""
    until: float = 0.0
    committed: float = 0.0
    whole: bool = True


def read_record(home: Path, url: str) -> Record:
    """The record of a working copy; a new one for an empty folder, and for a home that is to move
    into the bucket. Raises UnusableInput for a copy of another bucket."""
    body = read_pointer(home / RECORD, _FIX)
    if body is None:
        return Record(url)
    try:
        record = Record(**body)
    except TypeError:
        raise UnusableInput(f"{home / RECORD}: is no record of ours; {_FIX}") from None
    if record.url != url:
        raise UnusableInput(
            f"{home}: is a working copy of {record.url}, and [storage] bucket is {url}; name"
            " another home, or that bucket"
        )
    return record


def write_record(home: Path, record: Record) -> None:
    write_pointer(home / RECORD, asdict(record))


def require_own(home: Path, record: Record, number: int) -> None:
    """Raises UnusableInput where a folder holds a home of its own, and the bucket another."""
    if number and not record.number and record.whole and (home / MARKER).exists():
        raise UnusableInput(
            f"{home}: holds a home that never was in {record.url}, which holds one too; name an"
            " empty home to fetch that, or another prefix to keep this"
        )


def read_base(home: Path, bucket: Bucket, version: str) -> Manifest:
    """The commit that a copy is of; from the bucket where the copy of it is lost."""
    if not version:
        return Manifest()
    path = home / _MANIFEST
    try:
        return parse_manifest(path.read_bytes(), version, str(path))
    except (OSError, BucketUnavailable):
        return read_manifest(bucket, version)


def keep_base(home: Path, data: bytes) -> None:
    write_atomically(home / _MANIFEST, data)


def lock_record(home: Path) -> AbstractContextManager[None]:
    return hold_lock(home / BUCKET_LOCKS[0])


def lock_commit(home: Path) -> AbstractContextManager[None]:
    return hold_lock(home / BUCKET_LOCKS[1])


class Users:
    """The processes here that work under the lease, as one of them sees it."""

    def __init__(self, home: Path) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self._file: BinaryIO = (home / BUCKET_LOCKS[2]).open("a+b")

    def is_alone(self) -> bool:
        """Whether no other process works under it; then nobody can begin until `join` or
        `close`."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def join(self) -> None:
        fcntl.flock(self._file, fcntl.LOCK_SH)

    def leave(self) -> None:
        fcntl.flock(self._file, fcntl.LOCK_UN)

    def close(self) -> None:
        self._file.close()


class ReadOnlyCopy(UnusableInput):
    """A working copy that cannot be written."""


@contextmanager
def open_users(home: Path) -> Iterator[Users]:
    """Raises ReadOnlyCopy."""
    try:
        users = Users(home)
    except OSError as error:
        raise ReadOnlyCopy(
            f"{home}: cannot be written ({error.strerror}), so nothing can be fetched to it; make"
            " it writable, or name another home"
        ) from None
    try:
        yield users
    finally:
        users.close()
