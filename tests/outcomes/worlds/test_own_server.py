"""A server of one's own in a world: checked, played and executed once it is trusted."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from assets.contracts.canonical import contract_digest
from assets.outcomes.adhoc import execute_tool
from assets.outcomes.execution import ToolCall
from assets.outcomes.plan import ExecutionSetup
from assets.outcomes.policy import ExecutionPolicy
from assets.outcomes.select import LaunchableServer
from assets.outcomes.trajectory_play import TrajectoryCollection, collect_trajectories
from assets.outcomes.worlds.check import prove_tasks
from assets.outcomes.worlds.spec import WorldSpec, load_world
from assets.servers.adhoc import plan_local_server
from assets.servers.deploy.grants import ServerGrant
from assets.servers.deploy.policy import DeployPolicy, digest_confirmed
from assets.servers.recipes.recipe import LaunchRecipe, dump_recipe
from orchestration.cli.app import app
from tests.outcomes.worlds.files import SMALL, write_world
from tests.serving.calling import PATIENT
from tests.support.local_servers import write_file, write_server
from tests.support.untrusted_server import POLICY, require_sandbox
from tests.synthesis.contracts import TEXT, make_tool
from warehouse.progress import SilentProgress
from warehouse.store import Warehouse

OWN = "private:mcp.json#own"
CONTRACTS = {
    name: make_tool(name, f"Does {name}.", dict.fromkeys(properties, TEXT), *properties)
    for name, properties in {"write_file": ("path", "content"), "read_file": ("path",)}.items()
}
# It works in the folder that it is told of by its argument, and in no other.
SOURCE = f"""
ROOT, TOOLS = sys.argv[1], {list(CONTRACTS.values())!r}

def do(m, _):
    given = m["params"]["arguments"]
    path = given["path"]
    if not os.path.realpath(path).startswith(ROOT + "/"):
        return say(m, "path is outside " + ROOT, isError=True)
    try:
        if m["params"]["name"] == "write_file":
            open(path, "w").write(given["content"])
            say(m, "written")
        else:
            say(m, open(path).read())
    except OSError as error:
        say(m, "ENOENT: no such file or directory: " + path, isError=True)

calls(do, TOOLS)
"""


@pytest.fixture
def world(tmp_path: Path) -> WorldSpec:
    text = SMALL.replace("npm:files", OWN).replace('["{root}"]', '["server.py", "{root}"]')
    return load_world(write_world(tmp_path / "worlds", text))


@pytest.fixture
def policy(tmp_path: Path) -> DeployPolicy:
    """A policy that lists a server of one's own and does not trust it."""
    require_sandbox()
    folder = write_server(tmp_path / "own", SOURCE)
    list_server(folder, "server.py", "/nowhere")
    listing = (tmp_path / "mcp.json",)
    return DeployPolicy(tmp_path / "home", POLICY, PATIENT, twice=False, listed=listing)


def list_server(folder: Path, *args: str) -> None:
    entry = {"command": "python", "args": list(args), "cwd": str(folder)}
    write_file(folder.parent / "mcp.json", own=entry)


def plan(policy: DeployPolicy) -> LaunchRecipe:
    recipe = plan_local_server(OWN, policy)
    assert isinstance(recipe, LaunchRecipe)
    return recipe


def trust(policy: DeployPolicy) -> DeployPolicy:
    return replace(policy, confirmed={OWN: (digest_confirmed(plan(policy)),)})


def check(world: WorldSpec, policy: DeployPolicy, warehouse: Warehouse) -> dict[str, Any]:
    built = prove_tasks(world, world.servers[0], policy, warehouse.ledger, "worlds")
    return asyncio.run(built)


def test_a_trusted_one_does_its_worlds_tasks_and_wrong_calls_are_caught(world, policy, warehouse):
    row = check(world, trust(policy), warehouse)
    assert (row["server"], row["status"], row["why"], row["tools"]) == (OWN, "ok", None, 2)
    assert {item["task"]: item["status"] for item in row["tasks"]} == dict.fromkeys(
        ("write", "read"), "provable"
    )
    assert sum(item["caught"] for item in row["tasks"]) >= 2


