"""Working on a home that lives in a bucket: held by one machine at a time, committed as it goes."""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from extensions.scale.bucket.bucket import BucketUnavailable
from extensions.scale.bucket_home.keeper import Keeper
from extensions.scale.bucket_home.lease import LeasedHome
from extensions.scale.bucket_home.manifest import MOST, Manifest, dump_manifest, get_manifest_key
from extensions.scale.bucket_home.root import HomeLost, Root, require_lease
from extensions.scale.bucket_home.send import send_files
from extensions.scale.bucket_home.working_copy import (
    Record,
    Users,
    keep_base,
    lock_commit,
    lock_record,
    open_users,
    read_base,
    read_record,
    write_record,
)
from warehouse.storage.digest import sha256

_HELD: list["BucketHome"] = []  # by this process


@dataclass(frozen=True)
class BucketHome(LeasedHome):
    """A home in a bucket that is worked on here. shared_events: whether other machines see in
    Dagster at once what a stage made."""

    shared_events: bool = False

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Holds the home: its lease is this working copy's, which is what is committed, or that and
        what a killed run made here since. Commits now and then, and at the end, whatever ended it.

        Processes of one working copy share its lease. Raises HomeHeld, HomeLost, UnusableInput,
        BucketUnavailable.
        """
        self._ask_before_first_use()
        with open_users(self.home) as users:
            self._enter(users)
            keeper = Keeper(self.policy, self.renew, self.commit_if_due, self.tell)
            keeper.start()
            _HELD.append(self)
            failed = True
            try:
                try:
                    yield
                    failed = False
                finally:
                    keeper.end_work()
            except KeyboardInterrupt:
                if keeper.lost is None:  # else it was the keeper that ended the work
                    raise
            finally:
                _HELD.remove(self)
                keeper.stop_commits()
                try:
                    self._leave(users, keeper, failed)
                finally:
                    keeper.stop()

    def _leave(self, users: Users, keeper: Keeper, failed: bool) -> None:
        """The last commit, and the lease given back by whoever is the last to go."""
        if keeper.lost is not None:
            raise keeper.lost
        with lock_record(self.home):
            last = users.is_alone()
            users.join()
        try:
            if last:
                self.commit()
        except HomeLost:
            raise  # whatever ended the work, most likely this did
        except (BucketUnavailable, OSError) as error:
            if not failed:
                raise
            self.tell(f"not committed: {error}")
        finally:
            with lock_record(self.home):
                if users.is_alone():
                    self._release()
                users.leave()

    def commit(self, *, anew: bool = False) -> int:
        """Makes what is here now what is committed, and returns its number: content first, then the
        root. A copy that holds what was committed moves nothing. anew: what the bucket has lost of
        the last commit is sent again. Raises HomeLost, BucketUnavailable, OSError; then nothing
        that is committed has changed."""
        with lock_commit(self.home):
            record = read_record(self.home, self.bucket.url)
            base = read_base(self.home, self.bucket, record.version)
            sent = send_files(self.bucket, self.copy, base, anew=anew)
            made = Manifest(sent.files, record.number + 1, record.version, self.program)
            data = dump_manifest(made)
            version, same = sha256(data), made.holds_same(base)
            if not same:
                key = get_manifest_key(version)
                if len(data) > MOST:
                    raise BucketUnavailable(
                        f"{key}: {len(data):,} bytes of names, at most {MOST:,}"
                    )
                self.bucket.swap(key, data, None)
            with lock_record(self.home):
                record = read_record(self.home, self.bucket.url)
                record.committed = time.time()
                if not same:
                    self._commit_root(record, version, data)
                write_record(self.home, record)
            return record.number

    def _commit_root(self, record: Record, version: str, data: bytes) -> None:
        root = require_lease(self.bucket, record.token, record.version)
        lease = self._make_lease(record.token)
        after = Root(version, root.number + 1, root.version, time.time(), lease, root.tag)
        self._move(root, after)
        keep_base(self.home, data)
        record.version, record.number, record.until = version, after.number, lease.until

    def commit_if_due(self) -> None:
        if self.is_commit_due():
            self.commit()

    def is_commit_due(self) -> bool:
        """Whether the last commit from here is longer ago than the settings allow."""
        record = read_record(self.home, self.bucket.url)
        return time.time() - record.committed >= self.policy.commit_minutes * 60


def commit_stage() -> None:
    """Commits what a stage made before it is told of, where this process holds a home in a bucket:
    always where others learn of it at once, else where a commit is due.

    Raises HomeLost, and BucketUnavailable where others would learn of what is not there.
    """
    for home in _HELD[-1:]:
        if home.shared_events:
            home.commit()
        else:
            with suppress(OSError):
                home.commit_if_due()
