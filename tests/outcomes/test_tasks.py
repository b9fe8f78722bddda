"""Tasks of worlds as pairs: which are drawn for whom, and what an executed call proves of one."""

import json
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from assets.contracts.canonical import contract_digest
from assets.outcomes.execution import CallExecution, ToolCall, WatchedCall
from assets.outcomes.proof import WorldTasks, find_task, prove_observed, prove_task
from assets.outcomes.worlds.session import open_world
from assets.outcomes.worlds.spec import load_world
from assets.servers.recipes.placeholders import DATA
from assets.synthesis.tables import TaskOrigin, WorldUnavailable
from tests.outcomes.worlds.files import SMALL, write_world

SERVER, TOOLS = "npm:files", ("read_file", "write_file", "delete_file")
PATH = {"type": "object", "properties": {"path": {"type": "string"}, "content": {}}}
TWIN = '[[servers]]\nid = "npm:twin"\ntools = ["write_file", "read_file"]\n\n[[tasks]]'


def make_tasks(folder, text: str = SMALL, seed: int = 7) -> WorldTasks:
    world = load_world(write_world(folder / "files", text))
    return WorldTasks((world,), seed, folder / "cache")


def make_execution(
    text: str = "", outcome: str = "useful", blame: str | None = None
) -> CallExecution:
    output = ("", "ok", None, None, "", text, None, len(text), 0.1, "before", "after")
    return CallExecution(outcome, blame, *output)


def test_each_tool_has_tasks_that_one_call_carries_out_the_same_every_time(tmp_path):
    two = '[[tasks]]\nname = "both"\nrequests = ["Both."]\nanswer = ["first"]\n'
    calls = 'calls = [{ tool = "read_file" }, { tool = "write_file" }]\n\n[[faults]]'
    tasks = make_tasks(tmp_path, SMALL.replace("[[faults]]", two + calls, 1))
    result = tasks.draw_tasks(SERVER, TOOLS)
    assert [item.origin.task for item in result[:3]] == ["write", "read", "write"]
    assert len({item.request for item in result}) == len(result)
    assert result[1].arguments == {"path": f"{DATA}/a.txt"}
    assert {item.origin.seed for item in result} == {7}
    assert tasks.draw_tasks(SERVER, TOOLS) == result
    assert {task.tool for task in tasks.draw_tasks(SERVER, ["read_file"])} == {"read_file"}
    assert list((tmp_path / "cache").iterdir()) == []


def test_two_servers_of_the_same_tools_begin_with_tasks_of_their_own(tmp_path):
    tasks = make_tasks(tmp_path, SMALL.replace("[[tasks]]", TWIN, 1))
    assert tasks.digest_tasks("npm:others", TOOLS) == {}
    assert tasks.draw_tasks(SERVER, TOOLS)[0] != tasks.draw_tasks("npm:twin", TOOLS)[0]


def test_whatever_decides_a_tools_tasks_is_in_its_digest(tmp_path):
    def digests(text: str = SMALL, seed: int = 7):
        return make_tasks(tmp_path, text, seed).digest_tasks(SERVER, TOOLS)

    first = digests()
    assert first.keys() == {"read_file", "write_file"}
    assert digests() == first
    other = digests(SMALL.replace('answer = ["{file.value}"]', 'answer = ["{file.name}"]'))
    assert other["read_file"] != first["read_file"]
    assert other["write_file"] == first["write_file"]
    assert digests(seed=8)["write_file"] != first["write_file"]


def test_a_world_that_cannot_be_opened_says_so_when_tasks_are_drawn(tmp_path):
    tasks = make_tasks(tmp_path, SMALL.replace('key = "*.txt"', 'key = "*.pdf"'))
    assert tasks.digest_tasks(SERVER, TOOLS)
    with pytest.raises(WorldUnavailable, match=r"task 'read'.*no fact matches '\*\.pdf'"):
        tasks.draw_tasks(SERVER, TOOLS)


@pytest.fixture
def opened(tmp_path):
    with open_world(make_tasks(tmp_path).worlds[0], 7, tmp_path / "place") as world:
        yield world


async def prove(opened, name: str, after: dict[str, Any], text: str, *, deaf: bool = False):
    """The proof of a call that left these facts and this answer; a wrong call does what its
    arguments say, a deaf one the same again."""
    task = next(task for task in opened.tasks(7, 8) if task.name == name)
    origin = TaskOrigin(task.world, task.seed, task.name, task.id)
    result = find_task(opened, origin)
    assert result == task
    contract = {"name": "x", "inputSchema": PATH}
    call = ToolCall(SERVER, "x", contract, contract_digest(contract), task.calls[0].arguments)
    first = opened.read_first_facts()
    expected = {**task.expected} if after.pop("right", False) else {**first, **after}

    async def run_perturbed(arguments):
        if deaf:
            return WatchedCall(make_execution(text), expected)
        return WatchedCall(make_execution("other"), {**first, str(arguments): "made"})

    output = " ".join([text, *task.answer]) if text == "it says" else text
    watched = WatchedCall(make_execution(output), expected)
    return await prove_task(call, result, first, watched, run_perturbed)


async def test_a_call_that_ends_as_asked_where_no_wrong_one_does_is_proved(opened):
    assert (await prove(opened, "write", {"right": True}, "written")).verdict == "proved"
    assert (await prove(opened, "read", {}, "it says")).verdict == "proved"


