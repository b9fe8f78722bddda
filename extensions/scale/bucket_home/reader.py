"""Reading a home that lives in a bucket: its working copy here becomes what is committed."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from extensions.scale.bucket.bucket import Bucket, BucketUnavailable
from extensions.scale.bucket.pointer import StaleRead
from extensions.scale.bucket_home.carried import Copy, count_given_up
from extensions.scale.bucket_home.fetch import Fetch, Fetched
from extensions.scale.bucket_home.manifest import Manifest, dump_manifest, read_manifest
from extensions.scale.bucket_home.policy import StoragePolicy
from extensions.scale.bucket_home.root import Root, read_root
from extensions.scale.bucket_home.working_copy import (
    RECORD,
    ReadOnlyCopy,
    Record,
    keep_base,
    lock_record,
    open_users,
    read_base,
    read_record,
    require_own,
    write_record,
)


@dataclass(frozen=True)
class HomeReader:
    """A home in a bucket and its working copy here. program: this version. tell: takes lines for
    a person."""

    bucket: Bucket
    home: Path
    state: Path
    policy: StoragePolicy
    program: str
    tell: Callable[[str], None] = field(default=lambda _: None)

    @property
    def copy(self) -> Copy:
        return Copy(self.home, self.state)

    def refresh(self, *, strict: bool = False) -> Fetched:
        """Makes the working copy what is committed, unless a process here works on it. Where that
        fails and what was fetched last is whole, it is told of and that is read; strict: raised.
        Raises BucketUnavailable, UnusableInput."""
        try:
            return self._refresh(strict)
        except ReadOnlyCopy as error:
            if strict:
                raise
            self.tell(f"{error}; what is here is read, whatever is committed")
            return Fetched()

    def _refresh(self, strict: bool) -> Fetched:
        first = self._ask_before_first_use()
        if first and not first.number:
            self.tell(self._describe_nothing())
            return Fetched()
        with open_users(self.home) as users, lock_record(self.home):
            if not users.is_alone():
                return Fetched()
            record = read_record(self.home, self.bucket.url)
            try:
                root = read_root(self.bucket)
                require_own(self.home, record, root.number)
                if not root.number:
                    self.tell(self._describe_nothing())
                held = root.lease.token if root.lease else ""
                ours, abandoned = bool(held) and held == record.token, bool(record.token)
                return self.reconcile(record, root, ours, abandoned)
            except BucketUnavailable as error:
                now = read_record(self.home, self.bucket.url)
                if strict or not now.number or not now.whole:
                    raise
                self.tell(f"{error}; commit {record.number} is read, which was fetched last")
                return Fetched()

    def _ask_before_first_use(self) -> Root | None:
        """The root where there is no working copy yet, asked for before any file is made: where
        the bucket does not answer, none is left. None where there is a copy. Raises
        BucketUnavailable."""
        return None if (self.home / RECORD).exists() else read_root(self.bucket)

    def _describe_nothing(self) -> str:
        return f"{self.bucket.url}: nothing is committed there yet"

    def reconcile(self, record: Record, root: Root, ours: bool, abandoned: bool) -> Fetched:
        """Makes the copy what the root names; one that is of that commit stays, with whatever was
        made here since. ours: whether nobody has held the home since this copy did; abandoned:
        whether this copy held it and never gave it back."""
        if root.number < record.number:
            raise StaleRead(
                f"{self.bucket.url}: says commit {root.number} and has said {record.number}; it or"
                " a cache before it answers with what was: try again later"
            )
        if root.version == record.version and record.whole:
            return Fetched()
        wanted = read_manifest(self.bucket, root.version)
        if ours and record.whole and wanted.previous == record.version:
            self._note(record, wanted)  # committed here, and killed before that was noted
            return Fetched()
        base = read_base(self.home, self.bucket, record.version)
        told = bool(record.number) and record.whole and not ours
        given_up = count_given_up(self.copy, base) if told else 0
        if given_up or (abandoned and not ours):  # a run here was killed, or lost the home
            self.tell(
                f"what was made here after commit {record.number} and not committed ({given_up}"
                f" files) gives way to commit {root.number}, which another machine made"
            )
        fetch = Fetch(self.bucket, self.copy, base, wanted)
        try:
            fetch.bring()
            record.whole = False
            write_record(self.home, record)
            fetch.place()
        finally:
            fetch.close()
        self._note(record, wanted)
        return fetch.fetched

    def _note(self, record: Record, wanted: Manifest) -> None:
        keep_base(self.home, dump_manifest(wanted))
        record.version, record.number, record.whole = wanted.version, wanted.number, True
        write_record(self.home, record)
