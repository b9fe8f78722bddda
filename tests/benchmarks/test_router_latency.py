"""What the router's latency rests on: kept vectors, grown pools."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.router_latency import embed_grown, grow_source
from benchmarks.shared_data import StoredEmbedder
from serving.index.model import IndexSource


class Counting:
    """Unit vectors drawn from each text, and how many texts were embedded."""

    id, dim = "counting/1", 8

    def __init__(self) -> None:
        self.embedded = 0

    def embed(self, texts: Sequence[str], *, on_done: object = None) -> np.ndarray:
        self.embedded += len(texts)
        rows = [np.random.default_rng(list(text.encode())).standard_normal(8) for text in texts]
        unit = np.array(rows, np.float32)
        return unit / np.linalg.norm(unit, axis=1, keepdims=True)


def test_kept_vectors_are_made_once_and_stay(tmp_path: Path) -> None:
    model = Counting()
    first = StoredEmbedder(model, tmp_path).embed(["a", "b", "a"])
    again = StoredEmbedder(model, tmp_path).embed(["b", "a", "c"])
    assert model.embedded == 3
    assert np.array_equal(first[0], first[2])
    assert np.array_equal(again[0], first[1])


def test_a_grown_pool_has_its_size_and_vectors_near_the_real_ones() -> None:
    contracts = [
        {"name": f"tool{at}", "description": f"It does {at} things with many words in a row"}
        for at in "abc"
    ]
    rows = [{"server_id": of["name"], "contract": json.dumps(of)} for of in contracts]
    names = [of["name"] for of in contracts]
    source = grow_source(IndexSource(rows, {name: {"name": name} for name in names}), 8)
    tools = [json.loads(row["contract"])["name"] for row in source.rows]
    assert len(set(tools)) == len(source.servers) == 8
    model = Counting()
    vectors = embed_grown(set(names), model.embed)(tools)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    near = (vectors @ model.embed(names).T).max(axis=1)
    assert near.min() > 0.9