async def test_a_call_that_changes_or_answers_something_else_is_refuted(opened):
    assert (await prove(opened, "write", {"other.txt": "x"}, "written")).verdict == "refuted"
    assert (await prove(opened, "read", {"other.txt": "x"}, "it says")).verdict == "refuted"
    result = await prove(opened, "read", {}, "nothing")
    assert result.why == "read: the end state or answer is not the one asked for"


async def test_a_check_that_a_wrong_call_passes_proves_nothing(opened):
    result = await prove(opened, "write", {"right": True}, "written", deaf=True)
    assert (result.verdict, result.why) == ("unproved", "write: a wrong call passes its check too")


FILES = {"a.txt": "first", "b.txt": "second"}


async def observe(arguments: dict[str, Any], answer, *, stable: bool = True, schema=None):
    """The proof of an explored call. answer: arguments -> (outcome or None, text, facts after)."""
    properties = schema or {key: {} for key in arguments}
    contract = {"name": "x", "inputSchema": {"type": "object", "properties": properties}}
    call = ToolCall(SERVER, "x", contract, contract_digest(contract), arguments)
    tried: list[dict[str, Any]] = []

    async def run(asked):
        outcome, text, after = answer(asked)
        states = {"before": "first", "after": "first" if after == FILES else "other"}
        states["status"] = "ok" if outcome else "failed"
        done = replace(make_execution(text, outcome), **states)
        return WatchedCall(replace(done, repeated=done.answer if stable else "another"), after)

    async def run_perturbed(asked):
        tried.append(dict(asked))
        return await run(asked)

    return await prove_observed(call, FILES, await run(arguments), run_perturbed), tried


def read_file(asked):
    name = asked["path"].rpartition("/")[2]
    return ("useful", FILES[name], FILES) if name in FILES else ("tool_error", "no file", FILES)


async def test_an_explored_call_is_proved_where_each_other_value_changes_its_outcome():
    path = f"{DATA}/a.txt"
    result, tried = await observe({"path": path, "limit": 10, "whole": True}, read_file)
    assert (result.verdict, result.why) == ("proved", "other values change the outcome: path")
    assert [asked["path"] for asked in tried] == [f"{DATA}/b.txt", path]

    def write(asked):
        return "useful", "written", FILES | {asked["name"]: "x"}

    assert (await observe({"name": "new.txt"}, write))[0].verdict == "proved"


@pytest.mark.parametrize(
    ("arguments", "facts", "why"),
    [
        ({}, {}, "no value of it names anything"),
        ({"limit": 3, "deep": True}, {}, "no value of it names anything"),
        ({"mode": "all"}, {"schema": {"mode": {"enum": ["all"]}}}, "no value"),
        ({"note": "a"}, {}, "another note gives the same outcome"),
        ({"items": [{"id": 7}]}, {}, "another id gives the same outcome"),  # repeats its input
        ({"path": f"{DATA}/a.txt", "note": "a"}, {}, "another note gives the same outcome"),
        ({"path": f"{DATA}/a.txt"}, {"stable": False}, "another path gives the same outcome"),
    ],
)
async def test_an_explored_call_that_another_value_leaves_as_is_is_unproved(arguments, facts, why):
    def answer(asked):
        return read_file(asked) if "path" in asked else ("useful", f"{asked}", FILES)

    result, _ = await observe(arguments, answer, **facts)
    assert result.verdict == "unproved"
    assert why in result.why


@pytest.mark.parametrize("value", ["a", "8", 'the "a"\n', "ä", "x"])
@pytest.mark.parametrize("write", [str, json.dumps, repr, "{} of 18 axes".format])
async def test_an_answer_that_repeats_its_input_proves_nothing(value, write):
    def echo(asked):
        return "useful", f"a banana, 18: {write(asked['q'])}", FILES

    result, _ = await observe({"q": value}, echo)
    assert result.why == "another q gives the same outcome"


@pytest.mark.parametrize("kind", ["clock in a file", "limit", "order"])
async def test_a_call_that_differs_by_itself_later_proves_nothing(kind):
    times = count()

    def answer(asked):
        at = next(times)
        if kind == "limit":
            return ("tool_error", "too many requests", FILES) if at else ("useful", "done", FILES)
        order = kind == "order"
        return ("useful", f"{at}", FILES) if order else ("useful", "", FILES | {"log": f"{at}"})

    result, _ = await observe({"q": "a"}, answer)
    assert result.verdict == "unproved"


async def test_a_call_that_fails_now_or_whose_contrast_is_not_answered_proves_nothing():
    def answer(asked):
        return read_file(asked) if asked["path"].endswith("a.txt") else (None, "", FILES)

    result, _ = await observe({"path": f"{DATA}/a.txt"}, answer)
    assert (result.verdict, result.why) == ("unproved", "a call with another path was not answered")
    result, tried = await observe({"path": "gone.txt"}, read_file)
    assert (result.verdict, tried) == ("unproved", [])


def test_a_task_that_its_world_holds_no_more_is_not_found(opened):
    assert find_task(opened, TaskOrigin("small", 7, "write", "0" * 16)) is None
    assert find_task(opened, TaskOrigin("small", 7, "no-such", "0" * 16)) is None
