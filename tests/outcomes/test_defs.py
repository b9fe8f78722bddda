"""Tasks of worlds as pairs, and the asset `executions` over tables as a run leaves them, with a
server in the real sandbox."""

import json
from dataclasses import replace
from itertools import count
from typing import Any

import dagster as dg
import pytest

from assets.contracts.canonical import contract_digest
from assets.contracts.quarantined_tools import CLEAR
from assets.outcomes.defs import check_secrets, check_servers, executions
from assets.outcomes.execution import CallExecution, ToolCall, WatchedCall
from assets.outcomes.plan import ExecutionSetup
from assets.outcomes.policy import ExecutionPolicy
from assets.outcomes.proof import WorldTasks, find_task, prove_observed, prove_task
from assets.outcomes.table import EXECUTIONS, group_by_pair
from assets.outcomes.worlds.session import open_world
from assets.outcomes.worlds.spec import load_world
from assets.servers.deploy.deployment_table import DEPLOYMENTS
from assets.servers.deploy.policy import DeployPolicy
from assets.servers.recipes.placeholders import DATA
from assets.servers.recipes.recipe import LaunchRecipe, dump_recipe
from assets.synthesis.tables import (
    JUDGEMENTS,
    PAIRS,
    GoldenCall,
    TaskOrigin,
    WorldTask,
    WorldUnavailable,
    make_single_row,
)
from assets.synthesis.writing.writer import PairWriter
from tests.outcomes.running import READS, TOOLS
from tests.outcomes.worlds.files import SMALL, write_world
from tests.serving.calling import PATIENT, Bench
from tests.support.cases import cases
from tests.support.untrusted_server import POLICY
from warehouse.llm.client import Role
from warehouse.storage.tables import TableSpec
from warehouse.store import Warehouse

MARKET = "registry"
SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
NOTE = {"name": "write_note", "description": "Writes a note.", "inputSchema": SCHEMA}
LOOK = {"name": "find_note", "inputSchema": SCHEMA, "annotations": READS}
SOURCE = """
def do(m, _):
    name = m["params"]["arguments"]["name"]
    if m["params"]["name"] == "find_note":
        say(m, f"{name} not found", isError=True)
    else:
        open(os.path.join(DATA, name + ".txt"), "w").write(name)
        say(m, "written")
calls(do, TOOLS)
"""
NOTES = """
name = "notes"
kind = "folder"
about = "A folder for notes."
files = "seed"

[[servers]]
id = "npm:x"
tools = ["write_note"]

[[tasks]]
name = "note"
requests = ["Write a note called {word}"]
draw.word = { words = "cities" }
calls = [{ tool = "write_note", arguments = { name = "{word}" } }]
changes = [{ add = "{word}.txt", to = "{word}" }]
"""


class Market:
    """A marketplace of one server whose pairs were judged."""

    generator = Role("generator")  # offline

    def __init__(self, bench: Bench, source: str = SOURCE, tools: Any = (NOTE, LOOK)) -> None:
        self.warehouse = Warehouse(home=bench.folder / "home", state=bench.folder / "state")
        self.recipe = bench.recipe(TOOLS.format(tools=list(tools)) + source)
        policy = DeployPolicy(bench.folder, POLICY, PATIENT)
        self.executor = ExecutionSetup(policy, ExecutionPolicy())
        self.publish(DEPLOYMENTS, [make_deployment(self.recipe)])
        self.publish(CLEAR, [make_clear(item) for item in tools])

    def publish(self, spec: TableSpec, rows: list[dict[str, Any]]) -> None:
        tables = self.warehouse.tables
        tables.promote(tables.stage(spec, spec.frame(rows), MARKET), "test", [])

    def accept(self, *pairs: dict[str, Any]) -> None:
        self.publish(PAIRS, list(pairs))
        names = [{"pair_id": pair["pair_id"], "verdict": "accept"} for pair in pairs]
        self.publish(JUDGEMENTS, names)

    def run(self, asset: Any = executions, **settings: Any) -> dict[str, Any]:
        chosen = replace(self.executor, settings=replace(self.executor.settings, **settings))
        writer = PairWriter((self.generator,))
        inputs = {"warehouse": self.warehouse, "executor": chosen, "writer": writer}
        stored = {k: dg.ResourceDefinition.hardcoded_resource(v) for k, v in inputs.items()}
        how = {"partition_key": MARKET, "raise_on_error": False}
        result = dg.materialize([asset], resources=stored, **how)
        events = result.get_asset_materialization_events()
        if not events:
            return {}
        return {k: v.value for k, v in events[0].materialization.metadata.items()}

    def read_rows(self) -> dict[str, dict[str, Any]]:
        rows = self.warehouse.tables.read(EXECUTIONS, MARKET).to_dicts()
        return {row["tool"]: row for row in rows}

    @property
    def version(self) -> str:
        head = self.warehouse.tables.head(EXECUTIONS.name, MARKET)
        assert head
        return head.digest


