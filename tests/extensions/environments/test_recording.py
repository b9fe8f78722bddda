"""Recordings, replays of them, and `toolmill execute`."""

import asyncio
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assets.contracts.canonical import contract_digest
from assets.contracts.quarantined_tools import HELD
from assets.outcomes.adhoc import CannotExecute, execute_tool, find_call, pick_world
from assets.outcomes.worlds.spec import SeedGenerator, ServerFit, WorldSpec
from assets.servers.deploy.deployment_table import DEPLOYMENTS
from extensions.environments import replay_environment
from extensions.environments.recording import (
    ReplayDamaged,
    ReplayRecording,
    read_recording,
    record_trajectories,
    write_recording,
)
from tests.extensions.environments.release_home import (
    BOTH,
    CONTRACTS,
    READ,
    WRITE,
    find_task,
    recording,
    row,
    rows,
    step,
)
from tests.orchestration.cli.test_app import toolmill
from tests.outcomes.test_defs import LOOK, MARKET, NOTE, Market, make_deployment
from tests.serving.calling import Bench
from tests.support.cases import cases
from tests.support.examples import examples
from warehouse.storage.digest import sha256

NAME = contract_digest(CONTRACTS["read"])


@cases("outcome", "refused", "truncated", "timeout", "protocol_error")
def test_a_played_call_without_a_whole_answer_is_a_miss(outcome):
    """What was withheld has no words here: to replay none would make an answer up."""
    played = step("read", {"path": "/q"}, "", "s1", "s1", outcome=outcome)
    built = record_trajectories([row(played, why="no useful answer")])
    assert built.make_key(NAME, {"path": "/q"}, "s1") not in built.answers


def test_the_same_recording_is_the_same_bytes_and_no_key_is_of_what_has_no_canonical_form(tmp_path):
    deep: dict[str, Any] = {}
    for _ in range(5000):
        deep = {"a": deep}
    assert ReplayRecording().make_key(NAME, {"n": float("nan")}, "s1") == ""
    assert ReplayRecording().make_key(NAME, deep, "s1") == ""
    assert "" not in recording().answers
    built = recording()
    write_recording(tmp_path / "one", built)
    write_recording(tmp_path / "two", record_trajectories(list(reversed(rows()))))
    assert read_recording(tmp_path / "one") == built
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    moved = record_trajectories([*rows(), *rows("second"), *rows("second")])
    [read] = [item for item in moved.answers.values() if item.text in ("first", "second")]
    assert read.text == "second"  # the commonest


def reseal(data: bytes) -> bytes:
    first, _, body = data.partition(b"\n")
    return json.dumps({**json.loads(first), "sha256": sha256(body)}).encode() + b"\n" + body


