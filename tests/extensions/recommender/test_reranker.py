"""The reranker: its fit, its file, and what it answers."""

import json
import threading
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extensions.recommender import posterior, rerank_method, reranker_file, reranker_fit
from extensions.recommender.posterior_fit import find_split
from extensions.recommender.reranker import CLIENT, TOOL, BayesianReranker, RerankerWeights
from serving.ranking.strategies import RerankQuestion
from tests.extensions.recommender.reranked_tools import DIM, draw_examples, make_pool, make_question
from tests.support.cases import cases

POOL = make_pool()


@cache
def fit(outcomes: int) -> RerankerWeights:
    return reranker_fit.fit_reranker(draw_examples(POOL, outcomes) if outcomes else [], POOL)


def test_without_outcomes_it_orders_as_the_retriever_and_with_them_by_what_works():
    question = make_question(POOL, 5)
    scores = BayesianReranker(fit(0), POOL).score(question)
    assert np.argmax(scores.p) == 0
    cosines = POOL.vectors[question.candidates] @ question.vector
    assert np.corrcoef(scores.belief.mean, cosines)[0, 1] > 0.95
    pool = make_pool(60)
    ranker = BayesianReranker(reranker_fit.fit_reranker(draw_examples(pool, 100), pool), pool)
    question = make_question(pool, 5)
    whole = ranker.score(question)
    for row, place in enumerate(question.candidates[::7].tolist()):
        alone = ranker.score(question, np.array([place])).belief
        assert alone.mean[0] == pytest.approx(whole.belief.mean[7 * row])
        assert alone.variance[0] == pytest.approx(whole.belief.variance[7 * row])
    ranker, places = BayesianReranker(fit(300), POOL), np.arange(len(POOL))
    p = np.mean([ranker.score(make_question(POOL, 900 + at), places).p for at in range(20)], 0)
    assert p[0::2].min() > 0.6
    assert p[1::2].max() < 0.4


def test_an_update_moves_what_resembles_its_tool_and_updates_reach_what_a_fit_of_all_says():
    ranker, question = BayesianReranker(fit(0), POOL), make_question(POOL, 3)
    place, before = int(question.candidates[0]), ranker.score(question).p
    ranker.update(question, place, success=False)
    after = ranker.score(question)
    assert after.p[0] < before[0]
    assert before[0] - after.p[0] > np.abs(before[1:] - after.p[1:]).max()
    examples = draw_examples(POOL, 300)
    ranker = BayesianReranker(reranker_fit.fit_reranker(examples[:50], POOL), POOL)
    for one in examples[50:]:
        ranker.update(one.question, one.place, one.success, one.weight)
    questions = [make_question(POOL, 950 + at) for at in range(10)]
    own, whole = (
        np.concatenate([by.score(question).p for question in questions])
        for by in (ranker, BayesianReranker(fit(300), POOL))
    )
    assert np.abs(own - whole).mean() < 0.1


@given(
    seed=st.integers(0, 50), place=st.integers(0, 11), success=st.booleans(),
    weight=st.floats(0, 1), at=st.floats(-1e9, 1e9),
)  # fmt: skip
@settings(max_examples=25, deadline=None)
def test_probabilities_stay_probabilities_whatever_comes(seed, place, success, weight, at):
    ranker = BayesianReranker(fit(300), POOL)
    for _ in range(3):
        ranker.update(make_question(POOL, seed, at=at), place, success, weight)
    scores = ranker.score(make_question(POOL, seed + 1, at=at + 5))
    assert ((scores.p > 0) & (scores.p < 1) & (scores.sd > 0) & np.isfinite(scores.sd)).all()


def test_a_question_that_is_no_number_scores_finite_and_one_without_candidates_nothing():
    question = make_question(POOL, 1)
    broken = replace(question, vector=np.full_like(question.vector, np.nan))
    ranker = BayesianReranker(fit(300), POOL)
    ranker.update(broken, 0, True)
    assert np.isfinite(ranker.score(broken).p).all()
    assert np.isfinite(ranker.score(question).p).all()
    assert ranker.score(replace(question, candidates=np.zeros(0, int))).p.shape == (0,)


@cases("weight", -0.1, 1.1, float("nan"))
def test_a_weight_beyond_one_outcome_is_refused(weight):
    with pytest.raises(ValueError, match="weight is"):
        BayesianReranker(fit(0), POOL).update(make_question(POOL, 1), 0, True, weight)


