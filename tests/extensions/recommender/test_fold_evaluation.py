"""."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extensions.recommender.methods import BayesianMethod, SuccessPrior
from extensions.recommender.rerank_method import (
    OutcomeExample,
    RerankMethod,
    assign_folds,
    compare_pairs,
    measure_auc,
    measure_calibration,
    run_fold,
    tabulate_methods,
)
from extensions.recommender.tool_pool import ToolPool
from tests.support.reranking import draw_examples, make_pool

POOL = make_pool()
EXAMPLES = draw_examples(POOL, 200)


def score_in_time(
    method: RerankMethod,
    examples: Sequence[OutcomeExample],
    pool: ToolPool,
    *,
    refit_every: int = 100,
) -> np.ndarray:
    """The score of each example before its outcome was known, in the order given: by a fit of what
    came before it, every so often, and by updates since."""
    method.fit([], pool)
    scores = []
    for at, one in enumerate(examples):
        if at and at % refit_every == 0:
            method.fit(examples[:at], pool)
        scores.append(float(method.score(one.question, np.array([one.place]))[0]))
        method.update(one)
    return np.array(scores)


def test_no_task_is_in_two_folds_and_the_order_of_rows_changes_nothing() -> None:
    folds = assign_folds(EXAMPLES, 5)
    by_task = {one.task: fold for one, fold in zip(EXAMPLES, folds, strict=True)}
    assert all(by_task[one.task] == fold for one, fold in zip(EXAMPLES, folds, strict=True))
    assert (assign_folds(EXAMPLES[::-1], 5)[::-1] == folds).all()
    assert np.ptp(np.bincount(folds)) <= 2


def test_a_fold_is_scored_by_what_the_others_taught_only() -> None:
    folds = assign_folds(EXAMPLES, 5)
    swapped = [
        replace(one, success=not one.success) if fold == 2 else one
        for one, fold in zip(EXAMPLES, folds, strict=True)
    ]
    first, second = (
        run_fold("ours", BayesianMethod, rows, POOL, folds, 2).scores
        for rows in (EXAMPLES, swapped)
    )
    assert first == pytest.approx(second)


@pytest.mark.parametrize("make", [BayesianMethod, SuccessPrior])
def test_no_later_outcome_leaks_into_an_earlier_score(make: type) -> None:
    cut = 60
    later = [
        one if at < cut else replace(one, success=not one.success, place=(one.place + 1) % 12)
        for at, one in enumerate(EXAMPLES[:90])
    ]
    known, other = (
        score_in_time(make(), rows, POOL, refit_every=30)[:cut] for rows in (EXAMPLES[:90], later)
    )
    assert known == pytest.approx(other, abs=1e-12)
    assert score_in_time(make(), EXAMPLES[:cut], POOL, refit_every=30) == pytest.approx(known)


def test_the_table_tells_each_fold_and_all_together() -> None:
    folds = assign_folds(EXAMPLES, 4)
    results = {
        "ours": [run_fold("ours", BayesianMethod, EXAMPLES, POOL, folds, at) for at in range(4)]
    }
    row = tabulate_methods(results, EXAMPLES)["ours"]
    assert len(row["folds"]) == 4
    assert sum(one["n"] for one in row["folds"]) == len(EXAMPLES)
    assert row["auc"] > 0.8
    assert row["pair_accuracy"] > 0.8
    assert row["calibration"]["calibration_error"] < 0.15


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
