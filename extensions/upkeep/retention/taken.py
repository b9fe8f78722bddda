"""What versions of tables still hold of what was taken down, and writing them anew without it.

A version keeps its name, by which histories, models and releases know it: `<digest>.taken.json`
beside it says which digest its rows have now (`warehouse/storage/tables.py`).
"""

import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from warehouse.storage.files import hold_lock, write_atomically
from warehouse.storage.tables import Tables, TableSpec, find_schema_version, write_mark
from warehouse.storage.takedowns import Takedowns, find_taken

_SHA = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Version:
    """A version's file with the rows of it that are taken down and those that stay, the volatile
    columns beside them."""

    path: Path
    taken: pl.DataFrame
    kept: pl.DataFrame

    @property
    def table(self) -> str:
        return self.path.parent.parent.name


def iterate_versions(tables: Tables, taken: Takedowns) -> Iterator[Version]:
    """Every version of every table, also those that nothing reads any more."""
    for path in sorted(tables.root.glob("*/*/*.parquet")):
        if not _is_volatile(path):
            yield _split_version(path, taken)


def rewrite_version(spec: TableSpec | None, path: Path, taken: Takedowns) -> bool:
    """Takes what is taken down out of a version's files; whether there was any. A kill leaves each
    file whole, old or new, and a mark that tells of both."""
    with hold_lock(path.parent / ".lock"):  # as whoever stages or removes a version
        if not path.exists():
            return False
        found = _split_version(path, taken)
        if not len(found.taken):
            return False
        own = pl.read_parquet(path)
        names = own.columns
        schema_version = spec and find_schema_version(spec, path)
        if spec is not None and schema_version is not None:
            write_mark(spec, path, found.kept.select(names), schema_version)
        beside = path.with_name(f"{path.stem}.volatile.parquet")
        if beside.exists():  # first: a row that lost its volatile part alone is still found
            columns = pl.read_parquet(beside).columns
            _write(beside, found.kept.select(columns))
        _write(path, found.kept.select(names))
        return True


def collect_blob_names(frame: pl.DataFrame) -> set[str]:
    """What the columns that name blobs name."""
    columns = [name for name in frame.columns if name.endswith("_blob")]
    named = {sha for name in columns for sha in frame[name].drop_nulls().to_list()}
    return {sha for sha in named if _SHA.fullmatch(sha)}


def _split_version(path: Path, taken: Takedowns) -> Version:
    beside = path.with_name(f"{path.stem}.volatile.parquet")
    try:
        frame = pl.read_parquet(path)
        volatile = pl.read_parquet(beside) if beside.exists() else None
    except (OSError, pl.exceptions.PolarsError) as error:
        reason = " ".join(str(error).split())[:160]
        raise ValueError(
            f"{path}: cannot be read ({reason}), so nobody knows what it holds of what was taken"
            " down; `toolmill doctor` says what to do, or remove the file"
        ) from error
    if volatile is not None:
        key = [name for name in frame.columns if name in volatile.columns]
        frame = frame.join(volatile, on=key, how="left", nulls_equal=True)
    hit = find_taken(taken, frame)
    return Version(path, frame.filter(hit), frame.filter(~hit))


def _is_volatile(path: Path) -> bool:
    return path.name.endswith(".volatile.parquet")


def _write(path: Path, frame: pl.DataFrame) -> None:
    buffer = io.BytesIO()
    frame.write_parquet(buffer, compression="zstd")
    write_atomically(path, buffer.getvalue())
