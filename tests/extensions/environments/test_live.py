"""Live tasks: what launches, what is a miss, and worlds that are gone."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assets.contracts.canonical import canonicalize_contract, contract_digest
from assets.outcomes.environment import PLAIN
from assets.outcomes.plan import ExecutionSetup
from assets.outcomes.policy import ExecutionPolicy
from assets.outcomes.recording import write_recording
from assets.outcomes.replay_environment import ReplayTask
from assets.outcomes.worlds.session import open_world
from assets.servers.deploy.policy import DeployPolicy
from assets.servers.recipes.recipe import dump_recipe
from extensions.environments.live import LiveTasks, answer_lines
from tests.outcomes.recorded import CONTRACTS, recording
from tests.serving.calling import CONTRACT, PATIENT, Bench
from tests.support.untrusted_server import POLICY

SQUARES = """
def do(m, x):
    say(m, f"squared {x * x}")
calls(do)
"""
DIGEST, ABSENT = contract_digest(CONTRACT), contract_digest(CONTRACTS["read"])
TASK, GONE, MOVED, UNKNOWN = "t1:here", "t1:gone", "t1:moved", "t1:unknown"


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    (tmp_path / "servers").mkdir()
    tmp_path.chmod(0o755)
    return Bench(tmp_path / "servers", monkeypatch)


def write_tasks(folder: Path, first: str) -> None:
    places = {
        TASK: ("npm:x", PLAIN.name, first),
        GONE: ("npm:x", "no-such-world", first),
        MOVED: ("npm:x", PLAIN.name, "another"),
        UNKNOWN: ("npm:nobody", PLAIN.name, first),
    }
    rows = [
        {"id": name, "worlds": [{"server_id": server, "world": world, "seed": 7, "before": before}]}
        for name, (server, world, before) in places.items()
    ]
    (folder / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    recorded = recording()
    contract = canonicalize_contract(CONTRACT)
    entry = {"server_id": "npm:x", "tool": "do", "contract_digest": DIGEST, "contract": contract}
    recorded.contracts[DIGEST] = entry
    recorded.tasks = {TASK: ReplayTask(TASK, "Square 7.", (), {}, (DIGEST, ABSENT))}
    write_recording(folder / "replay.jsonl", recorded)


@pytest.fixture
def tasks(bench: Bench, tmp_path: Path) -> LiveTasks:
    with open_world(PLAIN, 7, tmp_path / "first") as opened:
        write_tasks(tmp_path, opened.digest_state())
    executor = ExecutionSetup(
        DeployPolicy(bench.folder, POLICY, PATIENT), replace(ExecutionPolicy(), timeout_s=20.0)
    )
    return LiveTasks(tmp_path, executor, {"npm:x": dump_recipe(bench.recipe(SQUARES))})


def ask(tasks: LiveTasks, *messages: Any) -> list[dict[str, Any]]:
    lines = [text if isinstance(text, str) else json.dumps(text) for text in messages]
    return [json.loads(line) for line in answer_lines(tasks, lines)]


def test_a_call_is_answered_by_the_server_in_its_world(tasks, tmp_path):
    first = json.loads((tmp_path / "tasks.jsonl").read_text().splitlines()[0])
    seven = {"call": DIGEST, "arguments": {"x": 7}}
    begun, answer, again, reread = ask(tasks, {"reset": TASK}, seven, {"reset": TASK}, seven)
    assert begun == again == {"servers": ["npm:x"]}
    before = first["worlds"][0]["before"]
    assert answer == reread == {"text": "squared 49", "outcome": "useful", "after": before}
    assert not list((tmp_path / "servers").rglob("env-*"))  # worlds go with the lines


def test_what_no_server_of_the_task_can_answer_is_an_error(tasks):
    early, _, other, odd, text = ask(
        tasks,
        {"call": DIGEST, "arguments": {"x": 7}},
        {"reset": TASK},
        {"call": ABSENT, "arguments": {"path": "/a"}},
        {"call": DIGEST, "arguments": [7]},
        "no JSON",
    )
    for reply in (early, other, odd):
        assert "not one of the task's servers" in reply["error"]
    assert text == {"error": "expected one JSON object a line"}


def test_a_task_whose_world_is_gone_names_the_world_and_the_fix(tasks):
    gone, moved, unknown, nobody = ask(
        tasks, {"reset": GONE}, {"reset": MOVED}, {"reset": UNKNOWN}, {"reset": "t1:nobody"}
    )
    assert "world 'no-such-world' is gone" in gone["error"]
    assert "add its file to `worlds.paths`" in gone["error"]
    assert f"world {PLAIN.name!r} does not begin as it did" in moved["error"]
    assert "its server npm:nobody is not in this home" in unknown["error"]
    assert "TOOLMILL_HOME" in unknown["error"]
    assert "no task 't1:nobody'" in nobody["error"]
    asyncio.run(tasks.close())