@cases(
    "damage, output",
    (lambda data: data[:-20], "damaged, its bytes are not those that were sealed"),
    (lambda data: data.replace(b"first", b"other"), "damaged"),
    (lambda data: b"", "no replay file"),
    (lambda data: b"\xff\xfe", "no replay file"),
    (lambda data: b'["a list"]\n', "no replay file"),
    (lambda data: data.replace(b'"version": 2', b'"version": 1'), "version 1, expected 2"),
    (lambda data: reseal(data + b"{\n"), "line .* holds no contract, answer or task"),
    (lambda data: reseal(data + b'{"task": {"id": 1}}\n'), "holds no contract"),
    (lambda data: reseal(data + b'{"key": "k", "answer": {"text": 1}}\n'), "holds no contract"),
    (lambda data: reseal(data + b"[" * 9000 + b"\n"), "holds no contract"),
    (lambda data: reseal(data.replace(b'"after": "s1"', b'"after": 1')), "holds no contract"),
    (lambda data: reseal(data.replace(b'{"path": "/a"}', b'"x"')), "holds no contract"),
)
def test_a_damaged_file_is_one_line_that_names_it(tmp_path, damage, output):
    path = tmp_path / "x.jsonl"
    write_recording(path, recording())
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ReplayDamaged, match=output) as error:
        read_recording(path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_a_file_that_is_not_there_no_plain_one_or_too_long_is_named(tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/zero")
    for name in ("pipe", "link", "."):
        with pytest.raises(ReplayDamaged, match="no plain file; name a replay file"):
            read_recording(tmp_path / name)
    with pytest.raises(ReplayDamaged, match="name a replay file"):
        read_recording(tmp_path / "none")
    path = tmp_path / "x.jsonl"
    write_recording(path, recording())
    monkeypatch.setattr("extensions.environments.recording.MOST_BYTES", 10)
    with pytest.raises(ReplayDamaged, match="expected at most 10"):
        read_recording(path)


MADE = recording()
ALONE = "What does /a say?"


def score(request: str, *calls: dict[str, Any]) -> Any:
    return play(request, *calls)[0]


def play(request: str, *calls: Any) -> Any:
    """(the score, what each call was answered)."""
    return replay_environment.score_calls(MADE, find_task(MADE, request), calls)


def test_the_tasks_own_calls_are_worth_one_no_call_nothing_and_a_wrong_call_a_servers_words():
    assert replay_environment.VALID + replay_environment.CALLS_USEFUL + replay_environment.END == 1
    assert score(BOTH, READ, WRITE).reward == 1.0
    assert score(ALONE, READ).reward == 1.0
    for request in (BOTH, ALONE):
        nothing = score(request)
        assert (nothing.reward, nothing.end, nothing.known) == (0.0, False, True)
    assert {task.request for task in MADE.tasks.values()} == {BOTH, ALONE}
    half = score(BOTH, READ)
    assert half.reward == replay_environment.VALID + replay_environment.CALLS_USEFUL
    assert not half.end
    # Writing alone brings about the state that was asked for: the way there is the model's.
    assert score(BOTH, WRITE).end
    built, steps = play(ALONE, {"name": "read", "arguments": {"path": "/z"}}, READ)
    answers = [(step.text, step.outcome) for step in steps]
    assert answers == [("no such file", "tool_error"), ("first", "useful")]
    assert (built.end, built.known, built.reward) == (
        True,
        True,
        replay_environment.VALID + replay_environment.CALLS_USEFUL / 2 + replay_environment.END,
    )


@cases(
    "call, outcome, output",
    ({"name": "drop", "arguments": {}}, "unknown_tool", "no tool 'drop'; tools: read, write"),
    ({"name": "read", "arguments": {}}, "invalid_arguments", "path"),
    ({"name": "read", "arguments": ["/a"]}, "invalid_arguments", ""),
    ({"name": "read", "arguments": None}, "invalid_arguments", ""),
    ({"name": None}, "unknown_tool", "no tool 'None'"),
)
def test_a_call_that_no_server_would_be_sent_is_told_why(call, outcome, output):
    built, [step] = play(ALONE, call)
    assert step.outcome == outcome
    assert output in step.text
    assert (built.reward, built.known) == (0.0, True)


def test_a_call_that_was_not_recorded_or_has_a_changed_contract_is_a_miss_and_never_made_up():
    built, [step] = play(ALONE, {"name": "read", "arguments": {"path": "/unseen"}})
    assert step.missed
    assert step.text.startswith("replay miss: read was never called with these arguments")
    assert (built.known, built.end, built.useful) == (False, False, 0.0)
    # In another state than the recorded one the same call is another call.
    built, [_, step] = play(BOTH, WRITE, READ)
    assert step.missed
    assert not built.known
    environment = replay_environment.ReplayEnvironment(MADE)
    environment.reset(find_task(MADE, ALONE))
    step = environment.step("read", READ["arguments"], contract_digest="c1:newer")
    assert step.missed
    assert "it changed, or is another's" in step.text
    with pytest.raises(replay_environment.ReplayMiss) as missed:
        MADE.answer("c1:newer", {}, "s1")
    assert missed.value.kind == "unknown_contract"
    # A file from elsewhere may offer a tool of a server without a state.
    built = recording()
    task = next(iter(built.tasks.values()))
    built.tasks[task.id] = replace(task, states={})
    world = replay_environment.ReplayEnvironment(built)
    world.reset(task.id)
    assert world.step("read", READ["arguments"]).missed


def test_a_rollout_ends_and_the_next_begins_anew():
    environment = replay_environment.ReplayEnvironment(MADE)
    with pytest.raises(RuntimeError, match="reset the environment"):
        environment.step("read", {})
    with pytest.raises(KeyError, match="no task 'other' is recorded"):
        environment.reset("other")
    with pytest.raises(KeyError, match="known: none"):
        replay_environment.ReplayEnvironment(ReplayRecording()).reset("t1:x")
    environment.reset(find_task(MADE, BOTH))
    for _ in range(replay_environment.MOST_CALLS + 5):
        last = environment.step("read", READ["arguments"])
    assert last.outcome == "too_many_calls"
    assert len(environment.steps) == replay_environment.MOST_CALLS + 1
    environment.reset(find_task(MADE, BOTH))
    assert environment.score().reward == 0.0
    assert [tool["name"] for tool in environment.list_tools()] == ["read", "write"]


words = st.sampled_from(["read", "write", "drop", ""])
keys = st.sampled_from(["path", "content", "z"])
given_arguments = st.sampled_from([READ["arguments"], WRITE["arguments"]]) | st.recursive(
    st.none() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.dictionaries(keys, inner, max_size=3),
    max_leaves=4,
)


CALLS = st.builds(lambda name, of: {"name": name, "arguments": of}, words, given_arguments)


@examples(80)
@given(st.lists(CALLS, max_size=6))
def test_whatever_is_called_the_score_is_between_0_and_1_and_the_same_again(calls):
    for request in (BOTH, ALONE):
        built, steps = play(request, *calls)
        assert 0.0 <= built.reward <= 1.0
        assert built.known == (not any(step.missed for step in steps))
        assert len(steps) == len(calls)
        assert play(request, *calls) == (built, steps)
        answers = {answer.text for answer in MADE.answers.values()}
        assert {s.text for s in steps if s.outcome in ("useful", "tool_error")} <= answers


NAMED = "npm:x::write_note"
BUDGET = '{"name": "budget"}'


@pytest.fixture
def market(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Market:
    return Market(Bench(tmp_path, monkeypatch))


def execute(market: Market, name: str, world: str | None = None) -> dict[str, Any]:
    call, server = find_call(market.warehouse, name, BUDGET, market.executor)
    chosen = pick_world(call, market.executor, world)
    return asyncio.run(execute_tool(call, server, chosen, market.executor))


def test_a_call_is_made_and_told_with_what_it_changed_or_whose_fault_it_was(market):
    result = execute(market, NAMED)
    assert (result["outcome"], result["blame"], result["world"]) == ("useful", None, "plain-folder")
    assert (result["changed"], result["text"]) == (["budget.txt"], "written")
    assert market.warehouse.ledger.counts() == {}
    assert list((market.executor.policy.home / "cache" / "worlds").iterdir()) == []
    result = execute(market, "npm:x::find_note", "plain-folder")
    assert (result["outcome"], result["blame"]) == ("tool_error", "caller")
    assert result["evidence"].startswith("budget not found")


UNCALLED = [
    ("write_note", BUDGET, "'write_note' is no tool id, expected <server_id>::<tool>"),
    ("npm:x::erase", BUDGET, "npm:x::erase: no run has listed such a tool"),
    (NAMED, "{", "--arguments is no JSON"),
    (NAMED, "[1]", "--arguments is list, expected an object"),
    (NAMED, '{"name": NaN}', "--arguments is no JSON"),
    (NAMED, "{}", "--arguments $.name"),
    (NAMED, '{"name": 7}', "--arguments $.name: found"),
]


def test_what_cannot_be_called_is_held_or_did_not_start_is_named(market):
    for tool_id, arguments, output in UNCALLED:
        with pytest.raises(CannotExecute) as raised:
            find_call(market.warehouse, tool_id, arguments, market.executor)
        assert str(raised.value).startswith(output)
    stored = {"server_id": "npm:x", "tool": "drop", "contract_digest": contract_digest(LOOK)}
    market.publish(HELD, [{**stored, "marketplace": MARKET}])
    with pytest.raises(CannotExecute, match="npm:x::drop is held"):
        find_call(market.warehouse, "npm:x::drop", "{}", market.executor)
    # What changes something is not called where no world is ours.
    market.publish(DEPLOYMENTS, [{**make_deployment(market.recipe), "ecosystem": "remote"}])
    with pytest.raises(CannotExecute, match="write_note may change something, and its server is"):
        find_call(market.warehouse, NAMED, BUDGET, market.executor)
    assert find_call(market.warehouse, "npm:x::find_note", BUDGET, market.executor)
    market.publish(DEPLOYMENTS, [])
    with pytest.raises(CannotExecute, match="npm:x did not start in its last run"):
        find_call(market.warehouse, NAMED, BUDGET, market.executor)


def test_the_world_that_suits_a_server_is_taken_and_another_can_be_named(market):
    fit = ServerFit(id="npm:x", tools=("write_note",))
    office = {"kind": "folder", "about": "notes", "generator": SeedGenerator(name="office")}
    worlds = (WorldSpec(name="mine", servers=(fit,), **office),)
    executor = replace(market.executor, worlds=worlds)
    call, _ = find_call(market.warehouse, NAMED, BUDGET, executor)
    assert pick_world(call, executor, None).name == "mine"
    assert pick_world(call, executor, "plain-folder").name == "plain-folder"
    with pytest.raises(CannotExecute, match="'moon': expected one of mine, plain-folder"):
        pick_world(call, executor, "moon")


def test_the_command_refuses_in_one_line(tmp_path):
    done = toolmill("execute", NAMED, "--arguments", json.dumps(NOTE), home=tmp_path / "none")
    assert done.returncode != 0
    assert len(done.stderr.strip().splitlines()) == 1
