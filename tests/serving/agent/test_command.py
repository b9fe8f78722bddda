"""`toolmill agent`: over an index, with rules or a model behind an endpoint."""

import json
import os
from pathlib import Path

import pytest

from serving.agent_loop import write_lines
from serving.discovery.request import write_block
from tests.serving.test_adhoc import CLOCK, MAIL, run, written
from tests.support.cases import cases
from tests.support.openai_endpoint import Say, openai_endpoint
from warehouse.llm.chat import write_wire_name


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("agent")
    code, _, err = run(
        "index", written(folder / "servers.jsonl", CLOCK, MAIL), "--out", folder / "i"
    )
    assert code == 0, err
    return folder / "i"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("TOOLMILL_", "OPENAI_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("TOOLMILL_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)


def test_without_a_model_rules_answer_and_say_so(index):
    code, out, err = run("agent", "tell the time in a city", "--index", index, "--json")
    report = json.loads(out)
    assert code == 0, err
    assert (report["provider"], report["model"], report["ended"]) == ("offline", None, "planned")
    assert report["chosen"] == ["@clock/world::get_time"]
    assert report["rounds"][0]["asked"] == [{"tool": "tell the time in a city"}]
    assert report["calls"][0]["status"] == "planned"


def test_lines_repeat_the_beginning_of_what_is_long():
    call = {"status": "planned", "tool_id": "s::t", "arguments": {"at": "y" * 9_000}, "shown": ""}
    asked = [{"server": "x" * 9_000, "tool": "mail"}]
    facts = {"ended": "planned", "error": "", "turns": 2, "provider": "offline", "answer": ""}
    lines = list(write_lines({"rounds": [{"asked": asked, "shown": []}], "calls": [call], **facts}))
    assert lines[0].startswith("asked  server: xxx")
    assert lines[0].endswith("xx…; tool: mail")
    assert lines[1].startswith('planned  s::t  {"at": "yyy')
    assert lines[1].endswith("…")
    assert max(map(len, lines)) < 400


def test_a_wrong_option_repeats_the_beginning_of_what_was_typed(index):
    for words in (("agent", "x", "y" * 9_000), ("search", "a", "y" * 9_000)):
        code, out, err = run(*words, "--index", index)
        assert (code, out) == (2, "")
        assert len(err) < 1_200
        assert "yyyy" in err


def test_a_model_behind_an_endpoint_asks_and_plans(index, monkeypatch):
    say = Say(content=write_block("mailing", "sends a letter"))
    call = {"name": "npm:mail::send_email", "arguments": {}}
    with openai_endpoint([say, Say(content=json.dumps(call))]) as endpoint:
        monkeypatch.setenv("OPENAI_BASE_URL", endpoint.url)
        command = ("agent", "Write to Ada.", "--index", index, "--model", "tiny-model")
        code, out, err = run(*command, "--json")
        lines = run(*command)[1].splitlines()
    assert code == 0, err
    result = json.loads(out)
    assert (result["model"], result["chosen"]) == ("tiny-model", ["npm:mail::send_email"])
    assert result["provider"] in endpoint.url
    names = [request["function"]["name"] for request in endpoint.requests[1]["tools"]]
    assert names[0] == write_wire_name("npm:mail::send_email")
    assert len(endpoint.requests) == 2, "the same task again is not paid again"
    assert lines[0] == "asked  server: mailing; tool: sends a letter"
    assert "planned  npm:mail::send_email  {}" in lines
    assert lines[-1].startswith("ended: planned after 2 turns")


def test_a_model_that_gives_no_answer_is_told_with_the_reason(index, monkeypatch):
    with openai_endpoint([Say(status=401)]) as endpoint:
        monkeypatch.setenv("OPENAI_BASE_URL", endpoint.url)
        command = ("agent", "Write to Ada.", "--index", index, "--model", "tiny-model")
        code, out, _ = run(*command)
        again = run(*command, "--json")
    assert code == again[0] == 1
    assert out.splitlines()[0].startswith("ended: auth after 0 turns")
    assert "OPENAI_API_KEY" in out.splitlines()[1]
    assert json.loads(again[1])["error"].startswith("auth: ")
    with openai_endpoint([Say(content="")]) as endpoint:
        monkeypatch.setenv("OPENAI_BASE_URL", endpoint.url)
        code, out, _ = run(*command)
    assert (code, out.split(" after ")[0]) == (1, "ended: empty")


@cases(
    "arguments, code, message",
    (("x", "--index", "none"), 2, "toolmill index SERVERS.jsonl --out DIR"),
    ((" ", "--index", "{at}"), 2, "the task is empty"),
    (("x", "--index", "{at}", "--model", "nobody"), 2, "OPENAI_BASE_URL"),
)
def test_bad_input_is_one_error(index, arguments, code, message):
    result = run("agent", *(part.replace("{at}", str(index)) for part in arguments))
    assert result[0] == code, result
    assert message in result[2], result
    assert result[1] == ""
