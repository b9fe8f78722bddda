"""`toolmill repair`: files in, a report of each call out."""

import json
from pathlib import Path

from assets.contracts.rename_history import ContractMove, write_history
from tests.serving.repair.test_ladder import MAIL, WEATHER
from tests.serving.test_adhoc import run
from tests.support.cases import cases
from tests.support.openai_endpoint import openai_endpoint
from tests.training.evaluation.test_predictors import called

BARE = {"name": "get_weather", "arguments": {"city": "Rome"}}


def put(path: Path, value: object) -> Path:
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return path


def command(tmp_path, call, tools=(WEATHER, MAIL), *options):
    files = put(tmp_path / "call.json", call), put(tmp_path / "tools.json", tools)
    return run("repair", files[0], "--tools", files[1], *options)


def test_a_valid_call_exits_0_one_that_is_asked_about_1_and_two_get_two_reports(tmp_path):
    code, out, _ = command(tmp_path, BARE, [WEATHER], "--json")
    assert (code, json.loads(out)["outcome"]) == (0, "valid")
    code, out, _ = command(tmp_path, {**BARE, "arguments": {}}, {"tools": [WEATHER]}, "--json")
    assert (code, json.loads(out)["reason"]["kind"]) == (1, "missing_value")
    text = "<tool_call>" + json.dumps(BARE) + "</tool_call><tool_call>{}</tool_call>get_x"
    code, out, _ = command(tmp_path, text.replace("{}", json.dumps(BARE)), [WEATHER], "--json")
    assert code == 0
    assert [json.loads(line)["name"] for line in out.splitlines()] == ["get_weather"] * 2


def test_each_change_is_told_with_its_rung_and_history_is_read_from_its_file(tmp_path):
    said = put(tmp_path / "said.json", [{"role": "user", "content": "city: Rome"}])
    draft = {**BARE, "arguments": "{'days': '2',}"}
    code, out, _ = command(tmp_path, draft, [WEATHER], "--conversation", said)
    lines = out.splitlines()
    assert code == 0
    assert lines[0].startswith("get_weather: repaired")
    assert [line.split()[0] for line in lines[1:-1]] == ["parse", "coerce", "fill"]
    assert json.loads(lines[-1]) == {"city": "Rome", "days": 2}
    moves = [ContractMove("npm:sky", "get_weather", "forecast", {"town": "city"})]
    history = tmp_path / "history.json"
    history.write_bytes(write_history(moves))
    draft = {"type": "tool_use", "id": "t", "name": "forecast", "input": {"town": "Rome"}}
    code, out, _ = command(tmp_path, draft, [WEATHER], "--history", history, "--json")
    assert (code, json.loads(out)["arguments"]) == (0, {"city": "Rome"})


@cases(
    "name, value, answer",
    ("call.json", "", "empty"),
    ("tools.json", "{", "tools.json: not JSON"),
    ("tools.json", [], "no tool in it"),
    ("tools.json", [{"inputSchema": {}}], "entry 0"),
    ("tools.json", [WEATHER, 5], "entry 1: int"),
    ("said.json", {"a": 1}, "no messages in it"),
    ("said.json", ["hi"], "message 0"),
    ("history.json", {"format": 9}, "found format 9"),
    ("history.json", {"format": 1, "moves": [{}]}, "move 0"),
)
def test_a_wrong_file_is_one_clear_line_and_exit_2(tmp_path, name, value, answer):
    files = {"call.json": BARE, "tools.json": [WEATHER], "said.json": [],
             "history.json": {"format": 1, "moves": []}, name: value}  # fmt: skip
    call, tools, said, history = (put(tmp_path / one, held) for one, held in files.items())
    given = ("--conversation", said, "--history", history)
    code, out, err = run("repair", call, "--tools", tools, *given)
    code, out, err = run("repair", call, "--tools", tools, *given)
    assert (code, out) == (2, "")
    assert answer in err
    assert len(err.splitlines()) == 1


def test_a_folder_without_an_index_and_a_file_that_is_not_there_are_told(tmp_path):
    code, _, err = command(tmp_path, BARE, [WEATHER], "--history", tmp_path)
    assert code == 2
    assert "no router index" in err
    code, _, err = run("repair", tmp_path / "none.json", "--tools", tmp_path / "tools.json")
    assert code == 2
    assert "none.json" in err


def test_a_model_is_asked_what_rules_leave(tmp_path, monkeypatch):
    monkeypatch.setenv("TOOLMILL_HOME", str(tmp_path / "home"))
    draft = {**BARE, "arguments": {}}
    said = put(tmp_path / "said.json", [{"role": "user", "content": "Rome or Oslo? Rome."}])
    given = ("--conversation", said, "--json", "--revise")
    with openai_endpoint([called(("get_weather", '{"city": "Rome"}'))]) as endpoint:
        monkeypatch.setenv("OPENAI_BASE_URL", endpoint.url)
        code, out, _ = command(tmp_path, draft, [WEATHER, MAIL], *given, "endpoint:m")
    assert (code, json.loads(out)["arguments"], len(endpoint.requests)) == (0, {"city": "Rome"}, 1)


@cases(
    "name, message",
    ("champion", "no sidecar is better than the ladder alone yet"),
    ("nobody", "0 of 0 sidecars"),
)
def test_a_model_that_is_not_there_is_told(tmp_path, monkeypatch, name, message):
    monkeypatch.setenv("TOOLMILL_HOME", str(tmp_path / "home"))
    code, _, errors = command(tmp_path, BARE, [WEATHER], "--revise", name)
    assert code != 0
    assert message in errors
    assert "Traceback" not in errors


@cases(
    "tool",
    {"name": "get_weather", "inputSchema": "x"},
    {"type": "function", "function": {"name": "get_weather", "parameters": [1]}},
    {"name": "get_weather", "inputSchema": {"default": 10**400}},
)
def test_a_tool_that_is_no_contract_is_refused(tmp_path, tool):
    code, out, err = command(tmp_path, BARE, [WEATHER, tool])
    assert (code, out) == (2, "")
    assert "tools.json, entry 1: " in err
