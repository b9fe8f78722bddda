from dataclasses import replace

import numpy as np
import pytest

from extensions.recommender.methods import METHODS
from extensions.recommender.toolflix import ToolFlix
from tests.support.reranking import draw_examples, make_pool, make_question

POOL = make_pool()
EXAMPLES = draw_examples(POOL, 160)
PLACES = np.arange(len(POOL))


@pytest.mark.parametrize("name", sorted(METHODS))
def test_a_method_learns_which_tools_work(name: str) -> None:
    method = METHODS[name]()
    method.fit(EXAMPLES, POOL)
    scores = np.mean([method.score(make_question(POOL, 800 + at), PLACES) for at in range(12)], 0)
    assert scores[0::2].mean() > scores[1::2].mean()


@pytest.mark.parametrize("name", sorted(METHODS))
@pytest.mark.parametrize("history", ["empty", "one", "failures", "successes", "unseen tools"])
def test_a_method_orders_whatever_was_seen(name: str, history: str) -> None:
    seen = {
        "empty": [],
        "one": EXAMPLES[:1],
        "failures": [replace(one, success=False) for one in EXAMPLES[:30]],
        "successes": [replace(one, success=True) for one in EXAMPLES[:30]],
        "unseen tools": [replace(one, place=one.place % 2) for one in EXAMPLES[:30]],
    }[history]
    method = METHODS[name]()
    method.fit(seen, POOL)
    question = make_question(POOL, 850)
    method.update(EXAMPLES[0])
    scores = method.score(question, PLACES)
    assert scores.shape == PLACES.shape
    assert np.isfinite(scores).all()


@pytest.mark.parametrize("name", sorted(METHODS))
def test_a_method_is_a_function_of_what_it_is_fitted_to(name: str) -> None:
    first, second = METHODS[name](), METHODS[name]()
    first.fit(EXAMPLES[:40], POOL)
    second.fit(EXAMPLES[40:80], POOL)
    second.fit(EXAMPLES[:40], POOL)
    question = make_question(POOL, 851)
    assert first.score(question, PLACES) == pytest.approx(second.score(question, PLACES), abs=1e-5)


def test_without_wide_features_counts_of_the_past_change_nothing() -> None:
    method, question = ToolFlix(wide=False), make_question(POOL, 852)
    method.fit(EXAMPLES[:60], POOL)
    before = method.score(question, PLACES)
    for one in EXAMPLES:
        method.update(replace(one, success=not one.success))
    assert np.array_equal(before, method.score(question, PLACES))
