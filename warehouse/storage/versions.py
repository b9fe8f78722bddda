"""Whether a version of a table is what its name says.

<digest>.taken.json   {digest}: of the rows that are left since some were taken down
"""

import json
from dataclasses import replace
from pathlib import Path

import polars as pl

from warehouse.storage.files import write_atomically
from warehouse.storage.tables import TableSpec, get_mark_path


def find_schema_version(spec: TableSpec, version: Path) -> int | None:
    """The schema version under which the rows of a version's file have the digest that names it, or
    that its mark has; None where they have another one. An older version of ours has the columns
    that its spec had.

    Raises OSError, PolarsError for a file that cannot be read.
    """
    frame = pl.read_parquet(version)
    if not set(spec.key) <= set(frame.columns):
        return None
    known = {version.name.removesuffix(".parquet"), _read_mark(version)}
    for schema_version in range(spec.schema_version, 0, -1):
        if _digest_held(spec, frame, schema_version) in known:
            return schema_version
    return None


def write_mark(spec: TableSpec, version: Path, left: pl.DataFrame, schema_version: int) -> None:
    """Says which digest a version's rows are about to have. left: those that stay."""
    body = {"digest": _digest_held(spec, left, schema_version)}
    write_atomically(get_mark_path(version), json.dumps(body).encode())


def _digest_held(spec: TableSpec, frame: pl.DataFrame, schema_version: int) -> str:
    held = {name: frame.schema[name] for name in frame.columns}
    older = replace(spec, columns=held, volatile=(), schema_version=schema_version)
    return older.digest(frame)


def _read_mark(version: Path) -> str | None:
    try:
        return str(json.loads(get_mark_path(version).read_bytes())["digest"])
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        return None  # its rows then have another digest than its name, and are told of
