"""One answer's worth: every way to be wrong has its kind, and none is an exception."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.evaluation.caller_items import CallerItem
from training.evaluation.caller_score import score_answer
from training.evaluation.caller_table import ASK_BACK, CALLER_EVALUATION
from training.evaluation.predictor import make_failed_answer, parse_answer

SCHEMA = {
    "type": "object",
    "properties": {
        "title": {"type": "string"},
        "count": {"type": "integer"},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["title", "count"],
}
TOOLS = [{"name": name, "inputSchema": SCHEMA} for name in ("find_file", "drop_file")]
RIGHT = {"name": "find_file", "arguments": {"title": "Blue Sky", "count": 2, "tags": ["a"]}}
OTHER = {"name": "drop_file", "arguments": {"title": "Old", "count": 1}}


def item(expected: list[dict[str, Any]], task: str = "single") -> CallerItem:
    row = {
        "pair_id": "p1",
        "server_id": "npm:file",
        "tool": "find_file",
        "kind": "direct",
        "text_digest": "t1",
        "instruction": "Please find files.",
    }
    return CallerItem("i1", "unseen_server", task, 2, "random", 0, row, TOOLS, expected)


def scored(answer: Any, expected: list[dict[str, Any]]) -> dict[str, Any]:
    text = answer if isinstance(answer, str) else json.dumps(answer)
    row = score_answer(item(expected), parse_answer(text), "m", "set")
    CALLER_EVALUATION.frame([row])
    return row


def with_arguments(**changed: Any) -> dict[str, Any]:
    held = {**RIGHT["arguments"], **changed}
    return {"name": "find_file", "arguments": {k: v for k, v in held.items() if v is not ...}}


@pytest.mark.parametrize(
    ("answer", "kind", "tool", "valid"),
    [
        (RIGHT, None, True, True),
        (f"<think>hm</think>{json.dumps(RIGHT)}", None, True, True),
        ({**RIGHT, "arguments": json.dumps(RIGHT["arguments"])}, None, True, True),
        ("I would look for the file.", "prose", False, False),
        ("", "no_call", False, False),
        ('{"name": "find_file", "arguments": {"title"', "invalid_json", False, False),
        ([RIGHT, OTHER], "extra_call", False, True),
        ([RIGHT, RIGHT], "extra_call", False, True),
        ([RIGHT, {"name": "made_up", "arguments": {}}], "extra_call", False, False),
        (OTHER, "wrong_tool", False, True),
        ({**RIGHT, "name": "made_up"}, "unknown_tool", False, False),
        ({**RIGHT, "arguments": "not json"}, "not_an_object", True, False),
        ({**RIGHT, "arguments": [1]}, "not_an_object", True, False),
        (with_arguments(count=...), "missing_parameter", True, False),
        (with_arguments(more=1), "extra_parameter", True, False),
        (with_arguments(count="2"), "wrong_type", True, False),
        (with_arguments(tags="a"), "wrong_type", True, False),
        (with_arguments(count=3), "wrong_value", True, True),
        (json.dumps(RIGHT) + "x" * 500_000, None, True, True),
    ],
)
def test_every_way_to_answer_has_its_kind(answer: Any, kind: str | None, tool: bool, valid: bool):
    row = scored(answer, [RIGHT])
    assert (row["error_kind"], row["ast_ok"]) == (kind, kind is None)
    assert row["tool_ok"] is tool
    assert row["valid"] is valid
    assert not row["failed"]


def test_f1_is_over_the_parameters_of_a_call() -> None:
    row = scored(with_arguments(tags="a", title="Other"), [RIGHT])
    assert row["name_f1"] == 1.0
    assert row["value_f1"] == pytest.approx(1 / 3, abs=1e-4)


@pytest.mark.parametrize(
    ("answer", "ok", "kind"),
    [
        ([OTHER, RIGHT], True, None),
        ([RIGHT], False, "too_few_calls"),
        ([RIGHT, OTHER, OTHER], False, "extra_call"),
        ([RIGHT, {"name": "made_up", "arguments": {}}], False, "unknown_tool"),
    ],
)
def test_parallel_calls_are_right_in_any_order(answer: Any, ok: bool, kind: str | None) -> None:
    row = scored(answer, [RIGHT, OTHER])
    assert (row["ast_ok"], row["error_kind"]) == (ok, kind)
    assert row["tool_ok"] is ok


@pytest.mark.parametrize(
    ("answer", "ok", "parsed", "kind"),
    [
        ("None of these tools can do that.", True, True, None),
        ("The plural is cacti.", True, True, None),
        ("[]", True, True, None),
        (RIGHT, False, True, "unwanted_call"),
        ('{"name": "find_file", "arg', False, False, "invalid_json"),
    ],
)
def test_where_no_call_is_right_none_may_be_tried(answer: Any, ok: bool, parsed: bool, kind: Any):
    row = scored(answer, [])
    assert (row["ast_ok"], row["tool_ok"], row["parsed"]) == (ok, ok, parsed)
    assert row["error_kind"] == kind


@pytest.mark.parametrize(
    ("answer", "ok", "kind"),
    [
        ("Which title do you mean?", True, None),
        ("哪一个？", True, None),
        ("I need a title.", False, "no_question"),
        ("None of these tools can do that.", False, "no_call"),
        ("", False, "no_call"),
        (RIGHT, False, "unwanted_call"),
        ('{"name": "find_file", "arg', False, "invalid_json"),
    ],
)
def test_where_a_value_is_missing_it_must_be_asked_for(answer: Any, ok: bool, kind: Any) -> None:
    text = answer if isinstance(answer, str) else json.dumps(answer)
    row = score_answer(item([], ASK_BACK), parse_answer(text), "m", "set")
    CALLER_EVALUATION.frame([row])
    assert (row["ast_ok"], row["tool_ok"], row["error_kind"]) == (ok, ok, kind)
    assert row["known_calls"] == row["calls"]  # and no phantom call


def test_no_answer_is_no_wrong_answer() -> None:
    row = score_answer(item([RIGHT]), make_failed_answer("timeout"), "m", "set")
    assert row["failed"]
    assert row["error_kind"] == "timeout"
    assert row.get("ast_ok") is None
    assert CALLER_EVALUATION.frame([row])["ast_ok"].to_list() == [None]


@given(
    st.text()
    | st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["name", "arguments", "tool_calls", "function", "count", "x"]),
                inner,
                max_size=4,
            )
        ),
    ).map(json.dumps),
    st.sampled_from([[], [RIGHT], [RIGHT, OTHER]]),
)
def test_no_answer_raises(answer: str, expected: list[dict[str, Any]]) -> None:
    row = scored(answer, expected)
    assert row["ast_ok"] in (True, False)
    assert row["ast_ok"] == (row["error_kind"] is None)
    assert row["calls"] >= row["known_calls"] >= row["valid_calls"]
