"""`env export` as a person meets it, and the package that it writes, without its frameworks."""

import ast
import asyncio
import importlib
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from assets.contracts.canonical import canonicalize_contract, contract_digest
from assets.outcomes.environment import PLAIN
from assets.outcomes.plan import ExecutionSetup
from assets.outcomes.policy import ExecutionPolicy
from assets.outcomes.worlds.session import open_world
from assets.servers.deploy.policy import DeployPolicy
from assets.servers.recipes.recipe import dump_recipe
from extensions.environments import export, live
from extensions.environments.recording import read_recording, write_recording
from extensions.environments.replay_environment import ReplayTask, score_calls
from extensions.environments.tasks import find_contamination, select_tasks
from tests.extensions.environments.release_home import (
    CONTRACTS,
    DIGESTS,
    HELD_OUT,
    PAIR,
    READ,
    USELESS,
    fill_home,
    recording,
)
from tests.serving.calling import CONTRACT, PATIENT, Bench
from tests.support.command import invoke_toolmill
from tests.support.untrusted_server import POLICY
from training.releases.release import find_release
from warehouse.errors import UnusableInput
from warehouse.home import claim_home
from warehouse.store import Warehouse

NAME = "some_env"


def run_export(warehouse: Warehouse, out: Path, **which: Any) -> CompletedProcess[str]:
    release = fill_home(warehouse, **which)
    words = ("env", "export", "--out", str(out), "--release", release)
    return invoke_toolmill(*words, home=warehouse.home)


@pytest.fixture
def out(warehouse: Warehouse, tmp_path: Path) -> Path:
    claim_home(warehouse.home)
    done = run_export(warehouse, tmp_path / "packages" / NAME)
    assert done.returncode == 0, done.stderr
    return tmp_path / "packages" / NAME


@pytest.fixture
def package(out: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(out.parent))
    monkeypatch.delenv("TOOLENV_MODE", raising=False)
    yield importlib.import_module(f"{NAME}.episode")
    for name in [item for item in sys.modules if item.split(".")[0] == NAME]:
        del sys.modules[name]


def read_rows(out: Path) -> dict[str, dict[str, Any]]:
    lines = (out / "tasks.jsonl").read_text().splitlines()
    return {row["id"]: row for row in map(json.loads, lines)}


def test_tasks_are_split_as_the_release_splits_worth_1_and_named_on_the_card(out, warehouse):
    rows = read_rows(out)
    assert {name: (rows[name]["split"], rows[name]["check"]) for name in (PAIR, HELD_OUT)} == {
        PAIR: ("train", "observed"),
        HELD_OUT: ("unseen_tool", "proved"),
    }
    played = Counter((r["split"], r["check"]) for r in rows.values() if r["source"] == "world")
    assert played == {("train", "proved"): 1, ("unseen_tool", "proved"): 1}  # by its rarest tool
    assert USELESS not in rows
    assert rows[PAIR]["worlds"] == [
        {"server_id": "npm:files", "world": "office-folder", "seed": 7, "before": "s1"}
    ]
    facts = json.loads((out / "export.json").read_text())
    assert facts["left_out"] == {"call_tool_error": 1}
    assert facts["splits"] == {"train": 2, "unseen_tool": 2}
    recording = read_recording(out / "replay.jsonl")
    assert recording.answer(DIGESTS["read"], READ["arguments"], "s1").text == "first"
    assert recording.answer(DIGESTS["read"], {"path": "/gone"}, "s1").outcome == "tool_error"
    for row in rows.values():
        assert score_calls(recording, row["id"], row["reference"])[0].reward == 1
        assert score_calls(recording, row["id"], row["perturbed"])[0].reward < 1
    scores = facts["scores"]
    assert (scores["reference"]["value"], scores["reference"]["n"]) == (1, 4)
    assert scores["perturbed"]["value"] < 1
    [entry] = [json.loads(line) for line in (out / "contamination.jsonl").read_text().splitlines()]
    assert entry["contracts"] == [DIGESTS["read"]]  # by its read; its write is held out
    card = (out / "README.md").read_text()
    assert re.search(r"\| unseen\S*tool \| 2 \| 2 \| 0 \| 1 \| 0 \|", card)
    release = find_release(warehouse.home, fill_home(warehouse))
    made = select_tasks(warehouse, release["training_set"])
    tested = next(task for task in made.tasks if task["id"] == HELD_OUT)
    made.learnt = [{**made.learnt[0], "instruction": tested["request"].upper()}]
    [again] = [row for row in find_contamination(made, None) if row["task"] == HELD_OUT]
    assert again["requests"] == [tested["request"].upper()]


