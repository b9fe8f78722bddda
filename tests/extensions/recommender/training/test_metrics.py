import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extensions.recommender.training.metrics import compare_pairs, measure_auc, measure_calibration


@given(rows=st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=2, max_size=30))
def test_auc_is_the_share_of_pairs_in_the_right_order(rows: list[tuple[int, bool]]) -> None:
    scores = np.array([score for score, _ in rows], float)
    success = np.array([won for _, won in rows])
    right, pairs = compare_pairs(scores, success, ["one"] * len(rows))
    auc = measure_auc(scores, success)
    assert (auc is None) == (pairs == 0)
    if auc is not None:
        assert auc == pytest.approx(right / pairs)


def test_pairs_are_of_one_task() -> None:
    scores, success = np.array([0.9, 0.1, 0.5]), np.array([False, True, True])
    assert compare_pairs(scores, success, ["a", "b", "b"]) == (0.0, 0)
    assert compare_pairs(scores, success, ["a", "a", "b"]) == (0.0, 1)


def test_true_probabilities_have_little_calibration_error_and_false_ones_much() -> None:
    rng = np.random.default_rng(0)
    p = rng.random(4_000)
    success = rng.random(4_000) < p
    assert measure_calibration(p, success)["calibration_error"] < 0.03
    assert measure_calibration(1 - p, success)["calibration_error"] > 0.3
