"""Bucket: milliseconds to publish and to fetch a folder there, against a copy on this disk.

    python -m benchmarks.bench_bucket                 # 20 rounds in turns
    python -m benchmarks.bench_bucket --home var      # and a home in a bucket: a copy of this one

The folder is of the shape of an exported release (24 files, 12 MB); of a next version one file of
4 KiB is new. Of a home: what commits and fetches take, whole, with nothing new, and after one
table was published, which on this disk is a pointer that moves. The server is moto's on loopback,
in this process: its own time is counted in. Needs the extra `bucket` and `moto[server]`.
"""

import argparse
import logging
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from statistics import median

import polars as pl

from extensions.scale.bucket.bucket import Bucket, open_bucket
from extensions.scale.bucket.publish import fetch_folder, publish_folder
from extensions.scale.bucket_home.policy import StoragePolicy
from extensions.scale.bucket_home.session import BucketHome
from tests.support.s3 import open_s3
from warehouse.sanitize.markdown import make_markdown_table
from warehouse.storage.pointers import write_pointer
from warehouse.storage.tables import Tables, TableSpec

TABLE = TableSpec("bench", ("id",), {"id": pl.String, "value": pl.Int64})


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--home", type=Path, help="a home that is copied, without artifacts")
    given = parser.parse_args()
    rounds = given.rounds
    if find_spec("obstore") is None or find_spec("moto") is None:
        sys.exit("bench_bucket needs: uv pip install 'toolmill[bucket]' 'moto[server]'")
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    took: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as place, open_s3("bench-bucket") as (_, variables):
        os.environ.update(variables)
        for at in range(rounds):
            time_round(Path(place) / str(at), open_bucket(f"s3://bench-bucket/{at}"), took)
            if given.home:
                time_home(given.home, Path(place) / "homes", f"homes/{at}", took)
    rows = [[name, f"{median(found):.0f} ({min(found):.0f} to {max(found):.0f})"]
            for name, found in took.items()]  # fmt: skip
    print(make_markdown_table(["what", "ms"], rows))
    print(f"\n{rounds} rounds; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


def time_round(place: Path, bucket: Bucket, took: dict[str, list[float]]) -> None:
    """Publishes, publishes the next version, and fetches, here and there."""
    folder, memory = place / "release", place / "memory.json"
    folder.mkdir(parents=True)
    for number in range(24):
        (folder / f"{number}.bin").write_bytes(os.urandom(512 * 1024))
    arms = {
        "first version, bucket": lambda: publish_folder(bucket, folder, memory),
        "first version, this disk": lambda: copy_folder(folder, place / "one", place),
        "next version, bucket": lambda: publish_folder(bucket, folder, memory),
        "next version, this disk": lambda: copy_folder(folder, place / "two", place),
        "same again, bucket": lambda: publish_folder(bucket, folder, memory),
        "fetch, bucket": lambda: fetch_folder(bucket, place / "out", memory),
    }
    for name, work in arms.items():
        if name.startswith("next version, bucket"):
            (folder / "0.bin").write_bytes(os.urandom(4096))
        began = time.perf_counter()
        work()
        took.setdefault(name, []).append((time.perf_counter() - began) * 1000)
    shutil.rmtree(place)


def time_home(source: Path, place: Path, prefix: str, took: dict[str, list[float]]) -> None:
    """Commits a copy of a home and fetches it on another machine, whole and a table's version."""
    shutil.copytree(source, place / "one", ignore=shutil.ignore_patterns("artifacts", "cache"))
    bucket = open_bucket(f"s3://bench-bucket/{prefix}")
    one, two = (
        BucketHome(bucket, place / name, place / name / "state", StoragePolicy(), "bench")
        for name in ("one", "two")
    )
    tables, values = Tables(one.home / "tables"), iter(range(1_000_000))

    def publish() -> None:
        rows = [{"id": str(number), "value": next(values)} for number in range(100)]
        tables.promote(tables.stage(TABLE, TABLE.frame(rows)), "-", [])

    def publish_and_commit() -> None:
        publish()
        one.commit()

    with timed(took, "home: taken, first commit, given back"), one.hold():
        pass
    with timed(took, "home: first fetch"):
        two.refresh()
    with timed(took, "home: fetch, nothing new"):
        two.refresh()
    with timed(took, "home: a table published, this disk"):
        publish()
    with one.hold():
        one.commit()
        with timed(took, "home: a table published and committed, bucket"):
            publish_and_commit()
        with timed(took, "home: commit, nothing new"):
            one.commit()
    with timed(took, "home: fetch of that commit"):
        two.refresh()
    with timed(took, "home: taken and given back, nothing new"), one.hold():
        pass
    shutil.rmtree(place)


@contextmanager
def timed(took: dict[str, list[float]], name: str) -> Iterator[None]:
    began = time.perf_counter()
    yield
    took.setdefault(name, []).append((time.perf_counter() - began) * 1000)


def copy_folder(folder: Path, to: Path, place: Path) -> None:
    """A whole copy on the disk, then a pointer to it."""
    shutil.copytree(folder, to)
    os.sync()
    write_pointer(place / "HEAD.json", {"version": to.name})


if __name__ == "__main__":
    main()
