"""What the router's figures rest on: peers, hits, kept vectors, grown pools."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import router_peers as peers
from benchmarks.router_data import Pool, hit_at, is_english, make_plain_pool
from benchmarks.router_index import Kept, source_of
from benchmarks.router_latency import embed_grown, grow_pool
from benchmarks.router_quality import bootstrap_ratio

SCORES = st.lists(st.integers(-5, 5).map(lambda n: n / 4), min_size=1, max_size=40)


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


@given(SCORES, st.integers(1, 12))
def test_the_top_is_that_of_a_stable_sort(scores: list[float], k: int) -> None:
    expected = sorted(range(len(scores)), key=lambda at: (-scores[at], at))[:k]
    assert peers.take_top(np.array(scores), k) == expected


@given(SCORES, st.integers(1, 12))
def test_a_floor_leaves_out_what_is_not_above_it(scores: list[float], k: int) -> None:
    found = peers.take_top(np.array(scores), k, above=0.0)
    assert all(scores[at] > 0 for at in found)
    assert len(found) == min(k, sum(score > 0 for score in scores))


def test_fusion_puts_first_what_both_lists_hold() -> None:
    assert peers.fuse_ranks([[[1, 2, 3]], [[4, 2, 5]]], 3) == [[2, 1, 4]]


def test_the_loop_and_the_matrix_form_of_mcp_zero_agree() -> None:
    rng = np.random.default_rng(3)
    server_of = np.array([at % 9 for at in range(60)])
    asked, described, summarised, tools = (_unit(rng, n) for n in (4, 9, 9, 60))
    matrix = peers.mcp_zero(asked, described, summarised, tools, server_of, 5)
    servers = [
        {
            "description": described[at].tolist(),
            "summary": summarised[at].tolist(),
            "tools": [(place, tools[place].tolist()) for place in np.flatnonzero(server_of == at)],
        }
        for at in range(9)
    ]
    looped = [[at for _, at in peers.mcp_zero_loop(row.tolist(), servers, 5)] for row in asked]
    assert looped == matrix


def test_without_its_python_fastmcp_is_not_run(tmp_path: Path) -> None:
    assert peers.rank_fastmcp(tmp_path / "no-python", tmp_path, [], [], 5) is None


def test_a_twin_is_a_hit_and_a_namesake_is_not() -> None:
    listed = {
        "a::get_time": {"name": "get_time", "description": "Tells the time."},
        "b::getTime": {"name": "getTime", "description": " Tells the time. "},
        "c::get_time": {"name": "get_time", "description": "Sets a timer."},
    }
    twins = Pool({}, {}, listed, {}).twins
    assert hit_at(["c::get_time", "b::getTime"], "a::get_time", twins) == 1
    assert hit_at(["c::get_time"], "a::get_time", twins) == 999


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("What's the weather in Évora?", True),
        ("Surprise me with some Pokémon that beats water.", True),
        ("Qual é o endereço do CEP 01310-100?", False),
        ("查一下London今天的天气。", False),
        ("Zeig mir im Verzeichnis, was noch zu tun ist. Alte Listen brauche ich nicht.", False),
    ],
)  # fmt: skip
def test_a_request_in_another_language_is_told(text: str, expected: bool) -> None:
    assert is_english(text) is expected


def test_kept_vectors_are_made_once_and_stay(tmp_path: Path) -> None:
    model = Counting()
    first = Kept(model, tmp_path).embed(["a", "b", "a"])
    again = Kept(model, tmp_path).embed(["b", "a", "c"])
    assert model.embedded == 3
    assert np.array_equal(first[0], first[2])
    assert np.array_equal(again[0], first[1])


def test_a_grown_pool_has_its_size_and_vectors_near_the_real_ones() -> None:
    base = make_plain_pool(
        {f"tool{at}": f"It does {at} things with many words in a row" for at in "abc"}
    )
    pool = grow_pool(base, 8)
    source = source_of(pool)
    assert len(pool.contracts) == len({row["contract_digest"] for row in source.rows}) == 8
    model = Counting()
    known = {contract["name"] for contract in base.contracts.values()}
    texts = [contract["name"] for contract in pool.contracts.values()]
    vectors = embed_grown(known, model.embed)(texts)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    near = (vectors @ model.embed(sorted(known)).T).max(axis=1)
    assert near.min() > 0.9


def test_a_ratio_is_of_sums_and_its_interval_holds_it() -> None:
    ours, best = np.array([1.0, 1, 0, 1, 1, 0]), np.array([1.0, 0, 0, 1, 0, 0])
    found = bootstrap_ratio(ours, best, list("aabbcc"))
    assert found.value == 2.0
    assert found.low <= found.value <= found.high


def _unit(rng: np.random.Generator, count: int) -> np.ndarray:
    rows = rng.standard_normal((count, 16)) + 0.7
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)