def make_deployment(recipe: LaunchRecipe) -> dict[str, Any]:
    about = {"server_id": recipe.server_id, "ecosystem": recipe.ecosystem, "status": "ok"}
    return about | {"recipe": json.dumps(dump_recipe(recipe)), "recipe_digest": recipe.digest}


def make_clear(contract: dict[str, Any]) -> dict[str, Any]:
    names = {"server_id": "npm:x", "tool": contract["name"]}
    return names | {"contract_digest": contract_digest(contract), "contract": json.dumps(contract)}


def make_pair(contract: dict[str, Any], name: str, **columns: Any) -> dict[str, Any]:
    golden_call = GoldenCall("npm:x", contract["name"], contract_digest(contract), {"name": name})
    row = make_single_row(golden_call, f"Write a note called {name}", [])
    return {**row, "pair_id": f"p1:{contract['name']}-{name}", **columns}


def make_task_pair(task: WorldTask) -> dict[str, Any]:
    facts = {"instruction": task.request, "world_task": json.dumps(vars(task.origin))}
    return make_pair(NOTE, task.arguments["name"], pair_id="p1:task", **facts)


@pytest.fixture
def market(tmp_path, monkeypatch) -> Market:
    return Market(Bench(tmp_path, monkeypatch))


def test_accepted_calls_are_executed_and_a_second_run_does_nothing(market):
    market.accept(make_pair(NOTE, "budget"), make_pair(LOOK, "budget"))
    output = market.run()
    rows = market.read_rows()
    note, look = rows["write_note"], rows["find_note"]
    assert (note["outcome"], note["proof"], note["world"]) == ("useful", "unproved", "plain-folder")
    assert (look["outcome"], look["blame"], look["proof"]) == ("tool_error", "caller", "refuted")
    assert (output["executed"], output["proved"], output["new"]) == (2, 0, 2)
    assert "| write_note | 1 | 1.00" in output["shares"]
    tried = group_by_pair(rows.values())
    assert tried["p1:write_note-budget"].useful
    assert tried["p1:find_note-budget"].invalid
    version, counted = market.version, market.warehouse.ledger.counts()
    again = market.run()
    assert (again["version_moved"], again["unchanged"]) == (False, 2)
    assert (market.version, market.warehouse.ledger.counts()) == (version, counted)


def test_what_is_due_again_stays_until_its_turn_and_a_pair_that_is_gone_takes_its_row(market):
    note = make_pair(NOTE, "budget")
    market.accept(note, make_pair(LOOK, "budget"))
    market.run()
    market.accept(note)
    output = market.run()
    assert (output["gone"], output["unchanged"]) == (1, 1)
    before = market.read_rows()
    assert list(before) == ["write_note"]
    output = market.run(prove=False, seconds=0.0)
    assert (output["left_for_the_next_run"], market.read_rows()) == (1, before)
    assert market.run(prove=False)["stale"] == 1
    assert market.read_rows()["write_note"]["proof"] is None


