"""The asset `executions` over tables as a run leaves them, with a server in the real sandbox."""

import json
from dataclasses import replace
from typing import Any

import dagster as dg
import pytest

from assets.contracts.canonical import contract_digest
from assets.contracts.quarantined_tools import CLEAR
from assets.outcomes.defs import check_secrets, check_servers, executions
from assets.outcomes.plan import ExecutionSetup
from assets.outcomes.policy import ExecutionPolicy
from assets.outcomes.proof import WorldTasks
from assets.outcomes.table import EXECUTIONS, group_by_pair
from assets.outcomes.worlds.spec import load_world
from assets.servers.deploy.deployment_table import DEPLOYMENTS
from assets.servers.deploy.policy import DeployPolicy
from assets.servers.recipes.recipe import LaunchRecipe, dump_recipe
from assets.synthesis.tables import JUDGEMENTS, PAIRS, GoldenCall, WorldTask, make_single_row
from assets.synthesis.writing.writer import PairWriter
from tests.outcomes.running import READS, TOOLS
from tests.outcomes.worlds.files import write_world
from tests.serving.calling import PATIENT, Bench
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
        result = dg.materialize(
            [asset], resources=stored, partition_key=MARKET, raise_on_error=False
        )
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
    return {
        "server_id": recipe.server_id,
        "ecosystem": recipe.ecosystem,
        "status": "ok",
        "recipe": json.dumps(dump_recipe(recipe)),
        "recipe_digest": recipe.digest,
    }


def make_clear(contract: dict[str, Any]) -> dict[str, Any]:
    return {
        "server_id": "npm:x",
        "tool": contract["name"],
        "contract_digest": contract_digest(contract),
        "contract": json.dumps(contract),
    }


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


def test_a_pair_that_is_no_longer_accepted_takes_its_row_along(market):
    market.accept(make_pair(NOTE, "budget"), make_pair(LOOK, "budget"))
    market.run()
    market.accept(make_pair(NOTE, "budget"))
    output = market.run()
    assert (output["gone"], output["unchanged"]) == (1, 1)
    assert list(market.read_rows()) == ["write_note"]


def test_what_is_due_again_stays_as_it_was_until_its_turn_comes(market):
    market.accept(make_pair(NOTE, "budget"))
    market.run()
    before = market.read_rows()
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
    empty = dict.fromkeys(EXECUTIONS.columns)
    names = {"execution_id": f"e1:{n}", "server_id": f"npm:{n}", "changed": "[]"}
    return {**empty, **names, "outcome": "useful", **facts}


def test_the_audit_stops_a_run_in_which_servers_that_worked_did_not_start_or_were_not_useful():
    def judge(rows: list[dict[str, Any]], before: int = 0) -> list[str]:
        fresh = {item["execution_id"] for item in rows}
        previous = [row(n) for n in range(before)]
        return [
            "ok" if verdict.passed else "warning" if verdict.warns else "refused"
            for verdict in check_servers(rows, previous, fresh)
        ]

    down = [row(n, outcome="refused", blame="us", error_kind="fetch_failed") for n in range(5)]
    assert judge([row(9), row(10)]) == ["ok", "ok"]
    assert judge([*down, row(9)]) == ["warning", "ok"]
    assert judge([*down, row(9)], before=5) == ["warning", "ok"]  # one starts: not our fault
    assert judge(down, before=5) == ["refused", "ok"]
    secret = [row(n, outcome="refused", blame="credentials") for n in range(9)]
    assert judge([*secret, row(9)], before=9) == ["ok", "ok"]  # nobody gave them their keys
    failed = [row(n, outcome="tool_error", blame="tool") for n in range(60)]
    assert judge(failed) == ["ok", "warning"]
    assert judge(failed, before=60) == ["ok", "refused"]
    assert judge([*failed, row(61), row(62)], before=60) == ["ok", "warning"]
    assert judge(failed[:4]) == ["ok", "ok"]
    policy = [row(n, outcome="tool_error", blame="policy") for n in range(60)]
    assert judge(policy, before=60) == ["ok", "ok"]
    # Calls of one server, however many, are its own.
    flood = [row(n, outcome="tool_error", blame="tool", server_id="npm:0") for n in range(600)]
    assert judge([*flood, row(1), row(2)], before=3) == ["ok", "ok"]


def test_the_audit_finds_a_secret_in_what_a_server_said():
    assert check_secrets([row(1, evidence="no such file")]).passed
    assert not check_secrets([row(1), row(2, hint="sent with ghp_" + "a1B2c3D4e5F6" * 3)]).passed
