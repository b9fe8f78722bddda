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
    measure_auc,
    measure_calibration,
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


@given(rows=st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=2, max_size=30))
def test_auc_is_the_share_of_pairs_in_the_right_order(rows: list[tuple[int, bool]]) -> None:
    scores = np.array([score for score, _ in rows], float)
    success = np.array([won for _, won in rows])
    ahead = scores[success][:, None] - scores[~success][None, :]
    auc = measure_auc(scores, success)
    assert (auc is None) == (ahead.size == 0)
    if auc is not None:
        assert auc == pytest.approx(((ahead > 0) + 0.5 * (ahead == 0)).mean())


def test_true_probabilities_have_little_calibration_error_and_false_ones_much() -> None:
    rng = np.random.default_rng(0)
    p = rng.random(4_000)
    success = rng.random(4_000) < p
    assert measure_calibration(p, success)["calibration_error"] < 0.03
    assert measure_calibration(1 - p, success)["calibration_error"] > 0.3
