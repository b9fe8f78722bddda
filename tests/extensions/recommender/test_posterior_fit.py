from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extensions.recommender.posterior_fit import find_split
from extensions.recommender.reranker import BayesianReranker
from extensions.recommender.reranker_fit import fit_reranker
from tests.support.reranking import draw_examples, make_pool, make_question

POOL = make_pool()


@pytest.mark.parametrize("first", [True, False])
def test_a_tool_that_turned_is_split_where_it_did(first: bool) -> None:
    success = np.array([first] * 20 + [not first] * 12, float)
    gap = success - success.mean()
    assert 17 <= find_split(gap, np.full(32, 0.23)) <= 23


@given(seed=st.integers(0, 40), count=st.integers(0, 60))
def test_steady_outcomes_are_seldom_split(seed: int, count: int) -> None:
    success = np.random.default_rng(seed).random(count) < 0.5
    split = find_split(success - 0.5, np.full(count, 0.25))
    assert 0 <= split < max(count, 1)


def test_of_many_steady_tools_few_are_held_to_have_changed() -> None:
    rng = np.random.default_rng(0)
    found = [find_split((rng.random(40) < 0.7) - 0.7, np.full(40, 0.21)) for _ in range(300)]
    assert np.mean([split > 0 for split in found]) < 0.05


def test_a_fit_of_all_believes_what_a_changed_tool_does_now() -> None:
    examples = draw_examples(POOL, 600)
    turned = [
        replace(one, success=not one.success) if one.place == 0 and at >= 350 else one
        for at, one in enumerate(examples)
    ]
    ranker = BayesianReranker(fit_reranker(turned, POOL), POOL)
    places = np.array([0, 2])
    changed, steady = np.mean(
        [ranker.score(make_question(POOL, 900 + at), places).p for at in range(10)], 0
    )
    assert changed < 0.5
    assert steady > 0.7
