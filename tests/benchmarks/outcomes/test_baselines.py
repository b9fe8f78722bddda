"""Baselines order tools whatever they have seen, and their benchmark prints every method."""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.outcomes.baselines import ALL_METHODS
from benchmarks.outcomes.rerankers import compare_folds
from benchmarks.outcomes.simulated_pools import make_random_stage
from benchmarks.outcomes.simulator import EASY, make_world
from extensions.recommender.methods import METHODS
from tests.support.reranking import draw_examples, make_pool, make_question

POOL = make_pool()
EXAMPLES = draw_examples(POOL, 160)
PLACES = np.arange(len(POOL))
BASELINES = sorted(set(ALL_METHODS) - set(METHODS))
HISTORIES = {
    "empty": [],
    "failures": [replace(one, success=False) for one in EXAMPLES[:30]],
    "both": EXAMPLES,
}


@pytest.mark.parametrize("name", BASELINES)
@pytest.mark.parametrize("history", HISTORIES)
def test_a_baseline_orders_whatever_was_seen(name: str, history: str) -> None:
    method, rng = ALL_METHODS[name](), np.random.default_rng(0)
    method.fit(HISTORIES[history], POOL)
    method.update(EXAMPLES[0])
    question = make_question(POOL, 850)
    for scores in (method.score(question, PLACES), method.explore(question, PLACES, rng)):
        assert scores.shape == PLACES.shape
        assert np.isfinite(scores).all()
    if history == "both" and name not in ("cosine", "oats"):  # these move similarity only
        scores = np.mean(
            [method.score(make_question(POOL, 800 + at), PLACES) for at in range(12)], 0
        )
        assert scores[0::2].mean() > scores[1::2].mean()


def test_methods_are_compared_over_folds_with_an_interval() -> None:
    world = make_world(make_random_stage(1, real=12, variants=20, requests=120), EASY, 1)
    figures = compare_folds([world], [1], ["cosine", "ours"])["methods"]
    assert figures["ours"]["auc"] > 0.5
    assert "[" in figures["cosine"]["ours_ahead_auc"]
