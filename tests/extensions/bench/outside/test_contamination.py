"""What counts as a repetition of our training texts, and what does not."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extensions.bench.contamination import (
    N,
    find_contamination,
    read_texts,
)
from extensions.bench.outside_items import measure_all_and_clean
from warehouse.errors import UnusableInput
from warehouse.sanitize.untrusted_text import fold_words

TRAINED = [
    "Please show me the weather in Oslo on the third of May 2026, in metric units.",
    "Convert 20 euros to Norwegian crowns for me.",
    "把北京明天的天气告诉我",
    "What time is it?",
]


def kinds(item: str) -> tuple[str, ...]:
    return find_contamination([item], TRAINED).flags[0].kinds


def test_a_copy_is_found_whatever_its_case_punctuation_and_width() -> None:
    assert "exact" in kinds("convert 20 EUROS to norwegian crowns,   for me")
    assert "exact" in kinds("Ｃｏｎｖｅｒｔ 20 euros to Norwegian crowns for me!")
    assert kinds("Convert 21 euros to Danish money for us.") == ()


def test_a_short_request_is_found_whole_inside_a_longer_one() -> None:
    assert kinds("the weather in Oslo") == ("contained",)
    assert kinds("weather Oslo in the") == ()
    assert kinds("in Oslo") == (), "two words are part of anything"


def test_shared_n_grams_are_counted_over_the_items_own() -> None:
    half = "Please show me the weather in Oslo on the third day of a journey by train to Bergen"
    found = find_contamination([half], TRAINED).flags[0]
    assert found.overlap == pytest.approx(3 / 11, abs=1e-4)
    assert not found.kinds
    assert kinds("I say: please show me the weather in Oslo on the third") == ("overlap",)


def test_a_script_without_spaces_has_n_grams_too() -> None:
    assert fold_words("把北京的天气 ok") == ["把", "北", "京", "的", "天", "气", "ok"]
    assert kinds("请把北京明天的天气告诉我") == ("overlap",)
    assert kinds("北京明天") == ("contained",)


def test_nearness_is_asked_in_blocks_and_names_the_nearest() -> None:
    rng = np.random.default_rng(1)
    ours = rng.normal(size=(50, 16)).astype(np.float32)
    ours /= np.linalg.norm(ours, axis=1, keepdims=True)
    theirs = np.vstack([ours[[7]], -ours[[7]], *[ours[:49]] * 60])
    texts = [f"item {n}" for n in range(len(theirs))]
    found = find_contamination(texts, [f"trained {n}" for n in range(50)], vectors=(theirs, ours))
    assert (found.flags[0].kinds, found.flags[0].nearest) == (("near",), 7)
    assert found.flags[0].cosine == 1.0
    assert found.flags[1].kinds == ()
    assert all(
        flag.nearest == (place - 2) % 49 for place, flag in enumerate(found.flags) if place > 1
    )
    with pytest.raises(ValueError, match="3 and 50 vectors for 2 items"):
        find_contamination(["a", "b"], [""] * 50, vectors=(theirs[:3], ours))


def test_the_summary_has_rates_with_intervals_and_says_its_rules() -> None:
    items = [TRAINED[0], "the weather in Oslo", "Book a table for nine people at eight", "hi"]
    summary = find_contamination(items, TRAINED).summarise_flags("their set")
    assert (summary["set"], summary["n"], summary["trained"], summary["short"]) == (
        "their set",
        4,
        4,
        1,
    )
    assert summary["rates"]["exact"]["value"] == 0.25
    assert summary["rates"]["any"] | {"low": 0, "high": 0} == {
        "value": 0.5,
        "low": 0,
        "high": 0,
        "n": 4,
    }
    assert "near: not asked" in summary["rules"], "no vectors were given"
    assert summary["rates"]["near"]["n"] == 0
    json.dumps(summary)


def test_nothing_is_contaminated_by_nothing() -> None:
    empty = np.zeros((0, 4), np.float32)
    found = find_contamination(["one text", ""], [], vectors=(np.ones((2, 4), np.float32), empty))
    assert found.clean == [True, True]
    assert found.summarise_flags()["rates"]["any"]["n"] == 0, (
        "held against nothing, nothing is clean"
    )
    assert find_contamination([], TRAINED).summarise_flags()["rates"]["any"]["n"] == 0


def test_figures_stand_on_the_clean_part_beside_all() -> None:
    items = [(1, "a", False), (1, "a", False), (0, "b", True), (0, "c", True)]
    both = measure_all_and_clean(
        [{"bfcl": value, "item_id": name, "clean": clean} for value, name, clean in items], "bfcl"
    )
    assert (both["all"]["value"], both["all"]["n"]) == (0.5, 4)
    assert (both["clean"]["value"], both["clean"]["n"]) == (0.0, 2)
    assert measure_all_and_clean([], "bfcl")["clean"]["n"] == 0


@given(st.lists(st.text(max_size=60), max_size=6))
def test_every_text_of_four_words_is_found_in_a_set_that_holds_it(texts: list[str]) -> None:
    for flag, text in zip(find_contamination(texts, texts).flags, texts, strict=True):
        assert ("exact" in flag.kinds) == bool(fold_words(text))
        assert flag.overlap == (1.0 if len(fold_words(text)) >= N else 0.0)


@given(st.lists(st.text("abc ", max_size=40), max_size=5), st.text("abc ", max_size=40))
def test_more_training_texts_never_make_an_item_cleaner(trained: list[str], item: str) -> None:
    few, more = (find_contamination([item], part).flags[0] for part in (trained[1:], trained))
    assert set(few.kinds) <= set(more.kinds)
    assert few.overlap <= more.overlap


@pytest.mark.parametrize(
    ("name", "text", "field"),
    [
        ("a.jsonl", '{"Query": "one", "n": 1}\n\n{"Query": "t\u2028wo", "n": 2}\n', None),
        ("a.json", '[{"say": "one"}, {"say": "t\u2028wo"}]', "say"),
        ("a.csv", '\ufeffQuery,Tool\none,x\nt\u2028wo,"y\nz"\n', "query"),
    ],
)
def test_texts_are_read_from_lines_lists_and_tables(
    tmp_path: Path, name: str, text: str, field: str | None
) -> None:
    (tmp_path / name).write_text(text)
    assert read_texts(tmp_path / name, field) == ["one", "t\u2028wo"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "found no rows"),
        ('{"a": 1}\n', "expected one of instruction, query"),
        ('{"query": "x"}\n{"query": 4}\n', "line 2: 'query' is int"),
        ('{"query": "x"}\nnot json\n', "line 2: not JSON"),
        ('"text"\n', "line 1: str, expected a JSON object"),
    ],
)
def test_a_file_that_is_no_set_of_texts_is_told(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "set.jsonl").write_text(text)
    with pytest.raises(UnusableInput, match=message):
        read_texts(tmp_path / "set.jsonl")
    with pytest.raises(UnusableInput, match="No such file"):
        read_texts(tmp_path / "none.jsonl")