def test_the_package_answers_as_the_core_does_in_bounded_work_and_stands_alone(out, package):
    recording = read_recording(out / "replay.jsonl")
    for row in read_rows(out).values():
        for calls in (row["reference"], row["perturbed"], [{"name": "nobody", "arguments": 3}]):
            score, _ = score_calls(recording, row["id"], calls)
            assert vars(package.score_calls(row["id"], calls)) == vars(score)
    theirs, ours = package.read_tasks().recording, recording
    for contract in (entry["contract"] for entry in ours.contracts.values()):
        for given in ({}, {"path": 3}, {"path": "/a", "content": None}, {"path": "/a"}, 7, None):
            both = theirs.find_flaws(contract, given), ours.find_flaws(contract, given)
            assert bool(both[0]) == bool(both[1])
    find = package.Recording().find_flaws
    slow = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}}
    assert find({"inputSchema": slow}, {"a": "a" * 60 + "!"}) == []
    assert find({"inputSchema": {"$ref": "http://127.0.0.1:9/x"}}, {}) != []
    assert find({"inputSchema": {"$ref": "#"}}, {"a": 1}) != []
    allowed = {NAME, "openenv", "verifiers", "mcp", "pydantic", "uvicorn", "rfc8785", "jsonschema"}
    allowed |= {"referencing", *sys.stdlib_module_names}
    for path in out.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert {name.split(".")[0] for name in names} <= allowed, path
    files = [path for path in out.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    assert not any("toolmill_env" in path.read_text() for path in files)
    assert (out / "server" / "Dockerfile").exists()


def test_an_episode_has_its_own_state_tells_misses_and_ends(package, monkeypatch):
    one, other = package.Episode(), package.Episode()
    one.reset(PAIR)
    other.reset(HELD_OUT)
    one.call("read", {"path": "/c"})
    one.call("finish_task", {})
    assert (one.describe()["done"], other.describe()["done"]) == (True, False)
    assert (one.describe()["calls"], other.describe()["calls"]) == (1, 0)
    assert other.call("write", {"path": "/d", "content": "z"}).outcome == "useful"
    assert (one.score().reward, other.score().reward) == (1, 1)
    episode = package.Episode()
    episode.reset(PAIR)
    answer = episode.call("read", {"path": "/nowhere"})
    assert (answer.missed, answer.outcome) == (True, "miss")
    assert "never called" in answer.text
    assert episode.describe()["misses"] == 1
    episode.call("finish_task", {})
    assert episode.describe()["score"]["known"] is False
    assert episode.describe()["score"]["end"] is False
    episode = package.Episode()
    with pytest.raises(package.EpisodeOver, match="reset the environment first"):
        episode.call("read", {"path": "/c"})
    episode.reset(PAIR)
    episode.call("finish_task", {})
    with pytest.raises(package.EpisodeOver, match=r"p1:one has ended .*reset the environment"):
        episode.call("read", {"path": "/c"})
    episode.reset(PAIR)
    for _ in range(33):
        episode.call("read", {"path": "/c"})
    with pytest.raises(package.EpisodeOver, match="32 calls were made"):
        episode.call("read", {"path": "/c"})
    monkeypatch.setenv("TOOLENV_PROGRAM", "no-such-toolmill")
    with pytest.raises(package.WorldGone, match=r"no-such-toolmill.*TOOLENV_MODE=replay"):
        package.Episode("live").reset(PAIR)


def test_bad_input_is_told_of_and_ends_nothing_and_a_seed_draws_the_same_task(package):
    episode = package.Episode()
    for which, problem in (
        ({"task_id": "nobody"}, r"no task 'nobody'.*p1:one"),
        ({"split": "nights"}, r"no split 'nights'.*train"),
        ({"split": "train", "index": 9}, "no task 9 in train"),
        *(({"index": index}, "expected a whole number") for index in ("1", True)),
        *(({"seed": seed}, "expected a whole number") for seed in ("7", [7])),
    ):
        with pytest.raises(package.UnknownTask, match=problem):
            episode.reset(**which)
    with pytest.raises(ValueError, match="expected replay or live"):
        package.Episode("lively")
    episode.reset(PAIR)
    for arguments in ("{}", None, ["/c"], {"path": 1}, {"path": {"deep": [1]}}):
        assert episode.call("read", arguments).outcome == "invalid_arguments"
    assert episode.call("nobody", {}).outcome == "unknown_tool"
    assert episode.describe()["done"] is False
    drawn = [episode.reset(seed=seed)["id"] for seed in range(20)]
    assert drawn == [episode.reset(seed=seed)["id"] for seed in range(20)]
    assert len(set(drawn)) > 1


def test_a_file_that_was_changed_is_refused(out, package):
    (out / "tasks.jsonl").write_text("{}\n")
    with pytest.raises(ValueError, match=r"tasks\.jsonl: not as it was exported"):
        package.Episode()


def test_a_release_without_tasks_bad_places_and_names_are_refused(warehouse, tmp_path):
    claim_home(warehouse.home)
    done = run_export(warehouse, tmp_path / "env", pairs=False, played=False)
    assert done.returncode == 2
    assert "no tasks" in done.stderr
    assert "toolmill worlds --play" in done.stderr
    assert not (tmp_path / "env").exists()
    release = find_release(warehouse.home, fill_home(warehouse))
    made = select_tasks(warehouse, release["training_set"])
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    with pytest.raises(UnusableInput, match="not empty"):
        export.export_environment(made, tmp_path / "full", release, None)
    with pytest.raises(UnusableInput, match="lower-case letters"):
        export.export_environment(made, tmp_path / "My-Env", release, None)
    for name in ("class", "json", "verifiers"):  # no code could import it
        with pytest.raises(UnusableInput, match="or of a package that it needs"):
            export.export_environment(made, tmp_path / name, release, None)
    with pytest.raises(UnusableInput, match="is not in this home any more"):
        select_tasks(warehouse, "0" * 64)


# --- live tasks: what launches, what is a miss, and worlds that are gone
SQUARES = """
def do(m, x):
    say(m, f"squared {x * x}")
calls(do)
"""
DIGEST, ABSENT = contract_digest(CONTRACT), contract_digest(CONTRACTS["read"])
TASK, GONE, MOVED, UNKNOWN = "t1:here", "t1:gone", "t1:moved", "t1:unknown"


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
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
    recorded, contract = recording(), canonicalize_contract(CONTRACT)
    entry = {"server_id": "npm:x", "tool": "do", "contract_digest": DIGEST, "contract": contract}
    recorded.contracts[DIGEST] = entry
    recorded.tasks = {TASK: ReplayTask(TASK, "Square 7.", (), {}, (DIGEST, ABSENT))}
    write_recording(folder / "replay.jsonl", recorded)


@pytest.fixture
def tasks(bench: Bench, tmp_path: Path) -> live.LiveTasks:
    with open_world(PLAIN, 7, tmp_path / "first") as opened:
        write_tasks(tmp_path, opened.digest_state())
    executor = ExecutionSetup(
        DeployPolicy(bench.folder, POLICY, PATIENT), replace(ExecutionPolicy(), timeout_s=20.0)
    )
    return live.LiveTasks(tmp_path, executor, {"npm:x": dump_recipe(bench.recipe(SQUARES))})


def ask(tasks: live.LiveTasks, *messages: Any) -> list[dict[str, Any]]:
    lines = [text if isinstance(text, str) else json.dumps(text) for text in messages]
    return [json.loads(line) for line in live.answer_lines(tasks, lines)]


def test_a_call_is_answered_by_its_server_in_its_world_and_all_else_is_an_error(tasks, tmp_path):
    absent, odd = {"call": ABSENT, "arguments": {"path": "/a"}}, {"call": DIGEST, "arguments": [7]}
    early = {"call": DIGEST, "arguments": {"x": 7}}
    early, _, other, odd, text = ask(tasks, early, {"reset": TASK}, absent, odd, "no JSON")
    for reply in (early, other, odd):
        assert "not one of the task's servers" in reply["error"]
    assert text == {"error": "expected one JSON object a line"}
    first = json.loads((tmp_path / "tasks.jsonl").read_text().splitlines()[0])
    seven = {"call": DIGEST, "arguments": {"x": 7}}
    begun, answer, again, reread = ask(tasks, {"reset": TASK}, seven, {"reset": TASK}, seven)
    assert begun == again == {"servers": ["npm:x"]}
    before = first["worlds"][0]["before"]
    assert answer == reread == {"text": "squared 49", "outcome": "useful", "after": before}
    assert not list((tmp_path / "servers").rglob("env-*"))  # worlds go with the lines
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
