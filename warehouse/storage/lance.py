"""LanceDB tables of embedded texts, keyed by content, shared by all partitions. Six concurrent
`merge_insert`s of the same keys left each row six times (LanceDB 0.40): so the key is declared,
writers hold a file lock, and each write is checked."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np

from warehouse.storage.files import hold_lock

TEXTS = "texts"  # the one table of embedded texts: tools and servers, by any embedder
_SLICE = 500  # keys of one question
_VERSIONS = 4  # to a file, until a table is joined for the old versions' sake alone


class DuplicateKeys(RuntimeError):
    """A table holds a key more than once: two writers got past the lock."""


def make_vector_key(text_digest: str, embedder: str) -> str:
    return f"{embedder}|{text_digest}"


class LanceStore:
    """Tables of (key, text_digest, embedder, kind, text, vector) under one folder. Rows are
    immutable, so inserting a known key does nothing. Vectors of another length than the first
    embedder's stand in `<table>_<length>` and are read and written through the table."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def find_missing(self, keys: Iterable[str], table: str = TEXTS) -> set[str]:
        missing = set(keys)
        for part in self._list_parts(table) if missing else []:
            stored = [keys.to_pylist() for [keys] in self._read(part, missing, "key")]
            missing = missing.difference(*stored)
        return missing

    def insert(self, rows: Sequence[Mapping[str, Any]], table: str = TEXTS) -> int:
        """Adds the rows whose key is new; returns how many. `rows`: key, text_digest, embedder,
        kind, text, vector (float32, one length per call). Raises DuplicateKeys."""
        if not rows:
            return 0
        unique = {row["key"]: dict(row) for row in rows}
        dim = len(next(iter(unique.values()))["vector"])
        with hold_lock(self.root / f".{table}.lock"):
            part, opened = self._choose_part(table, dim)
            if opened is None:
                self._create(part, _make_arrow([*unique.values()], dim))
                return len(unique)
            # Reading all keys made a table of many small writes quadratic.
            read = self._read(part, set(unique), "key")
            listed = [key for [keys] in read for key in keys.to_pylist()]
            stored = set(listed)
            if len(listed) > len(stored):
                self._read_keys(opened, part)
            new = [row for key, row in unique.items() if key not in stored]
            if not new:
                return 0
            before = opened.count_rows()
            opened.add(_make_arrow(new, dim))
            if opened.count_rows() != before + len(new):  # somebody wrote without the lock
                self._read_keys(opened, part)
            return len(new)

    def vectors(self, keys: Sequence[str], table: str = TEXTS) -> np.ndarray:
        """float32 [len(keys), dim], in their order. Raises KeyError naming a missing key."""
        by_key = self.find_vectors(keys, table)
        absent = next((key for key in keys if key not in by_key), None)
        if absent is not None:
            raise KeyError(f"lance table {table} lacks {absent}: embed it again")
        return np.stack([by_key[key] for key in keys]) if keys else np.zeros((0, 0), np.float32)

    def find_vectors(self, keys: Iterable[str], table: str = TEXTS) -> dict[str, np.ndarray]:
        """The vectors, float32 [dim], of those of `keys` that the table holds."""
        vectors: dict[str, np.ndarray] = {}
        remaining = set(keys)
        for part in self._list_parts(table) if remaining else []:
            vectors |= self._read_vectors(part, remaining - vectors.keys())
        return vectors

    def _read_vectors(self, part: str, keys: set[str]) -> dict[str, np.ndarray]:
        result: dict[str, np.ndarray] = {}
        for names, vectors in self._read(part, keys, "key", "vector"):
            flat = vectors.combine_chunks()
            matrix = np.asarray(flat.flatten(), np.float32).reshape(-1, flat.type.list_size)
            result.update(zip(names.to_pylist(), matrix, strict=True))
        return result

    def compact(
        self, table: str = TEXTS, older_than: timedelta = timedelta(days=7), *, pieces: int = 1
    ) -> None:
        """Joins the small files of many writes, of a table with more than `pieces` files or many
        versions, and drops old versions. Tags move to the present version, which holds all that
        they may: an old tagged version would end every clean-up in an error."""
        with hold_lock(self.root / f".{table}.lock"):
            for part in self._list_parts(table):
                opened = self._open(part)
                if opened is None or _is_small(opened, pieces):
                    continue
                for name in opened.tags.list():
                    opened.tags.update(name, opened.version)
                opened.optimize(cleanup_older_than=older_than)

    def list_tags(self, table: str = TEXTS) -> list[str]:
        opened = self._open(table)
        return sorted(opened.tags.list()) if opened is not None else []

    def tag(self, name: str, table: str = TEXTS) -> int:
        """Names the table's present version (so that compaction keeps it); returns the version."""
        with hold_lock(self.root / f".{table}.lock"):
            opened = [self._open(part) for part in self._list_parts(table)]
            if opened[0] is None:
                raise KeyError(f"lance table {table} does not exist: nothing to tag as {name}")
            for one in opened:
                if name in one.tags.list():
                    one.tags.update(name, one.version)
                else:
                    one.tags.create(name, one.version)
            return sum(item.version for item in opened)

    def check_keys(self, table: str = TEXTS) -> int:
        """How many rows one table holds. Raises DuplicateKeys where two have the same key."""
        opened = self._open(table)
        return len(self._read_keys(opened, table)) if opened is not None else 0

    def count(self, table: str = TEXTS) -> int:
        opened = [self._open(part) for part in self._list_parts(table)]
        return sum(item.count_rows() for item in opened if item is not None)

    def _list_parts(self, table: str) -> list[str]:
        """The table, and those of other lengths beside it."""
        others = (path.name.removesuffix(".lance") for path in self.root.glob(f"{table}_*.lance"))
        return [table, *sorted(other for other in others if other[len(table) + 1 :].isdigit())]

    def _choose_part(self, table: str, dim: int) -> tuple[str, Any]:
        """Where vectors of this length stand, opened; None where nothing does yet."""
        opened = self._open(table)
        if opened is None or opened.schema.field("vector").type.list_size == dim:
            return table, opened
        return f"{table}_{dim}", self._open(f"{table}_{dim}")

    def _open(self, table: str) -> Any:
        import lancedb

        if not (self.root / f"{table}.lance").exists():
            return None
        return lancedb.connect(self.root).open_table(table)

    def _create(self, table: str, rows: Any) -> None:
        import lancedb

        self.root.mkdir(parents=True, exist_ok=True)
        lancedb.connect(self.root).create_table(table, rows, schema=rows.schema)

    def _read(self, part: str, keys: set[str], *columns: str) -> Iterator[list[Any]]:
        """These columns of the rows with the keys, a slice of the keys at a time."""
        opened, ordered = self._open(part), sorted(keys)
        if opened is None:
            return
        for start in range(0, len(ordered), _SLICE):
            quoted = ", ".join(map(quote_text, ordered[start : start + _SLICE]))
            hits = opened.search().where(f"key IN ({quoted})").select([*columns]).to_arrow()
            yield [hits[column] for column in columns]

    def _read_keys(self, opened: Any, table: str) -> set[str]:
        """All keys of a table. Raises DuplicateKeys where two rows have the same."""
        column = opened.search().select(["key"]).limit(opened.count_rows()).to_arrow()["key"]
        keys = set(column.to_pylist())
        if doubled := len(column) - len(keys):
            raise DuplicateKeys(
                f"lance table {table} at {self.root}: {doubled} rows repeat a key; expected none."
                f" Remove the table's folder: the next run embeds it again."
            )
        return keys


def _is_small(opened: Any, pieces: int) -> bool:
    """Whether joining is not worth its writing; never with `pieces` of one."""
    if pieces <= 1:
        return False
    files = opened.stats()["fragment_stats"]["num_fragments"]
    return files <= pieces and len(opened.list_versions()) <= _VERSIONS * pieces


def _make_schema(dim: int) -> Any:
    import pyarrow as pa

    primary = {"lance-schema:unenforced-primary-key": "true"}
    text = [pa.field(name, pa.string()) for name in ("text_digest", "embedder", "kind", "text")]
    return pa.schema(
        [
            pa.field("key", pa.string(), nullable=False, metadata=primary),
            *text,
            pa.field("vector", pa.list_(pa.float32(), dim)),
        ]
    )


def _make_arrow(rows: list[dict[str, Any]], dim: int) -> Any:
    import pyarrow as pa

    flat = np.concatenate([np.asarray(row["vector"], np.float32) for row in rows])
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(flat), dim)
    names = ("key", "text_digest", "embedder", "kind", "text")
    columns = [pa.array([row[name] for row in rows], pa.string()) for name in names]
    return pa.Table.from_arrays([*columns, vectors], schema=_make_schema(dim))


def quote_text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
