"""The neighbours of a tool: most alike first, twins and others left out, in one order."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assets.vectors.index import ALIKE, INSTRUCTIONS, TWIN, NearTools, embed_texts, find_near_rows
from tests.vectors.conftest import WordEmbedder, snapshot
from warehouse.storage.lance import TEXTS, LanceStore


def test_neighbours_come_by_likeness_without_twins_and_unlike_tools(
    embedder: WordEmbedder, store: LanceStore
) -> None:
    rows = [
        snapshot("npm:a", "read_file", "Read a file from the disk"),
        snapshot("npm:b", "read_file", "Read a file from the disk"),  # a twin
        snapshot("npm:c", "write_file", "Write a file to the disk"),
        snapshot("npm:d", "zebra", "Stripes " * 30),
    ]
    near = find_near_rows(rows, embedder, store)
    assert [row["tool"] for row in near(rows[0])] == ["write_file"]
    assert {row["server_id"] for row in near(rows[2])} == {"npm:a", "npm:b"}
    assert near(rows[3]) == []


def test_no_rows_have_no_neighbours(embedder: WordEmbedder, store: LanceStore) -> None:
    near = find_near_rows([], embedder, store)
    with pytest.raises(KeyError):
        near(snapshot("npm:a", "read_file", "Read a file from the disk"))


@given(st.integers(2, 12), st.integers(0, 99))
def test_the_order_of_the_rows_decides_nothing(n: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    matrix = rng.integers(0, 3, (n, 4)).astype(np.float32) + 0.1
    matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
    rows = [{"server_id": f"s{i}", "tool": "t"} for i in range(n)]
    order = list(range(n))
    random.Random(seed).shuffle(order)
    one, other = NearTools(rows, matrix), NearTools([rows[i] for i in order], matrix[order])
    for i, row in enumerate(rows):
        found = one(row)
        assert found == other(row)
        for neighbour in found:
            cosine = float(matrix[i] @ matrix[rows.index(neighbour)])
            assert ALIKE - 1e-3 < cosine < TWIN + 1e-3


def test_instructions_are_kept_apart_from_tools(embedder: WordEmbedder, store: LanceStore) -> None:
    embed_texts(["find my file"], embedder, store, table=INSTRUCTIONS)
    assert (store.count(TEXTS), store.count(INSTRUCTIONS)) == (0, 1)
    embed_texts(["find my file"], embedder, store, table=INSTRUCTIONS)
    assert len(embedder.embedded) == 1
