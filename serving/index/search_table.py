"""The search tables of a large index: LanceDB finds candidates for a query, the router ranks them.

router/<version>/search/tools.lance    key (tool id), digest, vector, and the terms of two fields
                        servers.lance  key (view|server id), digest, vector

A version's tables are its own. They start as hard links to the files of the last version, which
LanceDB never changes in place, and then rows that differ are replaced.
"""

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from assets.vectors.texts import ALL, JOINT
from warehouse.storage.lance import quote_text

FOLDER = "search"
TOOLS, SERVERS = "tools", "servers"
WORD_FIELDS = (JOINT, ALL)  # fields with an index of their own
# Tools from which LanceDB finds the candidates (docs/benchmarks.md, "Search through LanceDB").
SEARCH_FROM = 200_000
_BATCH = 8_192  # rows written together
_SLICE = 500  # keys of one deletion
_PARTITION = 1_000  # rows of one partition of vectors
_REFINED = 4  # times the servers asked for are compared by their whole vectors
_BINARY = 128  # dimensions from which one bit each orders the candidates well enough
_SAMPLE, _ROUNDS = 64, 15  # vectors a partition that train it, and rounds of training
_PROBES = 256  # partitions that a query reads
_RENEWED = 0.25  # share of rows that changed, from which a table is written and trained again


class SearchTables:
    """The tables of one version, open for queries. Safe to share by threads."""

    def __init__(self, folder: Path, probes: int = _PROBES) -> None:
        self._tools, self._servers = (_open_table(folder, name) for name in (TOOLS, SERVERS))
        self._probes = probes

    def count_rows(self) -> tuple[int, int]:
        return self._tools.count_rows(), self._servers.count_rows()

    def find_near_tools(self, vector: np.ndarray, most: int) -> list[str]:
        """Ids of about the `most` tools nearest to a unit vector, float32 [dim], best first."""
        return self._find_near(self._tools, vector, most)

    def find_near_servers(self, vector: np.ndarray, most: int) -> list[str]:
        """Ids of the servers with about the `most` views nearest to a unit vector, best first."""
        keys = self._find_near(self._servers, vector, most, refine=_REFINED)
        return list(dict.fromkeys(key.partition("|")[2] for key in keys))

    def match_words(self, field: str, terms: Sequence[str], most: int) -> list[str]:
        """Ids of the `most` tools with the best BM25 of a field of WORD_FIELDS, best first."""
        from lancedb.query import MatchQuery

        if not terms:
            return []
        words = MatchQuery(query=" ".join(terms), column=field)  # type: ignore[reportCallIssue]
        query = self._tools.search(words, query_type="fts")
        return query.select(["key", "_score"]).limit(most).to_arrow()["key"].to_pylist()

    def _find_near(
        self, table: Any, vector: np.ndarray, most: int, refine: int | None = None
    ) -> list[str]:
        query = table.search(vector, vector_column_name="vector").distance_type("dot")
        if refine:
            query = query.refine_factor(refine)
        rows = query.nprobes(self._probes).limit(most).select(["key", "_distance"]).to_arrow()
        return rows["key"].to_pylist()


def write_table(
    folder: Path,
    name: str,
    keys: Sequence[str],
    vectors: np.ndarray,
    words: Mapping[str, Sequence[str]],
    base: Path | None = None,
) -> int:
    """Writes a table with its indexes; returns how many rows were written. vectors: unit rows,
    float32 [keys, dim]; words: terms by field, blank-separated, a text a key. Rows that `base`, of
    the same encoder, has stay."""
    import lancedb

    digests = [_digest_row(vectors[at], words, at) for at in range(len(keys))]
    stale, fresh = _compare_rows(base, name, dict(zip(keys, digests, strict=True)))
    connection = lancedb.connect(folder)
    due = [at for at, key in enumerate(keys) if key in fresh]
    if base is None or len(stale) + len(due) > _RENEWED * len(keys):
        due = list(range(len(keys)))
        batches = _make_batches(keys, digests, vectors, words, due)
        table = connection.create_table(name, batches, schema=_make_schema(vectors.shape[1], words))
        _create_indexes(table, len(keys), vectors.shape[1], words)
    else:
        copied = f"{name}.lance"
        shutil.copytree(base / copied, folder / copied, copy_function=os.link)
        table = connection.open_table(name)
        ordered = sorted(stale)
        for start in range(0, len(ordered), _SLICE):
            quoted = ", ".join(quote_text(key) for key in ordered[start : start + _SLICE])
            table.delete(f"key IN ({quoted})")
        if due:
            table.add(_make_batches(keys, digests, vectors, words, due))
        # Joins the new rows to the indexes; what older versions alone hold is unlinked here only.
        table.optimize(cleanup_older_than=timedelta(0))
    return len(due)


