"""Wrong calls are really wrong, near the right one, and told as servers tell them."""

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assets.contracts.validate import validate_call
from assets.synthesis.offline.provider import answer_requests
from assets.synthesis.wrong_calls import make_wrong_call
from tests.support.examples import examples
from tests.synthesis.contracts import ALL, CREATE_ISSUE, PING

Json = Any


@examples(60)
@given(st.sampled_from(ALL), st.integers(0, 10_000))
def test_a_wrong_call_is_refused_and_its_error_is_the_validators(tool: Json, seed: int) -> None:
    right = answer_requests({"contract": tool, "count": 1}, seed % 7)["requests"][0]["values"]
    wrong = make_wrong_call(tool, right, random.Random(seed))
    assert wrong is not None
    flaws = validate_call(tool, wrong.arguments)
    assert wrong.kind in {flaw.kind for flaw in flaws}
    message = (
        wrong.error
        if not wrong.error.startswith("{")
        else json.loads(wrong.error)["error"]["message"]
    )
    assert any(flaw.message in message for flaw in flaws)
    assert wrong == make_wrong_call(tool, right, random.Random(seed))
    # One thing is wrong with it; the rest is as it was.
    rows_kept = set(wrong.arguments) & set(right)
    assert sum(wrong.arguments[name] != right[name] for name in rows_kept) <= 1
    assert len(set(wrong.arguments) ^ set(right)) <= 2


def test_every_kind_of_wrong_call_is_made() -> None:
    right = {"project_key": "OPS", "title": "Tap", "priority": "low", "estimate": 3}
    answer = [make_wrong_call(CREATE_ISSUE, right, random.Random(seed)) for seed in range(40)]
    assert {item.kind for item in answer if item} == {
        "wrong_type", "missing_required", "unknown_argument",
    }  # fmt: skip
    assert {item.error.split(":")[0].split(" -")[0] for item in answer if item} >= {
        "Input validation error", "MCP error", '{"error"',
    }  # fmt: skip


@pytest.mark.parametrize(
    "value", [True, 3, 2.5, "x", ["a", "b"], {"a": 1}], ids=lambda value: type(value).__name__
)
def test_a_value_of_any_type_has_a_wrong_neighbour(value: Json) -> None:
    kind = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array",
            dict: "object"}[type(value)]  # fmt: skip
    tool = {"name": "t", "inputSchema": {"type": "object", "properties": {"v": {"type": kind}}}}
    kinds = {
        wrong_call.kind
        for seed in range(30)
        if (wrong_call := make_wrong_call(tool, {"v": value}, random.Random(seed)))
    }
    assert kinds == {"wrong_type", "unknown_argument"}


def test_a_call_without_arguments_has_a_wrong_neighbour_too() -> None:
    wrong = make_wrong_call(PING, {}, random.Random(0))
    assert wrong is not None
    assert wrong.kind == "unknown_argument"
