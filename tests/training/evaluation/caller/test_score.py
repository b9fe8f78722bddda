"""One answer's worth, and the summary beside a baseline."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.cases import cases
from tests.training.evaluation.conftest import Scripted, texts
from training.evaluation.baselines import BaselinePredictor
from training.evaluation.caller_items import CallerItem
from training.evaluation.caller_markdown import as_markdown
from training.evaluation.caller_run import evaluate_predictors
from training.evaluation.caller_score import score_answer
from training.evaluation.caller_summary import summarise_calls
from training.evaluation.caller_table import ASK_BACK, CALLER_EVALUATION, PERTURBATIONS
from training.evaluation.predictor import PredictionRequest, make_failed_answer, parse_answer
from training.evaluation.retriever import NothingToEvaluate
from training.prompts.render import NO_CALL
from training.role import BASELINE, check_gates

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
        "pair_id": "p1", "server_id": "npm:file", "tool": "find_file", "kind": "direct",
        "text_digest": "t1", "instruction": "Please find files.",
    }  # fmt: skip
    return CallerItem("i1", "unseen_server", task, 2, "random", 0, row, TOOLS, expected)


def scored(answer: Any, expected: list[dict[str, Any]]) -> dict[str, Any]:
    text = answer if isinstance(answer, str) else json.dumps(answer)
    row = score_answer(item(expected), parse_answer(text), "m", "set")
    CALLER_EVALUATION.frame([row])
    return row


def with_arguments(**changed: Any) -> dict[str, Any]:
    held = {**RIGHT["arguments"], **changed}
    return {"name": "find_file", "arguments": {k: v for k, v in held.items() if v is not ...}}


@cases(
    "answer, kind, tool, valid",
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
)
def test_every_way_to_answer_has_its_kind(answer, kind, tool, valid):
    row = scored(answer, [RIGHT])
    assert (row["error_kind"], row["ast_ok"]) == (kind, kind is None)
    assert row["tool_ok"] is tool
    assert row["valid"] is valid
    assert not row["failed"]


def test_f1_is_over_the_parameters_of_a_call():
    row = scored(with_arguments(tags="a", title="Other"), [RIGHT])
    assert row["name_f1"] == 1.0
    assert row["value_f1"] == pytest.approx(1 / 3, abs=1e-4)


@cases(
    "answer, ok, kind",
    ([OTHER, RIGHT], True, None),
    ([RIGHT], False, "too_few_calls"),
    ([RIGHT, OTHER, OTHER], False, "extra_call"),
    ([RIGHT, {"name": "made_up", "arguments": {}}], False, "unknown_tool"),
)
def test_parallel_calls_are_right_in_any_order(answer, ok, kind):
    row = scored(answer, [RIGHT, OTHER])
    assert (row["ast_ok"], row["error_kind"]) == (ok, kind)
    assert row["tool_ok"] is ok


@cases(
    "answer, ok, parsed, kind",
    ("None of these tools can do that.", True, True, None),
    ("The plural is cacti.", True, True, None),
    ("[]", True, True, None),
    (RIGHT, False, True, "unwanted_call"),
    ('{"name": "find_file", "arg', False, False, "invalid_json"),
)
def test_where_no_call_is_right_none_may_be_tried(answer, ok, parsed, kind):
    row = scored(answer, [])
    assert (row["ast_ok"], row["tool_ok"], row["parsed"]) == (ok, ok, parsed)
    assert row["error_kind"] == kind


@cases(
    "answer, ok, kind",
    ("Which title do you mean?", True, None),
    ("哪一个？", True, None),
    ("I need a title.", False, "no_question"),
    ("None of these tools can do that.", False, "no_call"),
    ("", False, "no_call"),
    (RIGHT, False, "unwanted_call"),
    ('{"name": "find_file", "arg', False, "invalid_json"),
)
def test_where_a_value_is_missing_it_must_be_asked_for(answer, ok, kind):
    text = answer if isinstance(answer, str) else json.dumps(answer)
    row = score_answer(item([], ASK_BACK), parse_answer(text), "m", "set")
    CALLER_EVALUATION.frame([row])
    assert (row["ast_ok"], row["tool_ok"], row["error_kind"]) == (ok, ok, kind)
    assert row["known_calls"] == row["calls"]  # and no phantom call


def test_no_answer_is_no_wrong_answer():
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
def test_no_answer_raises(answer, expected):
    row = scored(answer, expected)
    assert row["ast_ok"] in (True, False)
    assert row["ast_ok"] == (row["error_kind"] is None)
    assert row["calls"] >= row["known_calls"] >= row["valid_calls"]


Right = dict[str, list[dict[str, Any]]]


def perfect(right: Right) -> Scripted:
    def say(one: PredictionRequest) -> str:
        lacks = one.instruction.endswith(("(missing_parameter)", "(clarification)"))
        if lacks and [message["role"] for message in one.before] == ["user"]:
            return "What is its title?"
        return json.dumps(right[one.item_id]) or NO_CALL

    return Scripted("perfect", texts(say))


def memoriser(items: list[CallerItem]) -> Scripted:
    """Calls every tool by the name it had in training, whatever the prompt offers."""
    known = {item.item_id: item.row for item in items}

    def say(one: PredictionRequest) -> str:
        row = known[one.item_id]
        if not row["arguments"]:
            return NO_CALL
        return json.dumps({"name": row["tool"], "arguments": json.loads(row["arguments"])})

    return Scripted("memoriser", texts(say))


@pytest.fixture(scope="module")
def rows(items: list[CallerItem], right: Right) -> list[dict[str, Any]]:
    return evaluate_predictors(
        [BaselinePredictor(), perfect(right), memoriser(items)], items, "set-1"
    )


def test_the_rows_are_a_table_and_a_perfect_caller_is_right_everywhere(rows, items):
    frame = CALLER_EVALUATION.frame(rows)
    assert len(frame) == 3 * len(items)
    summary = summarise_calls(rows, "perfect")
    assert summary["incumbent"] == BASELINE
    for name in ("parsed", "valid", "tool_ok", "name_f1", "value_f1", "ast_ok"):
        assert summary[name]["candidate"]["value"] == 1.0, name
        assert all(cell[name]["candidate"]["value"] == 1.0 for cell in summary["cells"]), name
    assert summary["errors"] == summary["failures"] == {}
    assert summary["chance"] == pytest.approx(1 / 6, abs=1e-3)
    assert all(each["drop_candidate"]["value"] == 0.0 for each in summary["invariance"])
    assert summary["ask_back"]["candidate"]["value"] == 1.0
    assert summary["ask_back"]["candidate"]["n"] == 2
    assert summary["ask_back"]["incumbent"]["value"] == 0.0  # the baseline calls, whatever is asked
    assert "Asks for a value that the request lacks" in as_markdown([summary])
    json.dumps(summary)


def test_the_gates_are_asked_on_unseen_servers_and_on_abstention(rows, items):
    summary = summarise_calls(rows, "perfect")
    head = [i for i in items if i.split == "unseen_server" and i.candidates == 6 and i.expected
            and i.perturbation == "none" and not i.phantom]  # fmt: skip
    gate = summary["gate"]
    assert gate["gain"]["n"] == summary["n"] == len(head)
    assert gate["gain"] == summary["ast_ok"]["gain"]
    without = [i for i in items if i.task in ("no_tool", "not_offered")]
    assert gate["irrelevance"]["n"] == len(without)
    assert gate["irrelevance"]["value"] == 1.0  # the baseline always calls
    assert gate["phantom"]["n"] == gate["phantom_rate"]["n"] == 5
    assert gate["phantom_rate"]["value"] == 0.0
    failed = {one.name: one.found for one in check_gates("caller", summary) if not one.passed}
    assert not failed.keys() - {"enough_tools", "gain"}, failed


def test_one_who_remembers_names_calls_phantoms_and_falls_under_new_names(rows):
    summary = summarise_calls(rows, "memoriser", "perfect")
    assert summary["ast_ok"]["candidate"]["value"] == 1.0
    assert summary["phantom"]["renamed_here"]["candidate"]["value"] == 1.0
    assert summary["gate"]["phantom"]["value"] == 1.0
    assert summary["errors"]["unknown_tool"] >= 5
    drops = {(e["perturbation"], e["measure"]): e["drop_candidate"] for e in summary["invariance"]}
    assert drops[("renamed_tool", "tool_ok")]["value"] == 1.0
    assert drops[("renamed_parameters", "tool_ok")]["value"] == 0.0
    assert drops[("renamed_parameters", "ast_ok")]["value"] == 1.0
    assert drops[("reordered_parameters", "ast_ok")]["value"] == 0.0
    assert all(drops[(kind, "ast_ok")]["n"] > 0 for kind in PERTURBATIONS)
    assert not next(g for g in check_gates("caller", summary) if g.name == "phantom_rate").passed


def test_questions_without_an_answer_are_counted_apart(items, right):
    lost = {item.item_id for item in items[::3]}

    def say(one: PredictionRequest):
        if one.item_id in lost:
            return make_failed_answer("timeout")
        return parse_answer(json.dumps(right[one.item_id]) if right[one.item_id] else NO_CALL)

    rows = evaluate_predictors([BaselinePredictor(), Scripted("flaky", say)], items, "set")
    summary = summarise_calls(rows, "flaky")
    assert summary["failures"] == {"candidate": {"timeout": len(lost)}}
    assert summary["items"] == len(items) - len(lost)
    assert summary["ast_ok"]["candidate"]["value"] == 1.0
    assert "timeout" not in summary["errors"]
    assert "timeout" in as_markdown([summary])


def test_nothing_in_common_is_said(rows, items):
    with pytest.raises(NothingToEvaluate, match="same items"):
        summarise_calls(rows, "nobody")
    with pytest.raises(NothingToEvaluate, match="0 items"):
        evaluate_predictors([BaselinePredictor()], [], "set")


def test_the_markdown_holds_every_cell_and_says_what_was_not_measured(rows):
    summary = summarise_calls(rows, "perfect")
    text = as_markdown([summary])
    cells = [line for line in text.splitlines() if line.startswith(("| seen ", "| unseen "))]
    assert len(cells) == len(summary["cells"])
    assert text.count("| AST | ") == 1 + len(PERTURBATIONS)  # one of all cells together
    assert "| … to tools that are gone | 0 | – | – | – |" in text