def _compare_rows(
    base: Path | None, name: str, expected: Mapping[str, str]
) -> tuple[set[str], set[str]]:
    """(keys of the base to remove, keys to add), from the digests of rows by key."""
    if base is None:
        return set(), set(expected)
    rows = _open_table(base, name).search().select(["key", "digest"]).limit(None).to_arrow()
    stored = dict(zip(rows["key"].to_pylist(), rows["digest"].to_pylist(), strict=True))
    stale = {key for key, digest in stored.items() if expected.get(key) != digest}
    return stale, {key for key, digest in expected.items() if stored.get(key) != digest}


def _digest_row(vector: np.ndarray, words: Mapping[str, Sequence[str]], at: int) -> str:
    state = blake2b(np.ascontiguousarray(vector).tobytes(), digest_size=16)
    for field in sorted(words):
        state.update(b"\n" + words[field][at].encode("utf-8", "surrogatepass"))
    return state.hexdigest()


def _make_schema(dim: int, words: Mapping[str, Sequence[str]]) -> Any:
    import pyarrow as pa

    texts = [pa.field(name, pa.string()) for name in ("key", "digest", *words)]
    return pa.schema([*texts, pa.field("vector", pa.list_(pa.float32(), dim))])


def _make_batches(
    keys: Sequence[str],
    digests: Sequence[str],
    vectors: np.ndarray,
    words: Mapping[str, Sequence[str]],
    due: Sequence[int],
) -> Any:
    """The rows at the places `due`, a few thousand at a time."""
    import pyarrow as pa

    dim = vectors.shape[1]
    schema = _make_schema(dim, words)

    def generate() -> Iterator[Any]:
        for start in range(0, len(due), _BATCH):
            places = due[start : start + _BATCH]
            texts = [
                pa.array([column[at] for at in places], pa.string())
                for column in (keys, digests, *words.values())
            ]
            flat = pa.array(np.asarray(vectors[places], np.float32).ravel())
            column = pa.FixedSizeListArray.from_arrays(flat, dim)
            yield pa.RecordBatch.from_arrays([*texts, column], schema=schema)

    return pa.RecordBatchReader.from_batches(schema, generate())


def _create_indexes(table: Any, rows: int, dim: int, words: Mapping[str, Sequence[str]]) -> None:
    """One bit a dimension if these are many and a multiple of eight, as the quantizer asks, else
    one byte: the router compares the candidates' own vectors. Training IVF_PQ took a hundred times
    as long."""
    from lancedb.index import FTS, IvfRq, IvfSq

    kind = IvfRq if dim >= _BINARY and dim % 8 == 0 else IvfSq
    partitions = max(1, rows // _PARTITION)
    trained = kind(
        distance_type="dot", num_partitions=partitions, max_iterations=_ROUNDS, sample_rate=_SAMPLE
    )
    table.create_index("vector", config=trained)
    for field in words:  # terms are cut and stemmed already
        as_given = FTS(
            base_tokenizer="whitespace",
            max_token_length=None,
            lower_case=False,
            stem=False,
            remove_stop_words=False,
            ascii_folding=False,
        )
        table.create_index(field, config=as_given)


def _open_table(folder: Path, name: str) -> Any:
    import lancedb

    return lancedb.connect(folder).open_table(name)
