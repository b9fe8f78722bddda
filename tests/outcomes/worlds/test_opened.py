"""Open worlds have the same first state every time; reference calls of real servers pass; one's own
server in a world is checked, played and executed once it is trusted."""

import asyncio
import json
import multiprocessing
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from typer.testing import CliRunner

from assets.contracts.canonical import contract_digest
from assets.outcomes.adhoc import execute_tool
from assets.outcomes.execution import ToolCall
from assets.outcomes.plan import ExecutionSetup
from assets.outcomes.policy import ExecutionPolicy
from assets.outcomes.select import LaunchableServer
from assets.outcomes.trajectory_play import TrajectoryCollection, collect_trajectories
from assets.outcomes.worlds import kind, session
from assets.outcomes.worlds.catalogue import find_kind, find_world, list_worlds
from assets.outcomes.worlds.check import prove_tasks
from assets.outcomes.worlds.session import find_missing, open_world
from assets.outcomes.worlds.spec import WorldSpec, load_world
from assets.outcomes.worlds.tree import (
    PlaceUnusable,
    WorldFailed,
    WorldFileError,
    digest_tree,
    read_tree,
)
from assets.servers.adhoc import plan_local_server
from assets.servers.deploy.grants import ServerGrant
from assets.servers.deploy.policy import DeployPolicy, digest_confirmed
from assets.servers.recipes.placeholders import DATA
from assets.servers.recipes.recipe import LaunchRecipe, dump_recipe
from orchestration.cli.app import app
from tests.outcomes.worlds.files import SMALL, write_world
from tests.serving.calling import PATIENT
from tests.support.local_servers import write_file, write_server
from tests.support.untrusted_server import POLICY, require_sandbox
from tests.synthesis.contracts import TEXT, make_tool
from warehouse.progress import SilentProgress
from warehouse.store import Warehouse

SHIPPED = [item.world for item in list_worlds() if item.world]
# A database of its own is held to the same in kinds/test_postgres.py: it takes seconds to start.
HERE = [item for item in SHIPPED if not find_missing(item) and not find_kind(item.kind).open_state]


@pytest.fixture
def small(tmp_path):
    return load_world(write_world(tmp_path / "files"))


