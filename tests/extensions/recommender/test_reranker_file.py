import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from extensions.recommender.reranker import BayesianReranker, RerankerWeights
from extensions.recommender.reranker_file import (
    BadReranker,
    open_reranker,
    read_reranker,
    write_reranker,
)
from extensions.recommender.reranker_fit import fit_reranker
from tests.support.reranking import draw_examples, make_pool, make_question

POOL = make_pool()


@cache
def fit() -> RerankerWeights:
    return fit_reranker(draw_examples(POOL, 60), POOL, embedder="test/8")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_reranker(fit(), tmp_path / "reranker.npz")
    return tmp_path / "reranker.npz"


def test_what_is_read_scores_as_what_was_written(path: Path) -> None:
    question = make_question(POOL, 7)
    found = open_reranker(path, POOL, "test/8").score(question)
    expected = BayesianReranker(fit(), POOL).score(question)
    assert found.p == pytest.approx(expected.p, abs=1e-5)
    assert found.sd == pytest.approx(expected.sd, abs=1e-5)


def test_vectors_of_another_embedder_are_refused(path: Path) -> None:
    with pytest.raises(BadReranker, match="fitted to vectors of test/8"):
        open_reranker(path, POOL, "other/8")


def change_file(path: Path, **changed: np.ndarray) -> None:
    with np.load(path) as held:
        arrays = {name: held[name] for name in held.files}
    np.savez(path, **(arrays | changed))


@pytest.mark.parametrize(
    "name",
    [
        "basis",
        "query_mean",
        "request_basis",
        "families",
        "centre",
        "scale",
        "mean",
        "covariance",
        "tool-means",
    ],
)
def test_an_array_of_another_shape_or_without_numbers_is_refused(path: Path, name: str) -> None:
    with np.load(path) as held:
        good = held[name]
    change_file(path, **{name: np.full_like(good, np.nan)})
    with pytest.raises(BadReranker, match=name):
        read_reranker(path)
    change_file(path, **{name: good[:-1]})
    with pytest.raises(BadReranker):
        read_reranker(path)


@pytest.mark.parametrize(
    "change",
    [
        {"format": 4}, {"shape": {"query": 10**9}}, {"features": ["x"]}, {"levels": 3},
        {"hardness": float("nan")}, {"levels": {"other": ["x"]}},
    ],
)  # fmt: skip
def test_what_it_says_of_itself_is_checked(path: Path, change: dict) -> None:
    with np.load(path) as held:
        about = json.loads(held["about"].tobytes())
    change_file(path, about=np.frombuffer(json.dumps(about | change).encode(), np.uint8))
    with pytest.raises(BadReranker, match="expected a reranker of format 3"):
        read_reranker(path)


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04", b"[]", b"\x00" * 100])
def test_another_file_is_told_apart(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x.npz").write_bytes(data)
    with pytest.raises(BadReranker, match="expected a reranker"):
        read_reranker(tmp_path / "x.npz")