def test_a_task_of_a_world_is_executed_there_and_proved_by_its_own_check(market, tmp_path):
    world = load_world(write_world(tmp_path / "files", NOTES))
    market.executor = replace(market.executor, worlds=(world,))
    drawn = WorldTasks((world,), 3, tmp_path / "cache").draw_tasks("npm:x", ["write_note"])
    right, wrong, *_ = [make_task_pair(item) for item in drawn]
    wrong["world_task"] = right["world_task"]  # its call writes another note than is asked for
    market.accept(right, {**wrong, "pair_id": "p1:wrong"}, make_pair(NOTE, "budget"))
    output = market.run()
    rows = market.warehouse.tables.read(EXECUTIONS, MARKET).to_dicts()
    result = {row["pair_ids"]: (row["world"], row["seed"], row["proof"]) for row in rows}
    assert result == {
        '["p1:task"]': ("notes", 3, "proved"),
        '["p1:wrong"]': ("notes", 3, "refuted"),
        '["p1:write_note-budget"]': ("notes", 7, "unproved"),
    }
    assert (output["executed"], market.run()["unchanged"]) == (3, 3)


def test_nothing_runs_where_the_settings_say_so(market):
    market.accept(make_pair(NOTE, "budget"), make_pair(LOOK, "budget"))
    assert market.run(enabled=False)["executed"] == 0
    assert market.warehouse.ledger.counts() == {}
    market.run(writes=False)
    assert list(market.read_rows()) == ["find_note"]  # it alone only reads


def row(n: int, **facts: Any) -> dict[str, Any]:
    names = {"execution_id": f"e1:{n}", "server_id": f"npm:{n}", "changed": "[]"}
    return {**dict.fromkeys(EXECUTIONS.columns), **names, "outcome": "useful", **facts}


def test_the_audit_stops_a_run_in_which_servers_that_worked_did_not_start_or_were_not_useful():
    def judge(rows: list[dict[str, Any]], before: int = 0) -> list[str]:
        fresh = {item["execution_id"] for item in rows}
        verdicts = check_servers(rows, [row(n) for n in range(before)], fresh)
        return ["ok" if v.passed else "warning" if v.warns else "refused" for v in verdicts]

    def fail(count: int, blame: str, outcome: str = "tool_error", **facts: Any) -> list[Any]:
        return [row(n, outcome=outcome, blame=blame, **facts) for n in range(count)]

    down = fail(5, "us", "refused", error_kind="fetch_failed")
    assert judge([row(9), row(10)]) == ["ok", "ok"]
    assert judge([*down, row(9)]) == ["warning", "ok"]
    assert judge([*down, row(9)], before=5) == ["warning", "ok"]  # one starts: not our fault
    assert judge(down, before=5) == ["refused", "ok"]
    secret = fail(9, "credentials", "refused")
    assert judge([*secret, row(9)], before=9) == ["ok", "ok"]  # nobody gave them their keys
    failed = fail(60, "tool")
    assert judge(failed) == ["ok", "warning"]
    assert judge(failed, before=60) == ["ok", "refused"]
    assert judge([*failed, row(61), row(62)], before=60) == ["ok", "warning"]
    assert judge(failed[:4]) == ["ok", "ok"]
    assert judge(fail(60, "policy"), before=60) == ["ok", "ok"]
    # Calls of one server, however many, are its own.
    flood = fail(600, "tool", server_id="npm:0")
    assert judge([*flood, row(1), row(2)], before=3) == ["ok", "ok"]


def test_the_audit_finds_a_secret_in_what_a_server_said():
    assert check_secrets([row(1, evidence="no such file")]).passed
    assert not check_secrets([row(1), row(2, hint="sent with ghp_" + "a1B2c3D4e5F6" * 3)]).passed


SERVER, FILE_TOOLS = "npm:files", ("read_file", "write_file", "delete_file")
PATH = {"type": "object", "properties": {"path": {"type": "string"}, "content": {}}}
TWIN = '[[servers]]\nid = "npm:twin"\ntools = ["write_file", "read_file"]\n\n[[tasks]]'


def make_tasks(folder, text: str = SMALL, seed: int = 7) -> WorldTasks:
    world = load_world(write_world(folder / "files", text))
    return WorldTasks((world,), seed, folder / "cache")