def damage(folder: Path) -> None:
    """What a careless server may do to a folder."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            path.write_bytes(b"changed")
    (folder / "added").mkdir()
    (folder / "added" / "file").write_text("new")


@pytest.mark.parametrize("world", HERE, ids=lambda entry: entry.name)
def test_a_reset_is_equal_to_the_byte_and_a_seed_decides_it(tmp_path, world):
    states = {}
    for place, seed in (("a", 1), ("b", 1), ("c", 2)):
        with open_world(world, seed, tmp_path / place) as opened:
            states[place] = (digest_tree(read_tree(opened.folder)), opened.digest_state())
            damage(opened.folder)
            opened.reset()
            again = (digest_tree(read_tree(opened.folder)), opened.digest_state())
            assert again == states[place]
    assert states["a"] == states["b"]
    assert states["a"][1] != states["c"][1]


@pytest.mark.parametrize("world", HERE, ids=lambda entry: entry.name)
def test_tasks_vary_by_seed_and_begin_unsolved(tmp_path, world):
    with open_world(world, 1, tmp_path) as opened:
        first, again, other = opened.tasks(1, 3), opened.tasks(1, 3), opened.tasks(2, 3)
        assert [item.id for item in first] == [item.id for item in again]
        assert len({item.id for item in (*first, *other)}) > len(first) * 1.3
        assert len({item.name for item in first}) == len(world.tasks)
        for task in first:
            assert task.servers
            assert not task.check(opened.read_facts()), task
            assert "{" not in task.request.replace("{}", "")


def test_nothing_outside_the_place_is_touched(tmp_path, small):
    (tmp_path / "host").mkdir()
    (tmp_path / "host" / "file").write_text("host")
    place = tmp_path / "place"

    def digest_host() -> str:
        tree = read_tree(tmp_path)
        return digest_tree({k: v for k, v in tree.items() if not k.startswith("place")})

    before = digest_host()
    with open_world(small, 1, place) as opened:
        (opened.folder / "escape").symlink_to(tmp_path / "host")
        (opened.folder / "a.txt").unlink()
        (opened.folder / "a.txt").symlink_to(tmp_path / "host" / "file")
        assert opened.digest_state()
        opened.reset()
        damage(opened.folder)
    with open_world(small, 2, place) as opened:
        first = opened.digest_state()
        opened.folder.joinpath(*"d" * 61).mkdir(parents=True)
        with pytest.raises(WorldFailed, match="more than 60 folders"):
            opened.digest_state()
        opened.reset()
        assert opened.digest_state() == first
    assert digest_host() == before


def test_a_check_wants_the_change_that_was_asked_for_and_no_other(tmp_path, small):
    with open_world(small, 1, tmp_path / "place") as opened:
        write, read = opened.tasks(1)
        word = write.calls[0].arguments["content"]
        target = opened.folder / "sub" / f"{word}.txt"
        target.write_text(word)
        assert write.check(opened.read_facts())
        (opened.folder / "a.txt").write_text("first, and more\n")
        assert not write.check(opened.read_facts())
        opened.reset()
        target.write_text(f"{word}x")
        assert not write.check(opened.read_facts())
        opened.reset()
        path = read.calls[0].arguments["path"].removeprefix(f"{DATA}/")
        text = (opened.folder / path).read_text()
        assert read.check(opened.read_facts(), ["it says:", text])
        assert not read.check(opened.read_facts(), ["nothing"])
        target.write_text("a side effect")
        assert not read.check(opened.read_facts(), [text])


def test_a_recipe_is_bound_to_the_world(tmp_path, small):
    facts = {"args": ("placeholder",), "env": (("KEY", "k"),)}
    facts["placeholders"] = ("arg:0", "env:WHERE", "env:KEY")
    recipe = LaunchRecipe(server_id="npm:files", ecosystem="npm", name="files", **facts)
    with open_world(small, 1, tmp_path / "place") as opened:
        bound = opened.bind_recipe(recipe)
        assert (bound.args, dict(bound.env)) == ((DATA,), {"KEY": "k", "WHERE": f"{DATA}/a.txt"})
        assert bound.placeholders == ("env:KEY",)
        (mount,) = opened.grant.folders
        assert (mount.host, mount.inside, mount.writable) == (opened.folder, DATA, True)
        with pytest.raises(WorldFileError, match="does not suit 'npm:other'; it suits npm:files"):
            opened.bind_recipe(recipe.model_copy(update={"server_id": "npm:other"}))


def test_a_reset_that_fails_is_one_error_and_the_world_is_unusable(tmp_path, small, monkeypatch):
    with (
        open_world(small, 1, tmp_path / "one") as broken,
        open_world(small, 1, tmp_path / "two") as whole,
    ):
        first = whole.digest_state()
        fail = Mock(side_effect=OSError(28, "No space left on device"))
        with monkeypatch.context() as patch:
            patch.setattr(kind.FolderState, "reset", fail)
            message = r"'small' in .*one/state cannot be reset: OSError"
            with pytest.raises(WorldFailed, match=message):
                broken.reset()
        for use in (broken.reset, broken.digest_state):
            with pytest.raises(WorldFailed, match="No space left"):
                use()
        whole.reset()
        assert whole.digest_state() == first
    with open_world(small, 1, tmp_path / "one") as again:
        assert again.digest_state() == first


def _die_in_reset(path: Path, place: Path) -> None:
    def write_half(folder: Path, tree: dict) -> None:
        (folder / "a.txt").write_text("fir")
        os.kill(os.getpid(), signal.SIGKILL)

    opened = open_world(load_world(path), 1, place)
    kind.write_tree = write_half
    opened.reset()


def test_a_world_whose_reset_was_killed_is_whole_when_it_is_opened_next(tmp_path):
    path, place = write_world(tmp_path), tmp_path / "place"
    with open_world(load_world(path), 1, place) as opened:
        first = opened.digest_state()
    process = multiprocessing.get_context("fork").Process(target=_die_in_reset, args=(path, place))
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    assert (place / "state" / "a.txt").read_text() == "fir"
    with open_world(load_world(path), 1, place) as opened:
        assert opened.digest_state() == first


def test_a_place_is_held_by_one_and_must_be_a_folder_of_a_world(tmp_path, small, monkeypatch):
    place, precious = tmp_path / "place", tmp_path / "other" / "state" / "ledger.db"
    with open_world(small, 1, place), pytest.raises(WorldFailed, match=r"open in .*place already"):
        open_world(small, 1, place)
    with open_world(small, 1, place) as again:
        assert again.digest_state()
    precious.parent.mkdir(parents=True)
    precious.write_text("precious")
    (tmp_path / "file").write_text("")
    for used, problem in {
        tmp_path / "file": "is a file, or below one",
        tmp_path / "file" / "place": "is a file, or below one",
        tmp_path / "other": "'state', which is no world's",
    }.items():
        with pytest.raises(PlaceUnusable, match=problem):
            open_world(small, 1, used)
    assert precious.read_text() == "precious"
    assert place.stat().st_mode & 0o777 == 0o700
    monkeypatch.setattr(session, "find_missing", lambda _: "needs `x`, which is not on PATH")
    with pytest.raises(WorldFailed, match="'small': needs `x`"):
        open_world(small, 1, place)


async def prove(world, fit, warehouse):
    require_sandbox()
    row = await prove_tasks(world, fit, DeployPolicy(warehouse.home), warehouse.ledger, "worlds")
    if "registries" in str(row["why"]) or "download failed" in str(row["why"]):
        pytest.skip("the package registries are out of reach")
    return row


@pytest.mark.registry
async def test_tasks_of_a_memory_are_provable_on_its_real_server(warehouse):
    world = find_world("team-memory")
    row = await prove(world, world.servers[0], warehouse)
    assert (row["status"], row["absent"]) == ("ok", [])
    assert {item["status"] for item in row["tasks"]} == {"provable"}
    assert sum(item["perturbed"] for item in row["tasks"]) > 15


SUITED = [(item.world, fit) for item in list_worlds() if item.world for fit in item.world.servers]


@pytest.mark.registry
@pytest.mark.slow
@pytest.mark.parametrize(("world", "fit"), SUITED)
async def test_every_shipped_task_holds_on_every_server_it_suits(warehouse, world, fit):
    row = await prove(world, fit, warehouse)
    if row["status"] == "unavailable":
        pytest.skip(row["why"])
    assert row["status"] == "ok", row
    assert {item["status"] for item in row["tasks"]} <= {"provable", "leaky"}


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
    return asyncio.run(prove_tasks(world, world.servers[0], policy, warehouse.ledger, "worlds"))


def test_a_trusted_one_does_its_worlds_tasks_and_keeps_its_words(world, policy, warehouse):
    row = check(world, trust(policy), warehouse)
    assert (row["server"], row["status"], row["why"], row["tools"]) == (OWN, "ok", None, 2)
    statuses = {item["task"]: item["status"] for item in row["tasks"]}
    assert statuses == {"write": "provable", "read": "provable"}
    assert sum(item["caught"] for item in row["tasks"]) >= 2
    collection = TrajectoryCollection()
    where = (trust(policy), warehouse.ledger, "worlds", SilentProgress())
    asyncio.run(collect_trajectories(collection, [world], *where))
    figures = collection.get_figures()
    assert (figures["problems"], figures["dropped"]) == ([], {})
    assert figures["recoveries"] >= 1
    assert {step.server_id for item in collection.made for step in item.steps} == {OWN}
    assert any("ENOENT" in item.steps[0].answer for item in collection.made)


def test_what_is_in_no_file_or_not_trusted_is_told_with_the_fix(policy, world, warehouse):
    setting = "(`marketplaces.private.paths`)"
    for name, why in {
        "private:mcp.json#gone": f"no command of your own files {setting}: {OWN}",
        "oci:docker.io/library/own": "only packages of npm and PyPI and commands of your own files",
    }.items():
        fit = world.servers[0].model_copy(update={"id": name})
        row = check(world.model_copy(update={"servers": (fit,)}), policy, warehouse)
        assert row["status"] == "unavailable"
        assert why in row["why"]
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
    assert (code, output["worlds"][0]["servers"][0]["status"]) == (0, "unavailable")
    assert toolmill("worlds", "small", "--play")[0] == 1
    assert toolmill("trust", "own", "--yes", "--json")[0] == 0
    code, output = toolmill("worlds", "small", "--check", "--json")
    [row] = output["worlds"][0]["servers"]
    assert (code, row["status"], len(row["tasks"])) == (0, "ok", 2), row
    code, output = toolmill("worlds", "small", "--play", "--server", OWN)
    assert (code, output["problems"], output["kept"]) == (0, [], output["played"]), output