def test_clients_learn_for_themselves_and_outcomes_against_what_was_known_are_believed_sooner():
    ranker, place = BayesianReranker(fit(300), POOL), np.array([0])
    for at in range(6):
        ranker.update(make_question(POOL, at, client="alice"), 0, False)
    alice, bob, nobody = (
        ranker.score(make_question(POOL, 960, client=name), place)
        for name in ("alice", "bob", None)
    )
    assert alice.p[0] < bob.p[0]
    assert (bob.p[0], bob.sd[0]) == (nobody.p[0], nobody.sd[0])
    ranker, question = BayesianReranker(fit(300), POOL), make_question(POOL, 972)
    for at in range(15):
        if ranker.score(question, np.array([0])).p[0] > 0.5:
            ranker.update(make_question(POOL, 980 + at), 0, False)
    assert ranker.score(question, np.array([0])).p[0] <= 0.5


def test_adopted_weights_are_believed_whole_and_questions_are_answered_meanwhile():
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
    ranker, question = BayesianReranker(fit(300), POOL), make_question(POOL, 2)
    with ranker._lock:  # an update is under way
        thread = threading.Thread(target=ranker.score, args=[question], daemon=True)
        thread.start()
        thread.join(60)
        assert not thread.is_alive()


@cache
def fit_file() -> RerankerWeights:
    return reranker_fit.fit_reranker(draw_examples(POOL, 60), POOL, embedder="test/8")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    reranker_file.write_reranker(fit_file(), tmp_path / "reranker.npz")
    return tmp_path / "reranker.npz"


def test_what_is_read_scores_as_what_was_written_over_the_same_embedder(path):
    question = make_question(POOL, 7)
    found = reranker_file.open_reranker(path, POOL, "test/8").score(question)
    expected = BayesianReranker(fit_file(), POOL).score(question)
    assert found.p == pytest.approx(expected.p, abs=1e-5)
    assert found.sd == pytest.approx(expected.sd, abs=1e-5)
    with pytest.raises(reranker_file.BadReranker, match="fitted to vectors of test/8"):
        reranker_file.open_reranker(path, POOL, "other/8")


def change_file(path: Path, **changed: np.ndarray) -> None:
    with np.load(path) as held:
        arrays = {name: held[name] for name in held.files}
    np.savez(path, **(arrays | changed))


@cases(
    "name",
    "basis", "query_mean", "request_basis", "families", "centre", "scale", "mean", "covariance",
    "tool-means",
)  # fmt: skip
def test_an_array_of_another_shape_or_without_numbers_is_refused(path, name):
    with np.load(path) as held:
        good = held[name]
    change_file(path, **{name: np.full_like(good, np.nan)})
    with pytest.raises(reranker_file.BadReranker, match=name):
        reranker_file.read_reranker(path)
    change_file(path, **{name: good[:-1]})
    with pytest.raises(reranker_file.BadReranker):
        reranker_file.read_reranker(path)


@cases(
    "change",
    {"format": 4}, {"shape": {"query": 10**9}}, {"features": ["x"]}, {"levels": 3},
    {"hardness": float("nan")}, {"levels": {"other": ["x"]}},
)  # fmt: skip
def test_what_it_says_of_itself_is_checked(path, change):
    with np.load(path) as held:
        about = json.loads(held["about"].tobytes())
    change_file(path, about=np.frombuffer(json.dumps(about | change).encode(), np.uint8))
    with pytest.raises(reranker_file.BadReranker, match="expected a reranker of format 3"):
        reranker_file.read_reranker(path)


@cases("data", b"", b"PK\x03\x04", b"[]", b"\x00" * 100)
def test_another_file_is_told_apart(tmp_path, data):
    (tmp_path / "x.npz").write_bytes(data)
    with pytest.raises(reranker_file.BadReranker, match="expected a reranker"):
        reranker_file.read_reranker(tmp_path / "x.npz")


EXAMPLES = draw_examples(POOL, 150)


def score_all(examples: list[rerank_method.OutcomeExample]) -> np.ndarray:
    ranker = BayesianReranker(reranker_fit.fit_reranker(examples, POOL), POOL)
    return ranker.score(make_question(POOL, 700), np.arange(len(POOL))).p


@cases("success", True, False)
def test_outcomes_that_are_all_alike_move_every_tool_and_settle(success):
    p = score_all([replace(one, success=success) for one in EXAMPLES])
    assert ((p > 0.8) if success else (p < 0.2)).all()
    assert np.isfinite(p).all()


NOTHING = [replace(one, weight=0.0, success=not one.success) for one in EXAMPLES]


@cases("rows, near", (EXAMPLES[::-1], 1e-6), ([*EXAMPLES, *NOTHING], 1e-9))
def test_the_order_of_the_file_and_outcomes_that_count_nothing_change_nothing(rows, near):
    assert score_all(rows) == pytest.approx(score_all(EXAMPLES), abs=near)


