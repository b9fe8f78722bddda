"""."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assets.vectors.lexical import stem_words
from extensions.recommender.question_features import (
    CONTRACT_FEATURES,
    MEMORY_FEATURES,
    ToolMemory,
    add_outcome,
    fit_projection,
    measure_contract_features,
    measure_memory,
)
from extensions.recommender.tool_pool import TOOL_FEATURES, ToolFacts, ToolPool, ToolWords
from tests.support.reranking import make_pool, make_question

POOL = make_pool()


def read_feature(pool: ToolPool, name: str) -> list[float]:
    return pool.features[:, TOOL_FEATURES.index(name)].tolist()


def test_an_id_for_a_name_is_told_from_words() -> None:
    facts = [ToolFacts("s::x", "s", {"name": name}) for name in ("ep_9f3b2c41", "search_files")]
    opaque, plain = read_feature(ToolPool(facts, np.eye(2)), "opaque name")
    assert opaque > 0.5 > 0.1 > plain


def test_features_of_a_pair_stand_among_the_candidates() -> None:
    question = make_question(POOL, 4)
    found = measure_contract_features(POOL, question, question.candidates)
    by_name = dict(zip(CONTRACT_FEATURES, found.T, strict=True))
    assert by_name["rank by cosine"][0] == 0
    assert by_name["behind the best"][0] == 0
    assert (np.diff(by_name["retriever's rank"]) > 0).all()
    assert (np.diff(by_name["cosine"]) <= 0).all()


def test_one_row_alone_reads_as_it_does_among_others() -> None:
    question = make_question(POOL, 4)
    whole = measure_contract_features(POOL, question, question.candidates)
    alone = [
        measure_contract_features(POOL, question, question.candidates[at : at + 1])[0]
        for at in (0, 5)
    ]
    assert np.allclose(alone, whole[[0, 5]], atol=1e-6)


@given(text=st.text(max_size=60), name=st.text(max_size=20), about=st.text(max_size=60))
def test_any_text_has_finite_features(text: str, name: str, about: str) -> None:
    contract = {"name": name, "description": about, "inputSchema": {"required": 3}}
    pool = ToolPool([ToolFacts("a::b", "a", contract)], np.eye(1, 8))
    question = replace(make_question(POOL, 1), text=text, candidates=np.zeros(0, int))
    assert np.isfinite(measure_contract_features(pool, question, np.array([0]))).all()


def test_directions_beyond_the_vectors_are_nothing() -> None:
    made = fit_projection(np.eye(3, 8, dtype=np.float32), np.zeros((0, 8), np.float32), 20)
    assert made.basis.shape == (8, 20)
    assert not made.basis[:, 8:].any()


@given(
    texts=st.lists(st.tuples(st.text("ab c", max_size=6), st.text("ab c", max_size=9)), max_size=5),
    asked=st.sets(st.sampled_from(["a", "b", "c", "ab", "ba", "zz"])),
)
@settings(max_examples=30, deadline=None)
def test_words_are_counted_as_sets_of_stems(texts: list[tuple[str, str]], asked: set[str]) -> None:
    tools = [
        ToolFacts(f"s::{at}", "s", {"name": name, "description": about})
        for at, (name, about) in enumerate(texts)
    ]
    names = [set(stem_words(name)) for name, _ in texts]
    wholes = [name | set(stem_words(about)) for name, (_, about) in zip(names, texts, strict=True)]
    found = ToolWords.of(tools).count_shared(asked, np.arange(len(tools)))
    assert found.tolist() == [
        [len(asked & whole) for whole in wholes],
        [len(asked & name) for name in names],
        [len(name) for name in names],
    ]


NORTH, EAST = np.eye(2, 4)
DID, FAILED, DRAWN, TRIED = range(len(MEMORY_FEATURES))


def recall(memory: dict[str, ToolMemory], question: np.ndarray) -> np.ndarray:
    return measure_memory(memory, ["a", "b"], np.stack([EAST, EAST]), question)


def test_a_tool_is_drawn_to_what_it_did_and_told_from_what_it_failed_at() -> None:
    memory: dict[str, ToolMemory] = {}
    for _ in range(4):
        add_outcome(memory, "a", NORTH, True, 1.0)
        add_outcome(memory, "a", EAST, False, 1.0)
    at_north, at_east = recall(memory, NORTH)[0], recall(memory, EAST)[0]
    assert at_north[DID] > at_north[FAILED] == 0
    assert at_east[FAILED] > at_east[DID] == 0
    assert at_north[DRAWN] > 0 > at_east[DRAWN]
    assert at_north[TRIED] == pytest.approx(np.log(9))


def test_nothing_is_recalled_of_a_tool_never_tried() -> None:
    memory: dict[str, ToolMemory] = {}
    add_outcome(memory, "a", NORTH, True, 1.0)
    assert not recall(memory, NORTH)[1].any()


def test_what_was_read_is_not_written_into() -> None:
    memory: dict[str, ToolMemory] = {}
    add_outcome(memory, "a", NORTH, True, 1.0)
    held = memory["a"]
    add_outcome(memory, "a", NORTH, True, 1.0)
    assert (held.won == NORTH).all()
    assert memory["a"].wins == 2.0


@given(rows=st.lists(st.tuples(st.booleans(), st.floats(0, 1)), max_size=20))
def test_features_stay_finite(rows: list[tuple[bool, float]]) -> None:
    memory: dict[str, ToolMemory] = {}
    for success, weight in rows:
        add_outcome(memory, "a", np.array([np.nan, 1.0, np.inf, 0.0]), success, weight)
    assert np.isfinite(recall(memory, EAST)).all()
