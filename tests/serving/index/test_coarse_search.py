"""A first look at the pool: the best are among what is looked at, products are on one thread."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from serving.index.model import VectorMoments, compute_products, list_nearly_best

SCORES = arrays(np.float32, st.integers(0, 400), elements=st.integers(-40, 40).map(float))


@given(SCORES, st.integers(1, 12))
def test_the_best_are_among_the_nearly_best_in_order(scores: np.ndarray, most: int) -> None:
    found = list_nearly_best(scores, most)
    assert (np.diff(found) > 0).all()
    assert np.sort(scores[found])[-most:].tolist() == np.sort(scores)[-most:].tolist()
    assert set(np.argsort(-scores, kind="stable")[:most]) <= set(found)


def test_of_many_scores_few_are_looked_at() -> None:
    scores = np.random.default_rng(1).standard_normal(20_000).astype(np.float32)
    assert 50 <= len(list_nearly_best(scores, 50)) < 100


def test_products_and_moments_are_those_of_the_rows() -> None:
    rng = np.random.default_rng(2)
    rows, vector = rng.standard_normal((300, 24), np.float32), rng.standard_normal(24, np.float32)
    products = compute_products(rows, vector)
    assert products.dtype == np.float32
    np.testing.assert_allclose(products, rows.astype(float) @ vector, rtol=1e-4, atol=1e-5)
    found = VectorMoments.of(rows).measure_along(vector)
    np.testing.assert_allclose(found, (products.mean(), products.std()), rtol=1e-3)
