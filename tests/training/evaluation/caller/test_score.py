"""One answer's worth, the summary beside a baseline, and `toolmill evaluate` as a person meets
it."""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.cases import cases
from tests.support.examples import json_values
from tests.support.openai_endpoint import Say, openai_endpoint
from tests.synthesis.contracts import make_tool
from tests.training.evaluation.conftest import Scripted, run_main, texts
from tests.training.evaluation.test_predictors import obedient
from tests.training.small_base import make_base
from training.evaluation import adapter_predictor, caller_markdown, caller_run, caller_score
from training.evaluation.baselines import BaselinePredictor
from training.evaluation.caller_items import CallerItem
from training.evaluation.caller_run import evaluate_predictors
from training.evaluation.caller_summary import summarise_calls
from training.evaluation.caller_table import ASK_BACK, CALLER_EVALUATION, PERTURBATIONS
from training.evaluation.predictor import PredictionRequest, make_failed_answer, parse_answer
from training.evaluation.retriever import NothingToEvaluate
from training.prompts.render import NO_CALL
from training.role import BASELINE, check_gates

FIELDS: dict[str, Any] = {"title": {"type": "string"}, "count": {"type": "integer"}}
FIELDS["tags"] = {"type": "array", "items": {"type": "string"}}
TOOLS = [make_tool(name, "", FIELDS, "title", "count") for name in ("find_file", "drop_file")]
RIGHT = {"name": "find_file", "arguments": {"title": "Blue Sky", "count": 2, "tags": ["a"]}}
OTHER = {"name": "drop_file", "arguments": {"title": "Old", "count": 1}}


def item(expected: list[dict[str, Any]], task: str = "single") -> CallerItem:
    row = {
        "pair_id": "p1", "server_id": "npm:file", "tool": "find_file", "kind": "direct",
        "text_digest": "t1", "instruction": "Please find files.",
    }  # fmt: skip
    return CallerItem("i1", "unseen_server", task, 2, "random", 0, row, TOOLS, expected)


def scored(answer: Any, expected: list[dict[str, Any]], task: str = "single") -> dict[str, Any]:
    text = answer if isinstance(answer, str) else json.dumps(answer)
    row = caller_score.score_answer(item(expected, task), parse_answer(text), "m", "set")
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
    *(({**RIGHT, "arguments": odd}, "not_an_object", True, False) for odd in ("not json", [1])),
    (with_arguments(count=...), "missing_parameter", True, False),
    (with_arguments(more=1), "extra_parameter", True, False),
    *((with_arguments(**of), "wrong_type", True, False) for of in ({"count": "2"}, {"tags": "a"})),
    (with_arguments(count=3), "wrong_value", True, True),
    (json.dumps(RIGHT) + "x" * 500_000, None, True, True),
)
def test_every_way_to_answer_has_its_kind(answer, kind, tool, valid):
    row = scored(answer, [RIGHT])
    assert (row["error_kind"], row["ast_ok"], row["failed"]) == (kind, kind is None, False)
    assert (row["tool_ok"], row["valid"]) == (tool, valid)


def test_f1_is_over_the_parameters_of_a_call_and_no_answer_is_no_wrong_answer():
    row = scored(with_arguments(tags="a", title="Other"), [RIGHT])
    assert row["name_f1"] == 1.0
    assert row["value_f1"] == pytest.approx(1 / 3, abs=1e-4)
    row = caller_score.score_answer(item([RIGHT]), make_failed_answer("timeout"), "m", "set")
    assert row["failed"]
    assert row["error_kind"] == "timeout"
    assert row.get("ast_ok") is None
    assert CALLER_EVALUATION.frame([row])["ast_ok"].to_list() == [None]


