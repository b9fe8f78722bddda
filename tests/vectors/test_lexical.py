"""BM25: words of any script, the right document first, arrays that survive."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assets.vectors.lexical import BM25, split_words


def test_identifiers_are_split_into_words() -> None:
    assert split_words("getUserByID, list-commits read_files") == [
        "get", "user", "id", "list", "commit", "read", "file",
    ]  # fmt: skip
    assert split_words("天气 ok") == ["天", "气", "ok"]
    assert split_words("the of and") == []


def test_the_document_with_the_rare_word_wins() -> None:
    index = BM25.build(["read a file", "read a database", "send an email"])
    assert int(np.argmax(index.score("read my database"))) == 1
    assert index.find_shared("read my database", np.array([1])) == [["database", "read"]]


def test_unknown_words_and_empty_pools_score_zero() -> None:
    assert BM25.build(["a b"]).score("zebra").tolist() == [0.0]
    assert BM25.build([]).score("zebra").shape == (0,)


@given(st.lists(st.text(max_size=40), max_size=8), st.text(max_size=40))
def test_scores_are_finite_and_not_negative(texts: list[str], query: str) -> None:
    scores = BM25.build(texts).score(query)
    assert scores.shape == (len(texts),)
    assert np.isfinite(scores).all()
    assert (scores >= 0).all()


def test_names_are_alike_by_their_rare_words() -> None:
    names = BM25.build(["get_user", "get_invoice", "get_user_invoice_list_page", "get", "__"])
    documents = np.arange(5)
    found = names.match_rarity(["get", "invoice"], documents)
    assert found[1] == pytest.approx(1.0)
    assert found[1] > max(found[2], found[3]) > min(found[2], found[3]) > found[4] == 0
    assert names.match_rarity(["zebra"], documents).tolist() == [0.0] * 5
    longer = names.match_rarity(["get", "invoice", "zebra", "lion"], documents)
    assert longer[1] < found[1]  # much of the request is not in the name


@given(st.lists(st.text(max_size=20), min_size=1, max_size=6), st.text(max_size=40))
def test_likeness_is_a_share_and_no_score_exceeds_its_bound(texts: list[str], query: str) -> None:
    index = BM25.build(texts)
    terms = index.cut_query(query)
    alike = index.match_rarity(terms, np.arange(len(texts)))
    assert ((alike >= 0) & (alike <= 1 + 1e-5)).all()
    assert index.score(query).max() <= index.bound_score(terms) + 1e-4


def test_a_text_that_says_everything_is_credited_little_for_each() -> None:
    usual = [f"do{at} something{at} with{at} thing{at}" for at in range(99)]
    index, owners = BM25.build([*usual, " ".join(usual)]), np.arange(100)
    credit = index.measure_credit(owners)
    assert credit[:99].tolist() == [1.0] * 99
    assert credit[99] < 0.01
    scores = index.score("something7 thing7") * credit
    assert scores.argmax() == 7
    twice = BM25.build([*usual, " ".join([usual[0]] * 50)])
    assert twice.measure_credit(owners)[99] == 1.0  # saying the same again is no more matter


def test_a_server_has_one_vote_on_what_is_usual_and_none_for_itself() -> None:
    usual = [f"do{at} something{at} with{at} thing{at}" for at in range(30)]
    long = [" ".join(f"w{at}x{n}" for n in range(90)) for at in range(60)]
    index = BM25.build([*usual, *long])
    one, many = np.r_[np.arange(30), np.full(60, 30)], np.arange(90)
    assert (index.measure_credit(one)[30:] < 0.01).all()
    assert (index.measure_credit(many) == 1.0).all()
    assert (index.measure_credit(one)[:30] == 1.0).all()


@pytest.mark.parametrize(
    ("servers", "words", "whole"),
    [(3, 90, True), (3, 300, False), (20, 90, False), (20, 11, True)],
)
def test_what_is_usual_has_a_floor_which_is_higher_among_few_servers(
    servers: int, words: int, whole: bool
) -> None:
    texts = [f"do{at}" for at in range(servers - 1)]
    index = BM25.build([*texts, " ".join(f"w{at}" for at in range(words))])
    credit = index.measure_credit(np.arange(servers))
    assert (credit[:-1] == 1.0).all()
    assert (credit[-1] == 1.0) == whole


@given(st.lists(st.tuples(st.text(max_size=40), st.integers(0, 3)), max_size=8))
def test_credit_is_a_share(told: list[tuple[str, int]]) -> None:
    texts, owners = [text for text, _ in told], [owner for _, owner in told]
    credit = BM25.build(texts).measure_credit(np.array(owners, np.int32))
    assert credit.shape == (len(texts),)
    assert ((credit > 0) & (credit <= 1)).all()