def test_its_trajectories_are_kept_with_its_own_words_on_a_wrong_argument(world, policy, warehouse):
    collection = TrajectoryCollection()
    played = collect_trajectories(
        collection, [world], trust(policy), warehouse.ledger, "worlds", SilentProgress()
    )
    asyncio.run(played)
    figures = collection.get_figures()
    assert (figures["problems"], figures["dropped"]) == ([], {})
    assert figures["recoveries"] >= 1
    assert {step.server_id for item in collection.made for step in item.steps} == {OWN}
    assert any("ENOENT" in item.steps[0].answer for item in collection.made)


def test_one_that_is_not_trusted_is_not_launched_and_the_fix_is_told(world, policy, warehouse):
    row = check(world, policy, warehouse)
    assert (row["status"], row["tasks"]) == ("unavailable", [])
    assert "not trusted yet" in row["why"]
    assert f"toolmill trust '{OWN}'" in row["why"]
    trusting = trust(policy)
    # With a network the arguments of a world file are not trusted by themselves.
    networked = check(world, replace(trusting, sandbox=replace(POLICY, network="full")), warehouse)
    list_server(policy.listed[0].parent / "own", "server.py", "/elsewhere")
    for row in (networked, check(world, trusting, warehouse)):
        assert row["status"] == "unavailable"
        assert "is another one than you trusted" in row["why"]


def test_a_name_that_no_file_has_and_a_server_of_another_kind_are_told(policy, world, warehouse):
    setting = "(`marketplaces.private.paths`)"
    for name, why in {
        "private:mcp.json#gone": f"no command of your own files {setting}: {OWN}",
        "oci:docker.io/library/own": "only packages of npm and PyPI and commands of your own files",
    }.items():
        fit = world.servers[0].model_copy(update={"id": name})
        row = check(world.model_copy(update={"servers": (fit,)}), policy, warehouse)
        assert row["status"] == "unavailable"
        assert why in row["why"]


def test_a_call_is_executed_with_the_arguments_that_its_world_gives_the_server(world, policy):
    executor = ExecutionSetup(trust(policy), ExecutionPolicy(), (world,))
    recipe, contract = plan(policy), CONTRACTS["write_file"]
    inputs = {"path": "/home/user/data/new.txt", "content": "there"}
    call = ToolCall(OWN, "write_file", contract, contract_digest(contract), inputs)
    server = LaunchableServer(OWN, dump_recipe(recipe), recipe.digest)
    built = asyncio.run(execute_tool(call, server, world, executor))
    assert (built["outcome"], built["changed"]) == ("useful", ["new.txt"]), json.dumps(built)
    granted = {OWN: ServerGrant(network="full")}
    executor = replace(executor, policy=replace(executor.policy, grants=granted))
    built = asyncio.run(execute_tool(call, server, world, executor))
    assert built["error_kind"] == "needs_confirmation"


def test_the_commands_check_and_play_it_as_the_settings_list_it(world, tmp_path, monkeypatch):
    require_sandbox()
    list_server(write_server(tmp_path / "own", SOURCE), "server.py", "/nowhere")
    (tmp_path / "toolmill.toml").write_text(
        'home = "var"\n[marketplaces.private]\npaths = ["mcp.json"]\n'
        f'[worlds]\npaths = ["{world.path.parent}"]\n'
    )
    monkeypatch.chdir(tmp_path)

    def toolmill(*arguments: str) -> tuple[int, dict[str, Any]]:
        done = CliRunner().invoke(app, list(arguments))
        return done.exit_code, json.loads(done.stdout)

    code, output = toolmill("worlds", "small", "--check", "--json")
    [row] = output["worlds"][0]["servers"]
    assert (code, row["status"]) == (0, "unavailable")
    assert toolmill("worlds", "small", "--play")[0] == 1
    assert toolmill("trust", "own", "--yes", "--json")[0] == 0
    code, output = toolmill("worlds", "small", "--check", "--json")
    [row] = output["worlds"][0]["servers"]
    assert (code, row["status"], len(row["tasks"])) == (0, "ok", 2), row
    code, output = toolmill("worlds", "small", "--play", "--server", OWN)
    assert (code, output["problems"], output["kept"]) == (0, [], output["played"]), output