def make_execution(text: str = "", outcome: str = "useful") -> CallExecution:
    output = ("", "ok", None, None, "", text, None, len(text), 0.1, "before", "after")
    return CallExecution(outcome, None, *output)


def test_each_tool_has_tasks_that_one_call_carries_out_the_same_every_time(tmp_path):
    two = '[[tasks]]\nname = "both"\nrequests = ["Both."]\nanswer = ["first"]\n'
    calls = 'calls = [{ tool = "read_file" }, { tool = "write_file" }]\n\n[[faults]]'
    tasks = make_tasks(tmp_path, SMALL.replace("[[faults]]", two + calls, 1))
    result = tasks.draw_tasks(SERVER, FILE_TOOLS)
    assert [item.origin.task for item in result[:3]] == ["write", "read", "write"]
    assert len({item.request for item in result}) == len(result)
    assert result[1].arguments == {"path": f"{DATA}/a.txt"}
    assert {item.origin.seed for item in result} == {7}
    assert tasks.draw_tasks(SERVER, FILE_TOOLS) == result
    assert {task.tool for task in tasks.draw_tasks(SERVER, ["read_file"])} == {"read_file"}
    assert list((tmp_path / "cache").iterdir()) == []


def test_servers_of_the_same_tools_have_own_tasks_with_all_that_decides_in_their_digest(tmp_path):
    tasks = make_tasks(tmp_path, SMALL.replace("[[tasks]]", TWIN, 1))
    assert tasks.digest_tasks("npm:others", FILE_TOOLS) == {}
    assert tasks.draw_tasks(SERVER, FILE_TOOLS)[0] != tasks.draw_tasks("npm:twin", FILE_TOOLS)[0]
    tasks = make_tasks(tmp_path, SMALL.replace('key = "*.txt"', 'key = "*.pdf"'))
    assert tasks.digest_tasks(SERVER, FILE_TOOLS)
    with pytest.raises(WorldUnavailable, match=r"task 'read'.*no fact matches '\*\.pdf'"):
        tasks.draw_tasks(SERVER, FILE_TOOLS)

    def digests(text: str = SMALL, seed: int = 7):
        return make_tasks(tmp_path, text, seed).digest_tasks(SERVER, FILE_TOOLS)

    first = digests()
    assert first.keys() == {"read_file", "write_file"}
    assert digests() == first
    other = digests(SMALL.replace('answer = ["{file.value}"]', 'answer = ["{file.name}"]'))
    assert other["read_file"] != first["read_file"]
    assert other["write_file"] == first["write_file"]
    assert digests(seed=8)["write_file"] != first["write_file"]


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


@cases(
    "name, after, text, deaf, verdict, why",
    ("write", {"right": True}, "written", False, "proved", None),
    ("read", {}, "it says", False, "proved", None),
    ("write", {"other.txt": "x"}, "written", False, "refuted", None),
    ("read", {"other.txt": "x"}, "it says", False, "refuted", None),
    ("read", {}, "nothing", False, "refuted", "the end state or answer is not the one asked for"),
    ("write", {"right": True}, "written", True, "unproved", "a wrong call passes its check too"),
)
async def test_a_call_that_ends_as_asked_where_no_wrong_one_does_is_proved(
    opened, name, after, text, deaf, verdict, why
):
    result = await prove(opened, name, {**after}, text, deaf=deaf)
    assert result.verdict == verdict
    assert why is None or result.why == f"{name}: {why}"


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


@cases(
    "arguments, facts, why",
    ({}, {}, "no value of it names anything"),
    ({"limit": 3, "deep": True}, {}, "no value of it names anything"),
    ({"mode": "all"}, {"schema": {"mode": {"enum": ["all"]}}}, "no value"),
    ({"note": "a"}, {}, "another note gives the same outcome"),
    ({"items": [{"id": 7}]}, {}, "another id gives the same outcome"),  # repeats its input
    ({"path": f"{DATA}/a.txt", "note": "a"}, {}, "another note gives the same outcome"),
    ({"path": f"{DATA}/a.txt"}, {"stable": False}, "another path gives the same outcome"),
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
