from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from assets.vectors.lexical import stem_words
from extensions.recommender.reranking.features import HAND, fit_projection, measure_hand
from extensions.recommender.reranking.pool import TOOL_FEATURES, Pool, ToolFacts, ToolWords
from tests.support.reranking import make_pool, make_question

POOL = make_pool()


def read_feature(pool: Pool, name: str) -> list[float]:
    return pool.features[:, TOOL_FEATURES.index(name)].tolist()


def test_an_id_for_a_name_is_told_from_words() -> None:
    facts = [ToolFacts("s::x", "s", {"name": name}) for name in ("ep_9f3b2c41", "search_files")]
    opaque, plain = read_feature(Pool(facts, np.eye(2)), "opaque name")
    assert opaque > 0.5 > 0.1 > plain


def test_features_of_a_pair_stand_among_the_candidates() -> None:
    question = make_question(POOL, 4)
    found = measure_hand(POOL, question, question.candidates)
    by_name = dict(zip(HAND, found.T, strict=True))
    assert by_name["rank by cosine"][0] == 0
    assert by_name["behind the best"][0] == 0
    assert (np.diff(by_name["retriever's rank"]) > 0).all()
    assert (np.diff(by_name["cosine"]) <= 0).all()


def test_one_row_alone_reads_as_it_does_among_others() -> None:
    question = make_question(POOL, 4)
    whole = measure_hand(POOL, question, question.candidates)
    alone = [measure_hand(POOL, question, question.candidates[at : at + 1])[0] for at in (0, 5)]
    assert np.allclose(alone, whole[[0, 5]], atol=1e-6)


@given(text=st.text(max_size=60), name=st.text(max_size=20), about=st.text(max_size=60))
def test_any_text_has_finite_features(text: str, name: str, about: str) -> None:
    contract = {"name": name, "description": about, "inputSchema": {"required": 3}}
    pool = Pool([ToolFacts("a::b", "a", contract)], np.eye(1, 8))
    question = replace(make_question(POOL, 1), text=text, candidates=np.zeros(0, int))
    assert np.isfinite(measure_hand(pool, question, np.array([0]))).all()


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
