"""Old versions of stored tables: what is in them, and how they are removed."""

import json
import warnings
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import polars as pl

from warehouse.storage.files import hold_lock, write_atomically
from warehouse.storage.lance import TEXTS, LanceStore
from warehouse.storage.tables import Tables, TableSpec, get_mark_path


class LanceVersions(LanceStore):
    """The tables of vectors with their old versions."""

    def find_texts(
        self, holds: Callable[[list[str]], Iterable[int]], table: str = TEXTS
    ) -> set[str]:
        """The keys of the rows whose text is one that `holds` names by its place in the list."""
        matches: set[str] = set()
        for opened in self._open_parts(table):
            rows = opened.search().select(["key", "text"]).limit(opened.count_rows()).to_arrow()
            keys = rows["key"].to_pylist()
            matches |= {keys[at] for at in holds([t or "" for t in rows["text"].to_pylist()])}
        return matches

    def has_versions(self, before: float, table: str = TEXTS) -> bool:
        """Whether a version that is not the present one was written before `before` (epoch s)."""
        return any(
            version["timestamp"].timestamp() < before and version["version"] != opened.version
            for opened in self._open_parts(table)
            for version in opened.list_versions()
        )

    def remove_rows(self, keys: Iterable[str], older_than: timedelta, table: str = TEXTS) -> None:
        """Removes rows, and every version that is as old with what it alone holds. Tags move to the
        present version: what is removed is not kept by a name either."""
        gone = set(keys)
        with hold_lock(self.root / f".{table}.lock"):
            for opened in self._open_parts(table):
                rows = opened.to_arrow()
                stay = [key not in gone for key in rows["key"].to_pylist()]
                # Written whole: a deletion would leave the row in its file.
                opened.add(rows.filter(stay), mode="overwrite")
                for tag in opened.tags.list():
                    opened.tags.update(tag, opened.version)
                with warnings.catch_warnings():  # that 0 removes what others may read: asked for
                    warnings.simplefilter("ignore", UserWarning)
                    opened.optimize(cleanup_older_than=older_than)

    def list_tables(self) -> list[str]:
        """The tables that can be compacted; those of other lengths go with the one beside them."""
        names = sorted(path.name.removesuffix(".lance") for path in self.root.glob("*.lance"))
        beside = {part for name in names for part in self._list_parts(name)[1:]}
        return [name for name in names if name not in beside]

    def remove_tag(self, name: str, table: str = TEXTS) -> bool:
        """Lets the versions go that a tag keeps; whether there was one."""
        gone = False
        with hold_lock(self.root / f".{table}.lock"):
            for opened in self._open_parts(table):
                if name in opened.tags.list():
                    opened.tags.delete(name)
                    gone = True
        return gone

    def _open_parts(self, table: str) -> list[Any]:
        opened = [self._open(part) for part in self._list_parts(table)]
        return [part for part in opened if part is not None]


def remove_version(tables: Tables, file: Path, before: float) -> bool:
    """Removes a file of a version that is not current and was last staged before `before`
    (epoch seconds); whether it did. Raises PointerBroken."""
    folder = file.parent
    with hold_lock(folder / ".lock"):
        head = tables.head(folder.parent.name, folder.name)
        current = head is not None and file.name.startswith(f"{head.digest}.")
        if current or not file.exists() or file.stat().st_mtime >= before:
            return False
        file.unlink()
        get_mark_path(file).unlink(missing_ok=True)
    return True


def find_schema_version(spec: TableSpec, version: Path) -> int | None:
    """The schema version, of ours or an older one with its columns, under which a version's rows
    have the digest of its name or mark; None for another. Raises OSError, PolarsError."""
    frame = pl.read_parquet(version)
    if not set(spec.key) <= set(frame.columns):
        return None
    marks = {version.name.removesuffix(".parquet"), _read_mark(version)}
    for schema_version in range(spec.schema_version, 0, -1):
        if _digest_held(spec, frame, schema_version) in marks:
            return schema_version
    return None


def write_mark(spec: TableSpec, version: Path, left: pl.DataFrame, schema_version: int) -> None:
    """Says which digest a version's rows are about to have. left: those that stay."""
    body = {"digest": _digest_held(spec, left, schema_version)}
    write_atomically(get_mark_path(version), json.dumps(body).encode())


def _digest_held(spec: TableSpec, frame: pl.DataFrame, schema_version: int) -> str:
    types = {name: frame.schema[name] for name in frame.columns}
    return replace(spec, columns=types, volatile=(), schema_version=schema_version).digest(frame)


def _read_mark(version: Path) -> str | None:
    try:
        return str(json.loads(get_mark_path(version).read_bytes())["digest"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None  # of a broken one the rows have another digest than the name, which is told