def test_a_fit_reads_the_newest_outcomes_of_each_tool_and_serves_every_level_but_that_of_tasks():
    question = make_question(POOL, 1)
    many = [
        rerank_method.OutcomeExample(replace(question, at=float(at)), at % 2, True)
        for at in range(3 * reranker_fit.MOST_OF_TOOL)
    ]
    kept = reranker_fit.select_recent(many)
    assert len(kept) == 2 * reranker_fit.MOST_OF_TOOL
    assert [one.question.at for one in kept] == sorted(one.question.at for one in kept)
    assert kept[-1] is many[-1]
    weights = reranker_fit.fit_reranker(EXAMPLES, POOL)
    assert reranker_fit.TASK not in weights.levels
    assert weights.hardness > 0
    assert (len(weights.levels[TOOL].blocks), weights.levels[CLIENT].blocks) == (len(POOL), {})
    assert isinstance(weights.levels[CLIENT], posterior.BlockLevel)
    assert weights.facts == {"outcomes": 150, "of": 150, "until": 149.0, "by_kind": 2.0}


def test_a_tool_never_called_does_as_its_like_and_a_changed_one_as_it_does_now():
    places = np.array([4, 5])
    known = [one for one in EXAMPLES if one.place not in places]
    without, with_them = (
        BayesianReranker(reranker_fit.fit_reranker(rows, POOL), POOL).score(
            make_question(POOL, 3), places
        )
        for rows in (known, EXAMPLES)
    )
    assert (without.belief.variance > with_them.belief.variance).all()
    assert abs(without.p[0] - without.p[1]) < abs(with_them.p[0] - with_them.p[1])
    examples = draw_examples(POOL, 600)
    turned = [
        replace(one, success=not one.success) if one.place == 0 and at >= 350 else one
        for at, one in enumerate(examples)
    ]
    ranker = BayesianReranker(reranker_fit.fit_reranker(turned, POOL), POOL)
    places = np.array([0, 2])
    changed, steady = np.mean(
        [ranker.score(make_question(POOL, 900 + at), places).p for at in range(10)], 0
    )
    assert changed < 0.5
    assert steady > 0.7


KINDS = 6


def draw_by_kind(count: int) -> list[rerank_method.OutcomeExample]:
    """Outcomes where each of six tools does one kind of request, whatever its description says."""
    rng, examples = np.random.default_rng(0), []
    for row in range(count):
        kind, place = (int(integer) for integer in rng.integers(KINDS, size=2))
        vector = rng.normal(size=DIM) * 0.2 + np.eye(DIM)[kind]
        vector = (vector / np.linalg.norm(vector)).astype(np.float32)
        question = RerankQuestion(f"job {row}", vector, np.arange(KINDS), float(row))
        worked = bool(rng.random() < (0.95 if kind == place else 0.05))
        examples.append(rerank_method.OutcomeExample(question, place, worked, task=f"t{row}"))
    return examples


def test_a_long_log_tells_how_much_tools_differ_by_kind_of_request():
    settings, rng = reranker_fit.FitSettings(), np.random.default_rng(0)
    by_tool = [  # seven of ten, or four of ten, whatever is asked
        replace(one, success=bool(rng.random() < (0.4 if one.place % 2 else 0.7)), task=f"t{at}")
        for at, one in enumerate(draw_examples(POOL, 300))
    ]
    assert reranker_fit.choose_variance(by_tool, POOL, settings) == reranker_fit.VARIANCES[0]
    assert (
        reranker_fit.choose_variance(draw_by_kind(500), POOL, settings) > reranker_fit.VARIANCES[0]
    )
    assert reranker_fit.choose_variance(draw_by_kind(40), POOL, settings) == reranker_fit.USUAL
    given = replace(settings, choose=False)
    assert reranker_fit.fit_reranker(draw_examples(POOL, 60), POOL, given).facts["by_kind"] is None


@cases("first", True, False)
def test_a_tool_that_turned_is_split_where_it_did(first):
    success = np.array([first] * 20 + [not first] * 12, float)
    gap = success - success.mean()
    assert 17 <= find_split(gap, np.full(32, 0.23)) <= 23
    rng = np.random.default_rng(0)
    steady = [find_split((rng.random(40) < 0.7) - 0.7, np.full(40, 0.21)) for _ in range(300)]
    assert np.mean([split > 0 for split in steady]) < 0.05
    assert find_split(np.zeros(0), np.zeros(0)) == 0