@cases(
    "expected, task, answer, kind",
    ([RIGHT, OTHER], "parallel", [OTHER, RIGHT], None),
    ([RIGHT, OTHER], "parallel", [RIGHT], "too_few_calls"),
    ([RIGHT, OTHER], "parallel", [RIGHT, OTHER, OTHER], "extra_call"),
    ([RIGHT, OTHER], "parallel", [RIGHT, {"name": "made_up", "arguments": {}}], "unknown_tool"),
    *(([], "no_tool", text, None) for text in (NO_CALL, "The plural is cacti.", "[]")),
    ([], "no_tool", RIGHT, "unwanted_call"),
    ([], "no_tool", '{"name": "find_file", "arg', "invalid_json"),
    *(([], ASK_BACK, text, None) for text in ("Which title do you mean?", "哪一个？")),
    ([], ASK_BACK, "I need a title.", "no_question"),
    *(([], ASK_BACK, text, "no_call") for text in (NO_CALL, "")),
    ([], ASK_BACK, RIGHT, "unwanted_call"),
    ([], ASK_BACK, '{"name": "find_file", "arg', "invalid_json"),
)
def test_calls_in_any_order_no_call_or_a_question_may_be_right(expected, task, answer, kind):
    row = scored(answer, expected, task)
    assert (row["ast_ok"], row["tool_ok"], row["error_kind"]) == (kind is None,) * 2 + (kind,)
    if task == "no_tool":
        assert row["parsed"] is (kind != "invalid_json")
    if task == ASK_BACK:
        assert row["known_calls"] == row["calls"]  # and no phantom call


NAMES = st.sampled_from(["name", "arguments", "tool_calls", "function", "count", "x"])
ANSWERS = json_values(names=NAMES)


@given(st.text() | ANSWERS.map(json.dumps), st.sampled_from([[], [RIGHT], [RIGHT, OTHER]]))
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
    callers = [BaselinePredictor(), perfect(right), memoriser(items)]
    return evaluate_predictors(callers, items, "set-1")


def test_the_rows_are_a_table_and_a_perfect_caller_is_right_everywhere(rows, items):
    assert len(CALLER_EVALUATION.frame(rows)) == 3 * len(items)
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
    text = caller_markdown.as_markdown([summary])
    assert "Asks for a value that the request lacks" in text
    assert text.count("| AST | ") == 1 + len(PERTURBATIONS)  # one of all cells together
    assert "| … to tools that are gone | 0 | – | – | – |" in text
    json.dumps(summary)


def test_gates_are_asked_on_unseen_servers_and_nothing_in_common_is_said(rows, items):
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
    with pytest.raises(NothingToEvaluate, match="same items"):
        summarise_calls(rows, "nobody")
    with pytest.raises(NothingToEvaluate, match="0 items"):
        evaluate_predictors([BaselinePredictor()], [], "set")


def test_what_many_updates_lost_of_shipped_requests_is_measured_from_the_first_caller(rows):
    def answer(model: str, nats: float) -> list[dict[str, Any]]:
        kept = {"distractors": "kept", "failed": True, "model": model, "nats": nats}
        return [{**rows[0], **kept, "item_id": f"k{n}", "text_digest": f"d{n}"} for n in range(9)]

    asked = [*rows, *answer("perfect", -3.0), *answer("memoriser", -2.9)]
    gate = summarise_calls(asked, "perfect", "memoriser")["gate"]
    assert (gate["kept_nats"]["value"], gate["since_shipped"]["n"]) == (pytest.approx(-0.1), 0)
    summary = summarise_calls([*asked, *answer("general", -1.0)], "perfect", "memoriser")
    assert summary["gate"]["kept_nats"]["value"] == pytest.approx(-2.0)
    assert "kept_requests" in {g.name for g in check_gates("caller", summary) if not g.passed}


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
    assert "timeout" in caller_markdown.as_markdown([summary])


Run = Callable[..., tuple[int, str, str]]
SMALL = ("--limit", "4")


