"""Machines that work on one home in a bucket: each a folder of its own."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from extensions.scale.bucket.bucket import Bucket
from extensions.scale.bucket_home.policy import StoragePolicy
from extensions.scale.bucket_home.root import KEY, Lease, read_root, swap_root
from extensions.scale.bucket_home.session import BucketHome
from extensions.scale.bucket_home.working_copy import read_record, write_record
from warehouse.ledger.attempts import Outcome
from warehouse.storage.tables import TableSpec
from warehouse.store import Warehouse

TABLE = TableSpec("facts", ("id",), {"id": pl.String, "value": pl.Int64})


def open_machine(bucket: Bucket, place: Path, told: list[str] | None = None,
                 **policy: Any) -> BucketHome:  # fmt: skip
    tell = told.append if told is not None else print
    shared = policy.pop("shared_events", False)
    return BucketHome(bucket, place, place / "state", StoragePolicy(**policy), "0", tell, shared)


def open_store(machine: BucketHome) -> Warehouse:
    return Warehouse(machine.home, machine.state)


def write_rows(machine: BucketHome, value: int, paid: str = "") -> None:
    """A version of the table and, where it is named, an effect that is paid for."""
    store = open_store(machine)
    if paid:
        store.ledger.once("write", paid, lambda: Outcome(paid.encode(), usd=0.5))
    staged = store.tables.stage(TABLE, TABLE.frame([{"id": "a", "value": value}]))
    store.tables.promote(staged, "-", [])


def read_value(machine: BucketHome) -> int:
    return open_store(machine).tables.read(TABLE)["value"].to_list()[0]


def list_home(machine: BucketHome) -> dict[str, bytes]:
    """What lies in a working copy, but for its databases and what is its own."""
    found = [path for path in machine.home.rglob("*") if path.is_file()]
    return {
        path.relative_to(machine.home).as_posix(): path.read_bytes()
        for path in found
        if not path.name.startswith(".") and path.suffix != ".lock" and ".db" not in path.name
    }


def end_machine(bucket: Bucket, seconds: float = -1.0) -> None:
    """Lets the lease of whoever holds the home end, as if its machine had been silent."""
    root = read_root(bucket)
    assert root.lease is not None
    lease = Lease(root.lease.token, root.lease.holder, root.lease.until * 0 + seconds)
    swap_root(bucket, root, replace(root, lease=lease))


def kill_machine(bucket: Bucket, machine: BucketHome) -> None:
    """What SIGKILL leaves of a run that held the home: its lease, there and in the record here."""
    record = read_record(machine.home, bucket.url)
    record.token = "killed"
    write_record(machine.home, record)
    root = read_root(bucket)
    swap_root(bucket, root, replace(root, lease=Lease("killed", "this machine", 9e12)))


def change_root(bucket: Bucket, **changes: Any) -> None:
    found = bucket.read(KEY, 1 << 16)
    assert found is not None
    bucket.swap(KEY, json.dumps({**json.loads(found[0]), **changes}).encode(), found[1])
