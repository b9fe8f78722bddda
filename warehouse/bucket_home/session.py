"""Working on a home that lives in a bucket: held by one machine at a time, committed as it goes."""

import _thread
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from warehouse.bucket.bucket import Bucket, BucketUnavailable, PointerMoved
from warehouse.bucket.pointer import StaleRead
from warehouse.bucket_home.carried import Copy
from warehouse.bucket_home.fetch import Fetch, Fetched
from warehouse.bucket_home.manifest import (
    MOST,
    Manifest,
    dump_manifest,
    get_manifest_key,
    read_manifest,
)
from warehouse.bucket_home.policy import StoragePolicy
from warehouse.bucket_home.root import (
    HomeHeld,
    HomeLost,
    Lease,
    Root,
    format_time,
    read_root,
    require_lease,
    swap_root,
    take_lease,
)
from warehouse.bucket_home.send import send_files
from warehouse.bucket_home.working_copy import (
    Record,
    Users,
    keep_base,
    lock_commit,
    lock_record,
    open_users,
    read_base,
    read_record,
    require_own,
    write_record,
)
from warehouse.storage.digest import sha256

_ASKED_EVERY_S = 15.0  # while another machine is waited for
_HELD: list["BucketHome"] = []  # by this process


@dataclass(frozen=True)
class BucketHome:
    """A home in a bucket and its working copy here. program: this version. tell: takes lines for
    a person. shared_events: whether other machines see in Dagster at once what a stage made."""

    bucket: Bucket
    home: Path
    state: Path
    policy: StoragePolicy
    program: str
    tell: Callable[[str], None] = field(default=lambda _: None)
    shared_events: bool = False

    @property
    def copy(self) -> Copy:
        return Copy(self.home, self.state)

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Holds the home: its lease is this working copy's, which is what is committed, or that and
        what a killed run made here since. Commits now and then, and at the end, whatever ended it.

        Processes of one working copy share its lease. Raises HomeHeld, HomeLost, UnusableInput,
        BucketUnavailable.
        """
        with open_users(self.home) as users:
            self._enter(users)
            keeper = _Keeper(self)
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

    def _leave(self, users: Users, keeper: "_Keeper", failed: bool) -> None:
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

    def _enter(self, users: Users) -> None:
        """Takes the lease, or joins the processes here that have it. Raises HomeHeld."""
        began, seen = time.monotonic(), _Standstill(self._lease_s)
        while True:
            with lock_record(self.home):
                if not users.is_alone():
                    users.join()
                    return
                try:
                    self._take(seen.tag)
                    users.join()
                    return
                except HomeHeld:
                    users.leave()
                    if time.monotonic() - began >= self.policy.wait_minutes * 60:
                        raise
                except BaseException:
                    users.leave()
                    raise
            time.sleep(min(_ASKED_EVERY_S, self._lease_s / 3))
            seen.note(read_root(self.bucket).tag)

    def _take(self, seen: str | None) -> None:
        """Takes the lease and makes the copy what is committed, again where that took longer than
        the lease."""
        record = read_record(self.home, self.bucket.url)
        require_own(self.home, record, read_root(self.bucket).number)
        record.committed = time.time()
        until, abandoned = 0.0, bool(record.token)
        while until - time.time() < self._lease_s / 2:
            lease = self._make_lease(record.token or uuid.uuid4().hex)
            before, root = take_lease(self.bucket, lease, seen)
            until = record.until = lease.until
            ours = before is not None and before.token == record.token
            record.token = lease.token
            write_record(self.home, record)
            try:
                self._reconcile(record, root, ours, abandoned)
            except BaseException:
                self._release()
                raise

    @property
    def _lease_s(self) -> float:
        return self.policy.lease_minutes * 60

    def _make_lease(self, token: str) -> Lease:
        holder = f"{socket.gethostname()}, process {os.getpid()}"
        return Lease(token, holder[-200:], time.time() + self._lease_s)

    def renew(self) -> None:
        """Puts the end of the lease off, where no process here did so a moment ago. Raises
        HomeLost."""
        with lock_record(self.home):
            record = read_record(self.home, self.bucket.url)
            if not record.token or record.until - time.time() > self._lease_s * 0.7:
                return  # given back, or renewed a moment ago
            root = require_lease(self.bucket, record.token, record.version)
            lease = self._make_lease(record.token)
            self._move(root, replace(root, lease=lease))
            record.until = lease.until
            write_record(self.home, record)

    def _move(self, before: Root, after: Root) -> Root:
        """Raises HomeLost."""
        try:
            return swap_root(self.bucket, before, after)
        except PointerMoved:
            require_lease(self.bucket, after.lease.token if after.lease else "", before.version)
            raise

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

    def is_commit_due(self) -> bool:
        """Whether the last commit from here is longer ago than the settings allow."""
        record = read_record(self.home, self.bucket.url)
        return time.time() - record.committed >= self.policy.commit_minutes * 60

    def _release(self) -> None:
        """Gives the lease back; where that fails it ends by itself."""
        record = read_record(self.home, self.bucket.url)
        try:
            root = read_root(self.bucket)
            if root.lease and root.lease.token == record.token:
                swap_root(self.bucket, root, replace(root, lease=None))
        except BucketUnavailable as error:
            self.tell(f"the lease stays until {format_time(record.until)}: {error}")
        else:
            record.token, record.until = "", 0.0
            write_record(self.home, record)

    def refresh(self, *, strict: bool = False) -> Fetched:
        """Makes the working copy what is committed, unless a process here works on it. Where that
        fails and what was fetched last is whole, it is told of and that is read; strict: raised.
        Raises BucketUnavailable, UnusableInput."""
        with open_users(self.home) as users, lock_record(self.home):
            if not users.is_alone():
                return Fetched()
            record = read_record(self.home, self.bucket.url)
            try:
                root = read_root(self.bucket)
                require_own(self.home, record, root.number)
                held = root.lease.token if root.lease else ""
                ours, abandoned = bool(held) and held == record.token, bool(record.token)
                return self._reconcile(record, root, ours, abandoned)
            except BucketUnavailable as error:
                now = read_record(self.home, self.bucket.url)
                if strict or not now.number or not now.whole:
                    raise
                self.tell(f"{error}; commit {record.number} is read, which was fetched last")
                return Fetched()

    def _reconcile(self, record: Record, root: Root, ours: bool, abandoned: bool) -> Fetched:
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
        if abandoned and not ours:  # a run here was killed, or lost the home
            self.tell(
                f"what was made here after commit {record.number} and not committed gives way to"
                f" commit {root.number}, which another machine made"
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


class _Standstill:
    """Whether another machine's lease stood still for as long as it lasts, by this machine's own
    clock: whatever time it names, its holder is gone."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._tag, self._since = seconds, "", time.monotonic()

    def note(self, tag: str | None) -> None:
        if tag != self._tag:
            self._tag, self._since = tag or "", time.monotonic()

    @property
    def tag(self) -> str | None:
        still = time.monotonic() - self._since >= self._seconds
        return self._tag if still and self._tag else None