@pytest.fixture
def toolmill(home: Path, monkeypatch, capsys) -> Run:
    monkeypatch.chdir(home)
    monkeypatch.setenv("TOOLMILL_HOME", str(home))
    monkeypatch.setenv("TOOLMILL_TRAINING__DEVICE", "cpu")
    short = partial(adapter_predictor.AdapterPredictor, max_new=4)
    monkeypatch.setattr(adapter_predictor, "AdapterPredictor", short)
    monkeypatch.setattr(caller_run, "LARGE", replace(caller_run.LARGE, candidates=(3, 6)))
    return partial(run_main, monkeypatch, capsys)


def test_a_folder_with_a_model_is_set_beside_the_baseline_by_split(toolmill, tmp_path):
    base, out = make_base(tmp_path / "base"), tmp_path / "out"
    words = ("evaluate", "--model", str(base), *SMALL, "--json", "--out", str(out))
    code, printed, err = toolmill(*words)
    assert code == 0, err
    report = json.loads(printed)
    [summary] = report["summaries"]
    assert (summary["candidate"], summary["incumbent"]) == (f"folder:{base}", BASELINE)
    rows = [json.loads(line) for line in (out / "items.jsonl").read_text().splitlines()]
    assert len(rows) == report["rows"]
    assert {row["model"] for row in rows} == {f"folder:{base}", BASELINE}
    assert "| AST |" in (out / "report.md").read_text()
    assert json.loads((out / "summary.json").read_text()) == report
    models = ("--model", "baseline", "--model", str(base))
    words = ("evaluate", *models, "--split", "unseen_tool", *SMALL, "--json")
    code, printed, err = toolmill(*words)
    assert code == 0, err
    summary = json.loads(printed)["summaries"][0]
    assert summary["candidate"] == BASELINE
    cells = {(cell["split"], cell["candidates"], cell["distractors"]) for cell in summary["cells"]}
    assert cells == {("unseen_tool", n, kind) for n in (3, 6) for kind in ("random", "hard")}
    assert ({cell["n"] for cell in summary["cells"]}, summary["gate"]["gain"]["n"]) == ({4}, 0)


def test_an_endpoint_is_asked_once_and_its_faults_are_told(toolmill, monkeypatch):
    broken = {"now": True}

    def say(body: dict, number: int) -> Say:
        return Say("refused", status=400) if broken["now"] and number % 2 else obedient(body, 1)

    with openai_endpoint(say) as endpoint:
        monkeypatch.setenv("OPENAI_BASE_URL", endpoint.url)
        words = ("evaluate", "--model", "endpoint:m", "--split", "unseen_server", *SMALL)
        code, printed, err = toolmill(*words)
        assert code == 1
        assert "questions got no answer (bad_request" in err.splitlines()[-1]
        assert "Without an answer, in no figure" in printed
        broken["now"] = False
        assert toolmill(*words)[0] == 0
        sent = len(endpoint.requests)
        code, printed, _ = toolmill(*words, "--json")
        assert code == 0
        assert len(endpoint.requests) == sent
    assert json.loads(printed)["summaries"][0]["failures"] == {}


@cases(
    "words, message",
    (("baseline",), "expected another model"),
    (("baseline", "--split", "test"), "--split 'test' does not exist; known: seen"),
    (("gpt-9",), "endpoint:ROLE_or_MODEL"),
    (("endpoint:caller",), "set roles.caller.model"),
    (("endpoint:gpt-9",), "set OPENAI_BASE_URL"),
    (("baseline", "--model", "endpoint:"), "has no model"),
)
def test_what_cannot_be_meant_is_one_line(toolmill, words, message):
    code, printed, err = toolmill("evaluate", "--model", *words)
    assert (code, printed) == (2, "")
    assert message in err
    assert len(err.strip().splitlines()) == 1


def test_a_home_without_a_training_set_says_what_to_do(toolmill, tmp_path, monkeypatch):
    monkeypatch.setenv("TOOLMILL_HOME", str(tmp_path / "empty"))
    code, _, err = toolmill("evaluate", "--model", str(make_base(tmp_path / "base")))
    assert code == 1
    assert "materialize training_set" in err
