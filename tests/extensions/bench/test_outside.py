"""BFCL-format data judged by both rules, and what counts as a repetition of our training texts."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assets.contracts.validate import validate_call
from extensions.bench.benchmark_items import BenchmarkPlan
from extensions.bench.bfcl_files import read_bfcl
from extensions.bench.bfcl_items import judge_bfcl, match_by_our_rules, read_bfcl_set, to_contract
from extensions.bench.contamination import N, find_contamination
from tests.support.cases import cases
from training.evaluation.predictor import PredictionAnswer
from warehouse.sanitize.untrusted_text import fold_words

AREA = {
    "name": "geometry.area", "description": "The area of a triangle.",
    "parameters": {"type": "dict", "required": ["base", "height"], "properties": {
        "base": {"type": "integer", "description": "In units."}, "height": {"type": "float"},
        "unit": {"type": "string", "description": "Of length."},
        "at": {"type": "dict", "properties": {"x": {"type": "float"}, "y": {"type": "float"}}},
        "tags": {"type": "tuple", "items": {"type": "string"}},
    }},
}  # fmt: skip
TRUE_VALUES = {"base": [10], "height": [5.0], "unit": ["units", ""], "tags": [["a", "b"], ""]}
TRUTH = {"geometry.area": TRUE_VALUES | {"at": [{"x": [1.0], "y": [2.0, ""]}, ""]}}
GOOD = {"name": "geometry.area", "arguments": {"base": 10, "height": 5.0}}
ASK = "Find the area of a triangle with a base of 10 units and a height of 5 units."


def question(name: str, text: str, *functions: Any) -> dict[str, Any]:
    turns = [[{"role": "user", "content": text}]]
    return {"id": name, "question": turns, "function": list(functions)}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "data"
    (made / "possible_answer").mkdir(parents=True)
    files: dict[str, list[tuple[dict[str, Any], Any]]] = {
        "simple_python": [
            (question("s0", ASK, AREA), [TRUTH]),
            (question("s1", "Area of base 3 and height 2?", AREA),
             [{"geometry.area": {"base": [3], "height": [2.0], "unit": [""]}}]),
        ],
        "parallel": [(question("p0", "Two areas.", AREA),
                      [{"geometry.area": {"base": [n], "height": [1.0]}} for n in (1, 2)])],
        "irrelevance": [(question("i0", "Sing me a song.", AREA), None)],
        "live_relevance": [(question("r0", "Any area will do.", AREA), None)],
    }  # fmt: skip
    for category, held in files.items():
        lines = "\n".join(json.dumps(one) for one, _ in held)
        (made / f"BFCL_v4_{category}.json").write_text(lines)
        truth = [{"id": one["id"], "ground_truth": truth_of} for one, truth_of in held if truth_of]
        if truth:
            path = made / "possible_answer" / f"BFCL_v4_{category}.json"
            path.write_text("\n".join(json.dumps(one) for one in truth))
    return made


def area(**arguments: Any) -> dict[str, Any]:
    return {"name": "geometry.area", "arguments": arguments}


def test_a_function_is_a_contract_that_a_right_call_passes():
    made = to_contract(AREA)
    schema = made["inputSchema"]
    assert schema["properties"]["height"] == {"type": "number"}
    assert schema["properties"]["at"]["properties"]["x"] == {"type": "number"}
    assert schema["properties"]["tags"] == {"type": "array", "items": {"type": "string"}}
    assert schema["required"] == ["base", "height"]
    assert not validate_call(made, {"base": 10, "height": 5.5, "at": {"x": 1.0}})
    assert validate_call(made, {"base": "ten", "height": 5.5})
    assert to_contract({"name": "bare"})["inputSchema"] == {"type": "object", "properties": {}}


@cases(
    "call, error",
    (GOOD, None),
    (area(base=10, height=5), None),  # 5 is 5.0
    (area(base=10, height=5.0, unit="units"), None),
    (area(base=10, height=5.0, at={"x": 1.0}), None),
    (area(base=10, height=5.0, at={"x": 1.0, "y": 2.0}, tags=["a", "b"]), None),
    (area(base=10, height=5.0, at={"x": 1.0, "y": 3.0}), "wrong_value"),
    (area(base=10, height=5.0, tags=["b", "a"]), "wrong_value"),
    (area(base=10, height=5.0, unit="inch"), "wrong_value"),
    (area(base="10", height=5.0), "wrong_type"),
    (area(base=10), "missing_parameter"),
    (area(base=10, height=5.0, colour="red"), "extra_parameter"),
    ({"name": "lights", "arguments": {}}, "wrong_tool"),
    ({"name": "geometry.area", "arguments": "none"}, "not_an_object"),
)
def test_any_allowed_value_is_a_match_by_our_rules(folder, call, error):
    item = next(item for item in read_bfcl(folder) if item.id == "s0")
    assert match_by_our_rules(item, [call]) == (error is None, error)


def test_parallel_calls_match_in_any_order_and_none_too_few(folder):
    item = next(item for item in read_bfcl(folder) if item.id == "p0")
    one, two = area(base=1, height=1.0), area(base=2, height=1)
    assert match_by_our_rules(item, [two, one]) == (True, None)
    assert match_by_our_rules(item, [one, one]) == (False, "wrong_value")
    assert match_by_our_rules(item, [one]) == (False, "wrong_count")
    assert match_by_our_rules(item, []) == (False, "no_call")


def test_both_rules_judge_an_item_whose_request_holds_the_messages_before(folder):
    items = {item.item_id: item for item in read_bfcl_set(BenchmarkPlan(folder)).items}
    assert {name: item.split for name, item in items.items()} == {
        "i0": "irrelevance", "r0": "live_relevance", "p0": "parallel", "s0": "simple_python",
        "s1": "simple_python",
    }  # fmt: skip
    loose = PredictionAnswer([area(base=3, height=2)], "call")
    assert judge_bfcl(items["s1"], loose)["ours"] is True
    both = [area(base=2, height=1.0), area(base=1, height=1.0)]
    verdict = judge_bfcl(items["p0"], PredictionAnswer(both, "call"))
    assert (verdict["bfcl"], verdict["ours"], verdict["error_kind"]) == (True, True, None)
    unwanted = judge_bfcl(items["i0"], PredictionAnswer([GOOD], "call"))
    assert (unwanted["bfcl"], unwanted["error_kind"]) == (False, "unwanted_call")
    prose = PredictionAnswer([], "prose", "I cannot sing.")
    assert judge_bfcl(items["i0"], prose)["bfcl"] is True
    assert judge_bfcl(items["s0"], prose)["bfcl"] is False
    path = folder / "BFCL_v4_irrelevance.json"
    turns = [[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Sing."}]]
    path.write_text(json.dumps({"id": "i0", "question": turns, "function": [AREA]}))
    item = next(i for i in read_bfcl_set(BenchmarkPlan(folder)).items if i.item_id == "i0")
    assert item.instruction == "[system] Be brief.\nSing."


TRAINED = [
    "Please show me the weather in Oslo on the third of May 2026, in metric units.",
    "Convert 20 euros to Norwegian crowns for me.",
    "把北京明天的天气告诉我",
    "What time is it?",
]


@cases(
    "item, kind",
    ("convert 20 EUROS to norwegian crowns,   for me", "exact"),
    ("Ｃｏｎｖｅｒｔ 20 euros to Norwegian crowns for me!", "exact"),
    ("Convert 21 euros to Danish money for us.", None),
    ("the weather in Oslo", "contained"),
    ("weather Oslo in the", None),
    ("in Oslo", None),  # two words are part of anything
    ("I say: please show me the weather in Oslo on the third", "overlap"),
    ("请把北京明天的天气告诉我", "overlap"),
    ("北京明天", "contained"),
)
def test_a_copy_is_found_whatever_its_case_width_and_script(item, kind):
    kinds = find_contamination([item], TRAINED).flags[0].kinds
    assert kind in kinds if kind == "exact" else kinds == ((kind,) if kind else ())


def test_shared_n_grams_are_counted_and_summed_up_with_their_rules():
    half = "Please show me the weather in Oslo on the third day of a journey by train to Bergen"
    found = find_contamination([half], TRAINED).flags[0]
    assert found.overlap == pytest.approx(3 / 11, abs=1e-4)
    assert not found.kinds
    assert fold_words("把北京的天气 ok") == ["把", "北", "京", "的", "天", "气", "ok"]
    empty = np.zeros((0, 4), np.float32)
    found = find_contamination(["one text", ""], [], vectors=(np.ones((2, 4), np.float32), empty))
    assert found.clean == [True, True]
    for of in (found, find_contamination([], TRAINED)):  # held against nothing, nothing is clean
        assert of.summarise_flags()["rates"]["any"]["n"] == 0
    items = [TRAINED[0], "the weather in Oslo", "Book a table for nine people at eight", "hi"]
    summary = find_contamination(items, TRAINED).summarise_flags("their set")
    assert (summary["set"], summary["n"], summary["trained"], summary["short"]) == (
        "their set", 4, 4, 1,
    )  # fmt: skip
    assert summary["rates"]["exact"]["value"] == 0.25
    assert summary["rates"]["any"] | {"low": 0, "high": 0} == {
        "value": 0.5, "low": 0, "high": 0, "n": 4,
    }  # fmt: skip
    assert "near: not asked" in summary["rules"], "no vectors were given"
    assert summary["rates"]["near"]["n"] == 0
    json.dumps(summary)


def test_nearness_is_asked_in_blocks_and_names_the_nearest():
    ours = np.random.default_rng(1).normal(size=(50, 16)).astype(np.float32)
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


@given(st.lists(st.text(max_size=60), max_size=6))
def test_every_text_of_four_words_is_found_in_a_set_that_holds_it(texts):
    for flag, text in zip(find_contamination(texts, texts).flags, texts, strict=True):
        assert ("exact" in flag.kinds) == bool(fold_words(text))
        assert flag.overlap == (1.0 if len(fold_words(text)) >= N else 0.0)


@given(st.lists(st.text("abc ", max_size=40), max_size=5), st.text("abc ", max_size=40))
def test_more_training_texts_never_make_an_item_cleaner(trained, item):
    few, more = (find_contamination([item], part).flags[0] for part in (trained[1:], trained))
    assert set(few.kinds) <= set(more.kinds)
    assert few.overlap <= more.overlap
