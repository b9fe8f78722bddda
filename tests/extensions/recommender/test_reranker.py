import threading
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extensions.recommender.reranker import BayesianReranker, RerankerWeights
from extensions.recommender.reranker_fit import fit_reranker
from tests.support.reranking import draw_examples, make_pool, make_question

POOL = make_pool()


@cache
def fit(outcomes: int) -> RerankerWeights:
    return fit_reranker(draw_examples(POOL, outcomes) if outcomes else [], POOL)


def test_without_outcomes_it_orders_as_the_retriever() -> None:
    question = make_question(POOL, 5)
    scores = BayesianReranker(fit(0), POOL).score(question)
    assert np.argmax(scores.p) == 0
    assert (
        np.corrcoef(scores.belief.mean, POOL.vectors[question.candidates] @ question.vector)[0, 1]
        > 0.95
    )


def test_a_tool_scores_the_same_alone_as_among_others() -> None:
    pool = make_pool(60)
    ranker = BayesianReranker(fit_reranker(draw_examples(pool, 100), pool), pool)
    question = make_question(pool, 5)
    whole = ranker.score(question)
    for row, place in enumerate(question.candidates[::7].tolist()):
        alone = ranker.score(question, np.array([place])).belief
        assert alone.mean[0] == pytest.approx(whole.belief.mean[7 * row])
        assert alone.variance[0] == pytest.approx(whole.belief.variance[7 * row])


def test_outcomes_tell_good_tools_from_bad_ones_at_questions_never_seen() -> None:
    ranker = BayesianReranker(fit(300), POOL)
    places = np.arange(len(POOL))
    p = np.mean([ranker.score(make_question(POOL, 900 + at), places).p for at in range(20)], 0)
    assert p[0::2].min() > 0.6
    assert p[1::2].max() < 0.4


def test_what_is_less_known_is_less_sure() -> None:
    pool = make_pool(len(POOL) + 1)
    ranker = BayesianReranker(fit_reranker(draw_examples(POOL, 300), pool), pool)
    sd = np.sqrt(ranker.score(make_question(pool, 901), np.arange(len(pool))).belief.variance)
    assert sd[-1] > sd[:-1].max()


def test_an_update_moves_the_tool_and_what_resembles_it_towards_the_outcome() -> None:
    ranker, question = BayesianReranker(fit(0), POOL), make_question(POOL, 3)
    place = int(question.candidates[0])
    before = ranker.score(question).p
    ranker.update(question, place, success=False)
    after = ranker.score(question)
    assert after.p[0] < before[0]
    assert before[0] - after.p[0] > np.abs(before[1:] - after.p[1:]).max()


def test_updates_alone_reach_what_a_fit_of_all_says() -> None:
    examples = draw_examples(POOL, 300)
    ranker = BayesianReranker(fit_reranker(examples[:50], POOL), POOL)
    for one in examples[50:]:
        ranker.update(one.question, one.place, one.success, one.weight)
    questions = [make_question(POOL, 950 + at) for at in range(10)]
    own = np.concatenate([ranker.score(question).p for question in questions])
    whole = np.concatenate(
        [BayesianReranker(fit(300), POOL).score(question).p for question in questions]
    )
    assert np.abs(own - whole).mean() < 0.1


@given(
    seed=st.integers(0, 50), place=st.integers(0, 11), success=st.booleans(),
    weight=st.floats(0, 1), at=st.floats(-1e9, 1e9),
)  # fmt: skip
@settings(max_examples=25, deadline=None)
def test_probabilities_stay_probabilities_whatever_comes(
    seed: int, place: int, success: bool, weight: float, at: float
) -> None:
    ranker = BayesianReranker(fit(300), POOL)
    for _ in range(3):
        ranker.update(make_question(POOL, seed, at=at), place, success, weight)
    scores = ranker.score(make_question(POOL, seed + 1, at=at + 5))
    assert ((scores.p > 0) & (scores.p < 1) & (scores.sd > 0) & np.isfinite(scores.sd)).all()


def test_a_question_that_is_no_number_scores_finite() -> None:
    question = make_question(POOL, 1)
    broken = replace(question, vector=np.full_like(question.vector, np.nan))
    ranker = BayesianReranker(fit(300), POOL)
    ranker.update(broken, 0, True)
    assert np.isfinite(ranker.score(broken).p).all()
    assert np.isfinite(ranker.score(question).p).all()


def test_no_candidates_score_nothing() -> None:
    question = replace(make_question(POOL, 1), candidates=np.zeros(0, int))
    assert BayesianReranker(fit(300), POOL).score(question).p.shape == (0,)


@pytest.mark.parametrize("weight", [-0.1, 1.1, float("nan")])
def test_a_weight_beyond_one_outcome_is_refused(weight: float) -> None:
    with pytest.raises(ValueError, match="weight is"):
        BayesianReranker(fit(0), POOL).update(make_question(POOL, 1), 0, True, weight)


def test_a_client_of_its_own_learns_for_itself() -> None:
    ranker = BayesianReranker(fit(300), POOL)
    for at in range(6):
        ranker.update(make_question(POOL, at, client="alice"), 0, False)
    place = np.array([0])
    alice = ranker.score(make_question(POOL, 960, client="alice"), place).p[0]
    bob = ranker.score(make_question(POOL, 960, client="bob"), place).p[0]
    assert alice < bob


def test_a_client_never_seen_is_like_any_other() -> None:
    ranker = BayesianReranker(fit(300), POOL)
    ranker.update(make_question(POOL, 1, client="alice"), 0, False)
    told = [ranker.score(make_question(POOL, 960, client=name)) for name in (None, "bob")]
    assert (told[0].p == told[1].p).all()
    assert (told[0].sd == told[1].sd).all()


def test_outcomes_that_all_go_against_what_was_known_are_believed_sooner() -> None:
    ranker, question = BayesianReranker(fit(300), POOL), make_question(POOL, 972)
    place = np.array([0])
    counts = 0
    while ranker.score(question, place).p[0] > 0.5 and counts < 40:
        ranker.update(make_question(POOL, 980 + counts), 0, False)
        counts += 1
    assert counts <= 15


def test_held_weights_do_not_change_under_a_reader() -> None:
    ranker = BayesianReranker(fit(300), POOL)
    held = ranker.weights
    ranker.update(make_question(POOL, 1), 0, False)
    assert BayesianReranker(held, POOL).score(make_question(POOL, 1)).p == pytest.approx(
        BayesianReranker(fit(300), POOL).score(make_question(POOL, 1)).p
    )


def test_adopted_weights_are_believed_whole_and_the_released_ones_kept() -> None:
    taught, served = BayesianReranker(fit(300), POOL), BayesianReranker(fit(300), POOL)
    question = make_question(POOL, 1)
    before = served.score(question).p
    taught.update(question, 0, False)
    assert (served.score(question).p == before).all()
    served.adopt(taught.weights)
    assert (served.score(question).p == taught.score(question).p).all()
    taught.update(question, 0, False)
    assert (served.score(question).p != taught.score(question).p).any()
    served.adopt(served.released)
    assert (served.score(question).p == before).all()


def test_questions_are_answered_while_an_update_waits() -> None:
    ranker = BayesianReranker(fit(300), POOL)
    answered = threading.Event()

    def ask() -> None:
        ranker.score(make_question(POOL, 2))
        answered.set()

    with ranker._lock:  # an update is under way
        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        assert answered.wait(60)
    thread.join(60)
