"""`toolmill replay` as a person meets it: records, checks, answers, refuses."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from assets.outcomes.recording import write_recording
from assets.outcomes.trajectory import TRAJECTORIES
from orchestration.cli.app import app
from tests.outcomes.recorded import READ, find_task, recording, rows
from tests.support.cases import cases
from warehouse.home import claim_home
from warehouse.store import Warehouse


@pytest.fixture
def warehouse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Warehouse:
    monkeypatch.setenv("TOOLMILL_HOME", str(tmp_path / "home"))
    return Warehouse(home=tmp_path / "home", state=tmp_path / "home" / "state")


def play(warehouse: Warehouse) -> None:
    tables = warehouse.tables
    tables.promote(tables.stage(TRAJECTORIES, TRAJECTORIES.frame(rows())), "test", [])


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["replay", *arguments])


def test_it_records_what_was_played_and_every_task_is_worth_one(warehouse, tmp_path):
    play(warehouse)
    file = str(tmp_path / "replay.jsonl")
    done = run(file, "--write")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["tasks"] == 2
    answer = json.loads(run(file).stdout)
    assert (answer["tasks"], answer["not_worth_1"]) == (2, [])


def test_calls_of_a_task_are_answered_and_a_miss_is_exit_1(warehouse, tmp_path):
    file = tmp_path / "replay.jsonl"
    write_recording(file, made := recording())
    task = find_task(made, "What does /a say?")
    done = run(str(file), "--task", task[:20], "--call", json.dumps(READ))
    assert done.exit_code == 0, done.output
    answer = json.loads(done.stdout)
    assert [step["text"] for step in answer["steps"]] == ["first"]
    assert answer["score"]["reward"] == 1.0
    unseen = json.dumps({"name": "read", "arguments": {"path": "/unseen"}})
    done = run(str(file), "--task", task, "--call", unseen)
    assert done.exit_code == 1
    assert json.loads(done.stdout)["score"]["known"] is False


@cases(
    "arguments, code, told",
    (["{none}"], 2, "name a replay file"),
    (["{bad}"], 2, "no replay file"),
    (["{good}", "--call", "{}"], 2, "--call needs --task"),
    (["{good}", "--task", "t1:"], 2, "2 of 2 tasks begin so"),
    (["{good}", "--task", "{task}", "--call", "[1]"], 2, "expected a JSON object"),
    (["{out}", "--write"], 1, "run `toolmill worlds --play` first"),
    (["{bad}", "--write"], 2, "no replay file"),
)
def test_bad_input_is_one_line(warehouse, tmp_path, arguments, code, told):
    claim_home(warehouse.home)
    result = recording()
    write_recording(tmp_path / "good", result)
    (tmp_path / "bad").write_text("no\n")
    names = {f"{{{name}}}": str(tmp_path / name) for name in ("none", "bad", "good", "out")}
    names["{task}"] = sorted(result.tasks)[0]
    done = run(*(names.get(argument, argument) for argument in arguments))
    assert done.exit_code == code, done.output
    assert told in " ".join(done.stderr.split())
    assert "Traceback" not in done.output


def test_tasks_are_listed_for_who_asks_for_one(tmp_path):
    file = tmp_path / "replay.jsonl"
    write_recording(file, made := recording())
    listing = [json.loads(line) for line in run(str(file), "--list").stdout.splitlines()]
    assert [item["task"] for item in listing] == sorted(made.tasks)
    assert {item["request"] for item in listing} == {item.request for item in made.tasks.values()}
    own = [json.dumps(call) for call in listing[0]["calls"]]
    asked = [word for call in own for word in ("--call", call)]
    done = run(str(file), "--task", listing[0]["task"], *asked)
    assert json.loads(done.stdout)["score"]["reward"] == 1.0
    assert "--list" in run(str(file), "--task", "nobody").stderr
    assert run(str(file), "--write", "--list").exit_code == 2
    assert run(str(file), "--write", "--task", "t1").exit_code == 2
