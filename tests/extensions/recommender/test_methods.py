"""Features of a question and a tool, kinds of requests, and the methods that are measured."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assets.vectors.lexical import stem_words
from extensions.recommender import question_features, rerank_method, toolflix
from extensions.recommender.methods import METHODS, BayesianMethod, SuccessPrior
from extensions.recommender.tool_pool import TOOL_FEATURES, ToolFacts, ToolPool, ToolWords
from serving.ranking.strategies import RerankQuestion
from tests.extensions.recommender.reranked_tools import DIM, draw_examples, make_pool, make_question
from tests.support.cases import cases

POOL = make_pool()
EXAMPLES = draw_examples(POOL, 160)
PLACES = np.arange(len(POOL))


HISTORIES = {
    "empty": [],
    "one": EXAMPLES[:1],
    "failures": [replace(one, success=False) for one in EXAMPLES[:30]],
    "successes": [replace(one, success=True) for one in EXAMPLES[:30]],
    "unseen tools": [replace(one, place=one.place % 2) for one in EXAMPLES[:30]],
}


@pytest.mark.parametrize("name", sorted(METHODS))
@pytest.mark.parametrize("history", HISTORIES)
def test_a_method_orders_whatever_was_seen(name, history):
    method = METHODS[name]()
    method.fit(HISTORIES[history], POOL)
    method.update(EXAMPLES[0])
    scores = method.score(make_question(POOL, 850), PLACES)
    assert scores.shape == PLACES.shape
    assert np.isfinite(scores).all()


@pytest.mark.parametrize("name", sorted(METHODS))
def test_a_method_is_a_function_of_what_it_is_fitted_to_and_learns_which_tools_work(name):
    first, second = METHODS[name](), METHODS[name]()
    first.fit(EXAMPLES[:40], POOL)
    second.fit(EXAMPLES, POOL)
    scores = np.mean([second.score(make_question(POOL, 800 + at), PLACES) for at in range(12)], 0)
    assert scores[0::2].mean() > scores[1::2].mean()
    second.fit(EXAMPLES[:40], POOL)
    question = make_question(POOL, 851)
    assert first.score(question, PLACES) == pytest.approx(second.score(question, PLACES), abs=1e-5)


def test_without_wide_features_counts_of_the_past_change_nothing():
    method, question = toolflix.ToolFlix(wide=False), make_question(POOL, 852)
    method.fit(EXAMPLES[:60], POOL)
    before = method.score(question, PLACES)
    for one in EXAMPLES:
        method.update(replace(one, success=not one.success))
    assert np.array_equal(before, method.score(question, PLACES))


def score_in_time(
    method: rerank_method.RerankMethod, examples: Sequence[rerank_method.OutcomeExample]
) -> np.ndarray:
    """The score of each example before its outcome was known, in the order given: by a fit of what
    came before it, every thirty, and by updates since."""
    method.fit([], POOL)
    scores = []
    for at, one in enumerate(examples):
        if at and at % 30 == 0:
            method.fit(examples[:at], POOL)
        scores.append(float(method.score(one.question, np.array([one.place]))[0]))
        method.update(one)
    return np.array(scores)


@cases("make", BayesianMethod, SuccessPrior)
def test_no_later_outcome_leaks_into_an_earlier_score(make):
    cut = 60
    later = [
        one if at < cut else replace(one, success=not one.success, place=(one.place + 1) % 12)
        for at, one in enumerate(EXAMPLES[:90])
    ]
    first, *others = (
        score_in_time(make(), rows)[:cut] for rows in (EXAMPLES[:90], later, EXAMPLES[:cut])
    )
    assert all(other == pytest.approx(first, abs=1e-12) for other in others)


@given(rows=st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=2, max_size=30))
def test_auc_is_the_share_of_pairs_in_the_right_order(rows):
    scores = np.array([score for score, _ in rows], float)
    success = np.array([won for _, won in rows])
    ahead = scores[success][:, None] - scores[~success][None, :]
    auc = rerank_method.measure_auc(scores, success)
    assert (auc is None) == (ahead.size == 0)
    if auc is not None:
        assert auc == pytest.approx(((ahead > 0) + 0.5 * (ahead == 0)).mean())


def test_true_probabilities_have_little_calibration_error_and_false_ones_much():
    rng = np.random.default_rng(0)
    p = rng.random(4_000)
    success = rng.random(4_000) < p
    assert rerank_method.measure_calibration(p, success)["calibration_error"] < 0.03
    assert rerank_method.measure_calibration(1 - p, success)["calibration_error"] > 0.3


def test_an_id_for_a_name_is_told_from_words_and_features_of_a_pair_stand_among_the_candidates():
    facts = [ToolFacts("s::x", "s", {"name": name}) for name in ("ep_9f3b2c41", "search_files")]
    opaque, plain = ToolPool(facts, np.eye(2)).features[:, TOOL_FEATURES.index("opaque name")]
    assert opaque > 0.5 > 0.1 > plain
    question = make_question(POOL, 4)
    found = question_features.measure_contract_features(POOL, question, question.candidates)
    by_name = dict(zip(question_features.CONTRACT_FEATURES, found.T, strict=True))
    assert (by_name["rank by cosine"][0], by_name["behind the best"][0]) == (0, 0)
    assert (np.diff(by_name["retriever's rank"]) > 0).all()
    assert (np.diff(by_name["cosine"]) <= 0).all()


@given(text=st.text(max_size=60), name=st.text(max_size=20), about=st.text(max_size=60))
def test_any_text_has_finite_features(text, name, about):
    contract = {"name": name, "description": about, "inputSchema": {"required": 3}}
    pool = ToolPool([ToolFacts("a::b", "a", contract)], np.eye(1, 8))
    question = replace(make_question(POOL, 1), text=text, candidates=np.zeros(0, int))
    assert np.isfinite(
        question_features.measure_contract_features(pool, question, np.array([0]))
    ).all()


@given(
    texts=st.lists(st.tuples(st.text("ab c", max_size=6), st.text("ab c", max_size=9)), max_size=5),
    asked=st.sets(st.sampled_from(["a", "b", "c", "ab", "ba", "zz"])),
)
@settings(max_examples=30, deadline=None)
def test_words_are_counted_as_sets_of_stems(texts, asked):
    tools = [
        ToolFacts(f"s::{at}", "s", {"name": name, "description": about})
        for at, (name, about) in enumerate(texts)
    ]
    names = [set(stem_words(name)) for name, _ in texts]
    wholes = [name | set(stem_words(about)) for name, (_, about) in zip(names, texts, strict=True)]
    assert ToolWords.of(tools).count_shared(asked, np.arange(len(tools))).tolist() == [
        [len(asked & whole) for whole in wholes],
        [len(asked & name) for name in names],
        [len(name) for name in names],
    ]


NORTH, EAST = np.eye(2, 4)
DID, FAILED, DRAWN, TRIED = range(len(question_features.MEMORY_FEATURES))


def recall(memory: dict[str, question_features.ToolMemory], question: np.ndarray) -> np.ndarray:
    return question_features.measure_memory(memory, ["a", "b"], np.stack([EAST, EAST]), question)


def test_a_tool_is_drawn_to_what_it_did_and_told_from_what_it_failed_at():
    memory: dict[str, question_features.ToolMemory] = {}
    question_features.add_outcome(memory, "a", NORTH, True, 1.0)
    read = memory["a"]
    for _ in range(3):
        question_features.add_outcome(memory, "a", NORTH, True, 1.0)
    for _ in range(4):
        question_features.add_outcome(memory, "a", EAST, False, 1.0)
    assert (read.won == NORTH).all(), "what was read is not written into"
    assert not recall(memory, NORTH)[1].any(), "nothing is recalled of a tool never tried"
    at_north, at_east = recall(memory, NORTH)[0], recall(memory, EAST)[0]
    assert at_north[DID] > at_north[FAILED] == 0
    assert at_east[FAILED] > at_east[DID] == 0
    assert at_north[DRAWN] > 0 > at_east[DRAWN]
    assert at_north[TRIED] == pytest.approx(np.log(9))


@given(rows=st.lists(st.tuples(st.booleans(), st.floats(0, 1)), max_size=20))
def test_features_stay_finite(rows):
    memory: dict[str, question_features.ToolMemory] = {}
    for success, weight in rows:
        question_features.add_outcome(
            memory, "a", np.array([np.nan, 1.0, np.inf, 0.0]), success, weight
        )
    assert np.isfinite(recall(memory, EAST)).all()


def make_pool_of(vectors: np.ndarray) -> ToolPool:
    facts = [ToolFacts(f"s::t{at}", "s", {"name": f"t{at}"}) for at in range(len(vectors))]
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return ToolPool(facts, unit.astype(np.float32))


def draw_requests(seed: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """(vectors, kinds) of requests of two kinds that differ far more in an argument than in their
    kind."""
    kinds, vectors = np.arange(count) % 2, np.zeros((count, DIM))
    vectors[np.arange(count), kinds] = 0.4
    vectors[:, 2] = np.random.default_rng(seed).normal(size=count)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True), kinds


def test_requests_that_one_tool_did_are_near_and_tools_that_say_the_same_one_family():
    (vectors, kinds), (new, new_kinds) = draw_requests(0, 200), draw_requests(1, 40)
    done = [
        rerank_method.OutcomeExample(RerankQuestion("q", vector, np.array([0, 1])), int(kind), True)
        for vector, kind in zip(vectors, kinds, strict=True)
    ]
    space = question_features.fit_request_space(done, make_pool_of(np.eye(2, DIM)), 4)
    learnt, near = (np.array([space.place_request(one) for one in of]) for of in (new, vectors))
    learnt, raw = learnt @ near.T, new @ vectors.T
    same = kinds[None, :] == new_kinds[:, None]
    gaps = [near[same].mean() - near[~same].mean() for near in (learnt, raw)]
    assert gaps[0] > max(0.5, 2 * gaps[1])
    assert (kinds[np.argmax(learnt, 1)] == new_kinds).all()
    pool = make_pool_of(np.random.default_rng(0).normal(size=(6, DIM)))
    space = question_features.fit_request_space([], pool, 20)
    placed = space.place_request(pool.vectors[0])
    assert placed.shape == (20,)
    assert np.isclose(np.linalg.norm(placed), 1.0)
    assert not space.place_request(np.full(DIM, np.nan)).any()
    assert np.isfinite(
        question_features.fit_request_space([], make_pool_of(np.eye(1, DIM)), 3).basis
    ).all()
    vectors = np.eye(4, DIM)
    vectors[1] = vectors[0] + 0.1 * vectors[1]
    pool = make_pool_of(vectors)
    question = RerankQuestion("a", pool.vectors[0], np.arange(4))
    asked = [rerank_method.OutcomeExample(question, at, True) for at in (0, 0, 1, 2)]
    families = question_features.choose_families(asked, pool)
    assert families.names == ("s::t0", "s::t2")
    names = [tool.tool_id for tool in pool.tools]
    assert families.list_keys(names, pool.vectors) == ["s::t0", "s::t0", "s::t2", "s::t3"]
    assert question_features.choose_families([], pool).list_keys(names, pool.vectors) == names
