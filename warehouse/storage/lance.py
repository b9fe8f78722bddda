"""The vector store: LanceDB tables of embedded texts, keyed by content, shared by all partitions.

Measured here on LanceDB 0.40: six concurrent `merge_insert`s of the same keys left every row six
times with no error. So the key is declared, writers hold a file lock, and each write is checked.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from warehouse.storage.files import hold_lock

TEXTS = "texts"  # the one table of embedded texts: tools and servers, by any embedder
_FLAT_SCAN_ROWS = 20_000  # below this an exact scan answers faster than any approximate index


class DuplicateKeys(RuntimeError):
    """A table holds a key more than once: two writers got past the lock."""


def vector_key(text_digest: str, embedder: str) -> str:
    """The key of one vector: what was embedded, and by which model."""
    return f"{embedder}|{text_digest}"


class LanceStore:
    """Tables of (key, text_digest, embedder, kind, text, vector) under one folder.

    Rows are immutable: the same key always means the same text and model, so an insert of a
    known key does nothing. A table's vectors are of one length, the first embedder's; those of
    another length stand in `<table>_<length>` beside it, and are read and written through it.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def find_missing(self, keys: Iterable[str], table: str = TEXTS) -> set[str]:
        """Those of `keys` that the table lacks."""
        wanted = set(keys)
        for part in self._list_parts(table) if wanted else []:
            wanted -= set(self._read_column(part, "key", wanted))
        return wanted

    def insert(self, rows: Sequence[Mapping[str, Any]], table: str = TEXTS) -> int:
        """Adds the rows whose key is new; returns how many were.

        `rows`: key, text_digest, embedder, kind, text, vector (float32, one length per call).
        Raises DuplicateKeys if the table then holds a key twice.
        """
        if not rows:
            return 0
        unique = {row["key"]: dict(row) for row in rows}
        dim = len(next(iter(unique.values()))["vector"])
        with hold_lock(self.root / f".{table}.lock"):
            part = self._choose_part(table, dim)
            opened = self._open(part) or self._create(part, dim)
            before = opened.count_rows()
            batch = _make_arrow(list(unique.values()), dim)
            opened.merge_insert("key").when_not_matched_insert_all().execute(batch)
            self._check_unique(opened, part)
            return opened.count_rows() - before

    def vectors(self, keys: Sequence[str], table: str = TEXTS) -> np.ndarray:
        """Vectors in the order of `keys`, float32 [len(keys), dim].

        Raises KeyError naming the first key that is not stored.
        """
        found: dict[str, np.ndarray] = {}
        for part in self._list_parts(table):
            found |= self._read_vectors(part, set(keys) - found.keys())
        absent = next((key for key in keys if key not in found), None)
        if absent is not None:
            raise KeyError(f"lance table {table} lacks {absent}: embed it again")
        return np.stack([found[key] for key in keys]) if keys else np.zeros((0, 0), np.float32)

    def _read_vectors(self, part: str, keys: set[str]) -> dict[str, np.ndarray]:
        opened = self._open(part)
        found: dict[str, np.ndarray] = {}
        if opened is not None and keys:
            for some in _iter_slices(sorted(keys)):
                hits = opened.search().where(_match_any(some)).select(["key", "vector"]).to_arrow()
                flat = hits["vector"].combine_chunks()
                matrix = np.asarray(flat.flatten(), np.float32).reshape(-1, flat.type.list_size)
                found.update(zip(hits["key"].to_pylist(), matrix, strict=True))
        return found

    def refresh_indexes(self, table: str = TEXTS) -> dict[str, int]:
        """Builds or extends the full-text index and, once the table is large, the vector index.

        IVF_FLAT, because the default IVF_PQ lost a sixth of the true neighbours at 100k rows.
        Returns {rows, indexes}.
        """
        with hold_lock(self.root / f".{table}.lock"):
            each = [self._index_part(part) for part in self._list_parts(table)]
        return {name: sum(one[name] for one in each) for name in ("rows", "indexes")}

    def _index_part(self, part: str) -> dict[str, int]:
        opened = self._open(part)
        if opened is None or not opened.count_rows():
            return {"rows": 0, "indexes": 0}
        names = {name for index in opened.list_indices() for name in index.columns}
        if "text" not in names:
            opened.create_fts_index("text")
        rows = opened.count_rows()
        if rows >= _FLAT_SCAN_ROWS and "vector" not in names:
            opened.create_index(metric="cosine", index_type="IVF_FLAT")
        opened.optimize()
        return {"rows": rows, "indexes": len(list(opened.list_indices()))}

    def compact(self, table: str = TEXTS) -> None:
        """Joins the small files of many writes, and drops versions that are a week old and have no
        tag."""
        with hold_lock(self.root / f".{table}.lock"):
            for part in self._list_parts(table):
                opened = self._open(part)
                if opened is not None:
                    opened.optimize()

    def search_vector(
        self, vector: np.ndarray, embedder: str, k: int, kind: str = "tool", table: str = TEXTS
    ) -> list[tuple[str, float]]:
        """The k nearest texts of one embedder: (text_digest, cosine), best first."""
        opened = self._open(self._choose_part(table, len(vector)))
        if opened is None:
            return []
        query = opened.search(np.asarray(vector, np.float32)).distance_type("cosine")
        hits = query.where(_write_scope(embedder, kind), prefilter=True).limit(k).to_list()
        return [(hit["text_digest"], 1.0 - hit["_distance"]) for hit in hits]

    def search_text(
        self, words: str, embedder: str, k: int, kind: str = "tool", table: str = TEXTS
    ) -> list[tuple[str, float]]:
        """The k best full-text matches of one embedder's rows: (text_digest, BM25), best first."""
        hits: list[tuple[str, float]] = []
        for part in self._list_parts(table):  # an embedder's rows stand in one of them
            opened = self._open(part)
            if opened is not None and not hits:
                query = opened.search(words, query_type="fts", fts_columns="text")
                found = query.where(_write_scope(embedder, kind), prefilter=True).limit(k)
                hits = [(hit["text_digest"], hit["_score"]) for hit in found.to_list()]
        return hits

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
            return sum(one.version for one in opened)

    def version(self, table: str = TEXTS) -> int:
        """The present version; 0 before the first insert. It moves with every write."""
        opened = [self._open(part) for part in self._list_parts(table)]
        return sum(one.version for one in opened if one is not None)

    def count(self, table: str = TEXTS) -> int:
        opened = [self._open(part) for part in self._list_parts(table)]
        return sum(one.count_rows() for one in opened if one is not None)

    def _list_parts(self, table: str) -> list[str]:
        """The table, and those of other lengths beside it."""
        others = (path.name.removesuffix(".lance") for path in self.root.glob(f"{table}_*.lance"))
        return [table, *sorted(one for one in others if one[len(table) + 1 :].isdigit())]

    def _choose_part(self, table: str, dim: int) -> str:
        """Where vectors of this length stand."""
        opened = self._open(table)
        first = dim if opened is None else opened.schema.field("vector").type.list_size
        return table if first == dim else f"{table}_{dim}"

    def _open(self, table: str) -> Any:
        import lancedb

        if not (self.root / f"{table}.lance").exists():
            return None
        return lancedb.connect(self.root).open_table(table)

    def _create(self, table: str, dim: int) -> Any:
        import lancedb

        self.root.mkdir(parents=True, exist_ok=True)
        return lancedb.connect(self.root).create_table(
            table, schema=_make_schema(dim), exist_ok=True
        )

    def _read_column(self, table: str, column: str, keys: set[str]) -> list[str]:
        opened = self._open(table)
        if opened is None:
            return []
        found: list[str] = []
        for part in _iter_slices(sorted(keys)):
            hits = opened.search().where(_match_any(part)).select([column]).to_arrow()
            found.extend(hits[column].to_pylist())
        return found

    def _check_unique(self, opened: Any, table: str) -> None:
        keys = opened.search().select(["key"]).limit(opened.count_rows()).to_arrow()["key"]
        doubled = len(keys) - len(keys.unique())
        if doubled:
            raise DuplicateKeys(
                f"lance table {table} at {self.root}: {doubled} rows repeat a key; expected none."
                f" Remove the table's folder: the next run embeds it again."
            )


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


def _match_any(keys: Sequence[str]) -> str:
    return f"key IN ({', '.join(_quote_text(key) for key in keys)})"


def _write_scope(embedder: str, kind: str) -> str:
    return f"embedder = {_quote_text(embedder)} AND kind = {_quote_text(kind)}"


def _quote_text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _iter_slices(keys: Sequence[str], size: int = 500) -> Iterable[Sequence[str]]:
    return (keys[i : i + size] for i in range(0, len(keys), size))