class _Keeper:
    """Renews the lease and commits beside the work. lost: why there is nothing more to keep; the
    work is then interrupted, since what it pays for would not be kept."""

    def __init__(self, home: BucketHome) -> None:
        self._home, self.lost = home, None
        self._stop, self._stop_commits = threading.Event(), threading.Event()
        self._lock = threading.Lock()
        self._interrupts = threading.current_thread() is threading.main_thread()
        wait_s = min(10.0, home.policy.commit_minutes * 20)
        self._threads = [
            threading.Thread(target=self._keep, args=one, daemon=True)
            for one in (
                (self._stop, home.policy.lease_minutes * 15, home.renew),
                (self._stop_commits, wait_s, self._commit),
            )
        ]

    lost: HomeLost | None

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def end_work(self) -> None:
        """From here on nothing is interrupted."""
        with self._lock:
            self._interrupts = False

    def stop_commits(self) -> None:
        """Returns when none is under way."""
        self._stop_commits.set()
        self._threads[1].join()

    def stop(self) -> None:
        self._stop.set()
        self._threads[0].join()

    def _commit(self) -> None:
        if self._home.is_commit_due():
            self._home.commit()

    def _keep(self, stop: threading.Event, wait_s: float, work: Callable[[], object]) -> None:
        told = ""
        while not stop.wait(wait_s):
            try:
                work()
            except HomeLost as error:
                self._end(error)
                return
            except (BucketUnavailable, OSError) as error:  # the next try may find it up again
                if str(error) != told:
                    told = str(error)
                    self._home.tell(f"not committed yet: {told}")

    def _end(self, error: HomeLost) -> None:
        with self._lock:
            self.lost = error
            if self._interrupts:
                self._interrupts = False
                _thread.interrupt_main()


def commit_stage() -> None:
    """Commits what a stage made before it is told of, where this process holds a home in a bucket:
    always where others learn of it at once, else where a commit is due.

    Raises HomeLost, and BucketUnavailable where others would learn of what is not there.
    """
    for home in _HELD[-1:]:
        if home.shared_events:
            home.commit()
        elif home.is_commit_due():
            with suppress(OSError):
                home.commit()
