"""A small caller behind the proxy: torch on one side, no torch on the other."""

import json
from pathlib import Path
from typing import Any

import pytest

from assets.contracts.validate import validate_call
from extensions.proxy.local_caller import LocalCaller, make_question
from extensions.proxy.local_forms import CannotAnswer, LocalRequest
from tests.training.conftest import raw_tool
from training.evaluation.adapter_predictor import AdapterPredictor
from training.evaluation.baselines import BaselinePredictor
from training.evaluation.predictor import PredictionAnswer

TOOLS = [raw_tool("find", "file"), raw_tool("make", "file")]
ASK = {"role": "user", "content": "Please find 3 files called 'Blue Sky'."}


@pytest.fixture(scope="module")
def caller(small_caller: Path) -> LocalCaller:
    return LocalCaller(AdapterPredictor(Path("."), small_caller, device="cpu", constrained=True))


def go_on() -> bool:
    return False


def test_a_call_that_fits_by_its_grammar(caller: LocalCaller) -> None:
    made = caller.answer(LocalRequest([ASK], TOOLS), go_on)
    assert made.calls
    assert {call["name"] for call in made.calls} <= {"find_file", "make_file"}
    assert (made.text, made.cut) == ("", False)
    assert made.prompt_tokens > 20
    assert made.completion_tokens > 3


def test_a_call_that_is_asked_for_is_written_without_constrained_too(small_caller: Path) -> None:
    caller = LocalCaller(AdapterPredictor(Path("."), small_caller, device="cpu"))
    made = caller.answer(LocalRequest([ASK], TOOLS[1:], must_call=True), go_on)
    assert [call["name"] for call in made.calls] == ["make_file"]
    assert validate_call(TOOLS[1], made.calls[0]["arguments"]) == []
    silent = LocalCaller(SilentPredictor())
    with pytest.raises(CannotAnswer, match="wrote no call"):
        silent.answer(LocalRequest([ASK], TOOLS, must_call=True), go_on)


class SilentPredictor(BaselinePredictor):
    def predict(self, asked: Any, on_done: Any = None) -> list[PredictionAnswer]:
        return [PredictionAnswer([], "no_call", "hm") for _ in asked]


def test_it_ends_at_its_limit_and_when_nobody_waits(caller: LocalCaller) -> None:
    cut = caller.answer(LocalRequest([ASK], TOOLS, most_tokens=2), go_on)
    assert (cut.cut, cut.completion_tokens) == (True, 2)
    over = caller.answer(LocalRequest([ASK], TOOLS), lambda: True)
    assert over.completion_tokens <= 2


def test_a_conversation_goes_on(caller: LocalCaller) -> None:
    arguments = {"title": "Blue Sky", "count": 3}
    function = {"name": "find_file", "arguments": arguments}
    turn: Any = {"role": "assistant", "content": "", "tool_calls": [{"function": function}]}
    messages = [ASK, turn, {"role": "tool", "content": "[]"}, {**ASK, "content": "Make 2 then."}]
    asked = make_question(LocalRequest(messages, TOOLS))
    assert (asked.instruction, asked.keep) == ("Make 2 then.", {"find_file"})
    assert asked.before[1]["weight"] == 0
    assert caller.answer(LocalRequest(messages, TOOLS), go_on).prompt_tokens > 40


def test_what_does_not_fit_its_context_is_told(caller: LocalCaller) -> None:
    with pytest.raises(CannotAnswer, match="do not fit the model's context"):
        caller.answer(LocalRequest([{**ASK, "content": "word " * 9000}], TOOLS), go_on)


def test_the_untrained_champion_answers_too() -> None:
    made = LocalCaller(BaselinePredictor()).answer(LocalRequest([ASK], TOOLS), go_on)
    assert made.calls[0]["name"] == "find_file"
    assert json.dumps(made.calls[0]["arguments"])
