"""Whether a version of a table is what its name says."""

from dataclasses import replace
from pathlib import Path

import polars as pl

from warehouse.storage.tables import TableSpec


def find_schema_version(spec: TableSpec, version: Path) -> int | None:
    """The schema version under which the rows of a version's file have the digest that names it;
    None where they have another one. An older version of ours has the columns that its spec had.

    Raises OSError, PolarsError for a file that cannot be read.
    """
    frame = pl.read_parquet(version)
    if not set(spec.key) <= set(frame.columns):
        return None
    held = {name: frame.schema[name] for name in frame.columns}
    for schema_version in range(spec.schema_version, 0, -1):
        older = replace(spec, columns=held, volatile=(), schema_version=schema_version)
        if older.digest(frame) == version.name.removesuffix(".parquet"):
            return schema_version
    return None
