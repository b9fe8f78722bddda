from dataclasses import replace

import numpy as np
import pytest

from extensions.recommender.posterior import BlockLevel
from extensions.recommender.rerank_method import OutcomeExample
from extensions.recommender.reranker import CLIENT, TOOL, BayesianReranker
from extensions.recommender.reranker_fit import (
    MOST_OF_TOOL,
    TASK,
    fit_reranker,
    select_recent,
)
from tests.support.reranking import draw_examples, make_pool, make_question

POOL = make_pool()
EXAMPLES = draw_examples(POOL, 150)


def score_all(weights, seed: int = 700) -> np.ndarray:
    return BayesianReranker(weights, POOL).score(make_question(POOL, seed), np.arange(len(POOL))).p


@pytest.mark.parametrize("success", [True, False])
def test_outcomes_that_are_all_alike_move_every_tool_and_settle(success: bool) -> None:
    alike = [replace(one, success=success) for one in EXAMPLES]
    p = score_all(fit_reranker(alike, POOL))
    assert ((p > 0.8) if success else (p < 0.2)).all()
    assert np.isfinite(p).all()


def test_the_order_of_the_file_changes_nothing() -> None:
    assert score_all(fit_reranker(EXAMPLES[::-1], POOL)) == pytest.approx(
        score_all(fit_reranker(EXAMPLES, POOL)), abs=1e-6
    )


def test_an_outcome_that_counts_nothing_changes_nothing() -> None:
    extra = [replace(one, weight=0.0, success=not one.success) for one in EXAMPLES]
    assert score_all(fit_reranker([*EXAMPLES, *extra], POOL)) == pytest.approx(
        score_all(fit_reranker(EXAMPLES, POOL)), abs=1e-9
    )


def test_a_fit_reads_the_newest_outcomes_of_each_tool() -> None:
    question = make_question(POOL, 1)
    many = [
        OutcomeExample(replace(question, at=float(at)), at % 2, True)
        for at in range(3 * MOST_OF_TOOL)
    ]
    kept = select_recent(many)
    assert len(kept) == 2 * MOST_OF_TOOL
    assert [one.question.at for one in kept] == sorted(one.question.at for one in kept)
    assert kept[-1] is many[-1]


def test_every_level_is_served_but_that_of_tasks() -> None:
    weights = fit_reranker(EXAMPLES, POOL)
    assert TASK not in weights.levels
    assert weights.hardness > 0
    assert len(weights.levels[TOOL].blocks) == len(POOL)
    assert weights.levels[CLIENT].blocks == {}
    assert isinstance(weights.levels[CLIENT], BlockLevel)
    assert weights.facts == {"outcomes": 150, "of": 150, "until": 149.0, "by_kind": 2.0}


def test_a_tool_never_called_is_expected_to_do_as_its_like() -> None:
    places = np.array([4, 5])
    known = [one for one in EXAMPLES if one.place not in places]
    without, with_them = (
        BayesianReranker(fit_reranker(rows, POOL), POOL).score(make_question(POOL, 3), places)
        for rows in (known, EXAMPLES)
    )
    assert (without.belief.variance > with_them.belief.variance).all()
    assert abs(without.p[0] - without.p[1]) < abs(with_them.p[0] - with_them.p[1])
