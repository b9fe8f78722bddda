"""BFCL-format data: read as ours, judged by both rules, clean part beside all."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from assets.contracts.validate import validate_call
from extensions.bench.bfcl_command import read_bfcl
from extensions.bench.outside_items import (
    evaluate_outside_set,
    match_by_our_rules,
    to_asked,
    to_contract,
)
from tests.extensions.bench.agent.test_agent_run import publish
from tests.training.evaluation.scripted_agent import row
from tests.vectors.conftest import WordEmbedder
from training.evaluation.baselines import BaselinePredictor
from training.evaluation.predictor import (
    OnDone,
    PredictionAnswer,
    PredictionRequest,
    PredictorKind,
    make_failed_answer,
)
from training.sets.training_set import TRAINING_SET
from warehouse.errors import UnusableInput
from warehouse.store import Warehouse

AREA = {
    "name": "geometry.area", "description": "The area of a triangle.",
    "parameters": {"type": "dict", "required": ["base", "height"], "properties": {
        "base": {"type": "integer", "description": "In units."}, "height": {"type": "float"},
        "unit": {"type": "string", "description": "Of length."},
        "at": {"type": "dict", "properties": {"x": {"type": "float"}, "y": {"type": "float"}}},
        "tags": {"type": "tuple", "items": {"type": "string"}},
    }},
}  # fmt: skip
TRUTH = {
    "geometry.area": {
        "base": [10],
        "height": [5.0],
        "unit": ["units", ""],
        "at": [{"x": [1.0], "y": [2.0, ""]}, ""],
        "tags": [["a", "b"], ""],
    }
}
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


class Told:
    """A predictor that says what it is told, by item."""

    kind: PredictorKind = "adapter"

    def __init__(self, label: str, **answers: Any) -> None:
        self.label, self.answers = label, answers

    def predict(
        self, asked: Sequence[PredictionRequest], on_done: OnDone | None = None
    ) -> list[PredictionAnswer]:
        return [self._answer(self.answers.get(one.item_id, [])) for one in asked]

    def _answer(self, held: Any) -> PredictionAnswer:
        if isinstance(held, str):
            return make_failed_answer(held)
        return PredictionAnswer(held, "call" if held else "no_call", prompt_tokens=10, usd=0.5)


def area(**arguments: Any) -> dict[str, Any]:
    return {"name": "geometry.area", "arguments": arguments}


def test_a_function_is_a_contract_that_a_right_call_passes() -> None:
    made = to_contract(AREA)
    schema = made["inputSchema"]
    assert schema["properties"]["height"] == {"type": "number"}
    assert schema["properties"]["at"]["properties"]["x"] == {"type": "number"}
    assert schema["properties"]["tags"] == {"type": "array", "items": {"type": "string"}}
    assert schema["required"] == ["base", "height"]
    assert not validate_call(made, {"base": 10, "height": 5.5, "at": {"x": 1.0}})
    assert validate_call(made, {"base": "ten", "height": 5.5})
    assert to_contract({"name": "bare"})["inputSchema"] == {"type": "object", "properties": {}}


@pytest.mark.parametrize(
    ("call", "error"),
    [
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
    ],
)
def test_any_allowed_value_is_a_match_by_our_rules(
    folder: Path, call: dict[str, Any], error: str | None
) -> None:
    item = next(item for item in read_bfcl(folder) if item.id == "s0")
    assert match_by_our_rules(item, [call]) == (error is None, error)


def test_parallel_calls_match_in_any_order_and_none_too_few(folder: Path) -> None:
    item = next(item for item in read_bfcl(folder) if item.id == "p0")
    one, two = area(base=1, height=1.0), area(base=2, height=1)
    assert match_by_our_rules(item, [two, one]) == (True, None)
    assert match_by_our_rules(item, [one, one]) == (False, "wrong_value")
    assert match_by_our_rules(item, [one]) == (False, "wrong_count")
    assert match_by_our_rules(item, []) == (False, "no_call")


def test_a_folder_is_judged_by_both_rules_per_category(folder: Path, warehouse: Warehouse) -> None:
    publish(warehouse, TRAINING_SET, [row("t", instruction=ASK.upper(), split="train")])
    right = {"s0": [GOOD], "s1": [area(base=3, height=2.0)], "r0": [GOOD],
             "p0": [area(base=n, height=1.0) for n in (1, 2)]}  # fmt: skip
    some = {**right, "s1": [area(base=3, height=2)], "p0": "timeout", "i0": [GOOD]}
    models = [Told("all right", **right), Told("some", **some)]
    report = evaluate_outside_set(warehouse, folder, models, WordEmbedder().embed)
    first, second = json.loads(json.dumps(report["models"]))
    assert first["bfcl"]["all"] | {"low": 1.0, "high": 1.0} == first["bfcl"]["all"]
    assert (first["n"], first["bfcl"]["clean"]["n"], first["ours"]["all"]["n"]) == (5, 4, 5)
    assert (second["n"], second["failures"]) == (4, {"timeout": 1})
    assert second["categories"]["irrelevance"]["bfcl"]["all"]["value"] == 0
    assert second["categories"]["simple_python"]["ours"]["all"]["value"] == 1
    assert (first["difference"]["value"], first["difference"]["n"]) == (0.25, 4)
    assert second["errors"] == {"unwanted_call": 1}
    rates = report["contamination"]["rates"]
    assert (rates["exact"]["value"], rates["any"]["n"]) == (round(1 / 5, 4), 5)
    assert [one["clean"] for one in report["rows"] if one["item_id"] == "s0"] == [False, False]


def test_the_baseline_answers_a_few_of_each_category(folder: Path, warehouse: Warehouse) -> None:
    report = evaluate_outside_set(warehouse, folder, [BaselinePredictor()], None, 1)
    (model,) = report["models"]
    assert model["n"] == len(model["categories"])
    assert model["categories"]["irrelevance"]["bfcl"]["all"]["value"] == 0, "it always calls"
    assert report["contamination"]["trained"] == 0
    assert json.loads(report["rows"][1]["calls"])[0]["name"] == "geometry.area"


def test_messages_before_the_users_are_part_of_the_request(folder: Path) -> None:
    path = folder / "BFCL_v4_irrelevance.json"
    turns = [[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Sing."}]]
    path.write_text(json.dumps({"id": "i0", "question": turns, "function": [AREA]}))
    item = next(item for item in read_bfcl(folder) if item.id == "i0")
    assert to_asked(item).instruction == "[system] Be brief.\nSing."


def test_a_folder_without_such_files_is_told(
    tmp_path: Path, folder: Path, warehouse: Warehouse
) -> None:
    baseline = [BaselinePredictor()]
    with pytest.raises(UnusableInput, match=r"no such folder; expected a folder with BFCL"):
        evaluate_outside_set(warehouse, tmp_path / "none", baseline)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UnusableInput, match="no BFCL file"):
        evaluate_outside_set(warehouse, tmp_path / "empty", baseline)
