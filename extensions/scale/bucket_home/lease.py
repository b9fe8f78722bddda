"""The lease of a home in a bucket: one working copy has it at a time, and may commit."""

import os
import socket
import time
import uuid
from dataclasses import dataclass, replace

from extensions.scale.bucket.bucket import BucketUnavailable, PointerMoved
from extensions.scale.bucket_home.reader import HomeReader
from extensions.scale.bucket_home.root import (
    HomeHeld,
    Lease,
    Root,
    Standstill,
    format_time,
    read_root,
    require_lease,
    swap_root,
    take_lease,
)
from extensions.scale.bucket_home.working_copy import (
    Users,
    lock_record,
    read_record,
    require_own,
    write_record,
)

_ASKED_EVERY_S = 15.0  # while another machine is waited for


@dataclass(frozen=True)
class LeasedHome(HomeReader):
    """A home whose lease is taken, renewed and given back here."""

    def _enter(self, users: Users) -> None:
        """Takes the lease, or joins the processes here that have it. Raises HomeHeld."""
        began, seen = time.monotonic(), Standstill(self._lease_s)
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
                self.reconcile(record, root, ours, abandoned)
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
