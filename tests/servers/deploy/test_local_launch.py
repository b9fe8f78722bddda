"""Commands in a folder of this host: launched in the sandbox, called, and contained there."""

import asyncio
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assets.marketplaces.listing import Listing
from assets.servers.calls.caller import ToolCaller
from assets.servers.calls.connection import plan_launch
from assets.servers.calls.result import CallFailed, CallResult
from assets.servers.deploy.deployment_table import deploy_listings
from assets.servers.deploy.grants import ServerGrant, mount_folders
from assets.servers.deploy.launch import make_local_launch
from assets.servers.deploy.policy import DeployPolicy, digest_confirmed
from assets.servers.probe.failure_kinds import PackageError
from assets.servers.recipes.recipe import LaunchRecipe, dump_recipe
from assets.servers.recipes.recipe_plan import plan_recipe
from assets.servers.sandbox.toolchain import find_toolchain
from tests.serving.calling import CONTRACT, LIMITS, PATIENT, read_text
from tests.support.cases import cases
from tests.support.errors import expect_kind
from tests.support.local_servers import ECHO, list_server, write_server
from tests.support.untrusted_server import POLICY, require_sandbox
from warehouse.store import Warehouse

NAME = "private:mcp.json#own"
NOW = 1_800_000_000.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_server(tmp_path / "own")


@pytest.fixture
def policy(tmp_path: Path) -> DeployPolicy:
    require_sandbox()
    return DeployPolicy(tmp_path / "home", POLICY, PATIENT, twice=False)


def plan(listing: Listing) -> LaunchRecipe:
    found = plan_recipe(listing, lambda *_, **__: pytest.fail("a registry was asked"))
    assert isinstance(found, LaunchRecipe), found
    return found


def trust(policy: DeployPolicy, folder: Path, *words: str, **entry: Any) -> tuple[Any, Any]:
    """(The listing of a command, the policy under which it is trusted.)"""
    listing = list_server(folder, *words, **entry)
    return listing, replace(policy, confirmed={NAME: (digest_confirmed(plan(listing)),)})


@pytest.fixture
def deploy(warehouse: Warehouse) -> Callable[..., dict[str, Any]]:
    def run(listing: Listing, policy: DeployPolicy, before: Any = None) -> dict[str, Any]:
        stores = {"ledger": warehouse.ledger, "blobs": warehouse.blobs}
        rows = [before] if before else []
        done = deploy_listings([listing], rows, policy, run_date="n1", now=NOW, **stores)
        [row] = done.rows
        return {**row, "done": bool(done.done)}

    return run


def call(row: dict[str, Any], policy: DeployPolicy) -> CallResult:
    async def ask() -> CallResult:
        caller = ToolCaller({NAME: json.loads(row["recipe"])}, policy, LIMITS)
        try:
            return await caller.call(NAME, "do", CONTRACT, {"x": 7}, timeout_s=10.0)
        finally:
            await caller.close()

    return asyncio.run(ask())


def test_a_trusted_command_is_launched_and_its_tools_are_called(deploy, policy, folder):
    listing, policy = trust(policy, folder)
    row = deploy(listing, policy)
    assert (row["status"], row["server_id"], row["n_tools"]) == ("ok", NAME, 2), row["hint"]
    assert (row["ecosystem"], row["certified"]) == ("private", True)
    found = call(row, policy)
    assert (found.status, read_text(found)) == ("ok", str([7, str(folder)]))


def test_a_command_asks_to_be_trusted_and_asks_again_once_it_changed(deploy, policy, folder):
    listing, trusted = trust(policy, folder)
    row = deploy(listing, policy)
    assert (row["status"], row["error_kind"]) == ("failed", "needs_confirmation")
    assert "toolmill trust 'private:mcp.json#own'" in row["hint"]
    assert '["python", "server.py"]' in row["hint"]
    assert not deploy(listing, policy, row)["done"]
    policy = trusted
    row = deploy(listing, policy, row)
    assert row["status"] == "ok"
    row = deploy(list_server(folder, "python", "server.py", "--admin"), policy, row)
    assert (row["error_kind"], row["recipe"], row["n_tools"]) == ("needs_confirmation", None, 0)
    assert "another one than you trusted" in row["hint"]


def test_a_call_of_a_recipe_that_nobody_trusts_starts_nothing(deploy, policy, folder, tmp_path):
    listing, trusted = trust(policy, folder)
    row = deploy(listing, trusted)
    refused = call(row, policy)
    assert (refused.status, refused.error_kind) == ("failed", "needs_confirmation")
    # An index of somebody else cannot borrow the trust, or another server's name.
    facts = json.loads(row["recipe"])
    for change in ({"args": ["server.py", "x"]}, {"command": ["sh"]}, {"server_id": "npm:x"}):
        made = {**facts, **change}
        with pytest.raises(CallFailed) as caught:
            plan_launch(made["server_id"], made, trusted)
        assert caught.value.kind in ("needs_confirmation", "no_recipe")


def test_an_edited_script_is_launched_the_same_night(deploy, policy, folder):
    listing, policy = trust(policy, folder)
    first = deploy(listing, policy)
    assert not deploy(listing, policy, first)["done"]
    write_server(folder, "sys.exit('broken')")
    broken = deploy(listing, policy, first)
    assert (broken["status"], broken["recipe"]) == ("failed", None)
    assert not deploy(listing, policy, broken)["done"]  # it waits, as any failure does
    write_server(folder, ECHO)  # and needs not, once it is repaired
    repaired = deploy(listing, policy, broken)
    assert (repaired["status"], repaired["done"]) == ("ok", True)
    write_server(folder, "calls(lambda m, x: say(m, x), [tool('new')])")
    assert deploy(listing, policy, repaired)["tools_blob"] != repaired["tools_blob"]


def test_a_folder_that_is_gone_is_a_row_refuses_a_call_and_comes_back(deploy, policy, folder):
    listing, policy = trust(policy, folder)
    first = row = deploy(listing, policy)
    away = folder.rename(folder.parent / "away")
    for kind, words in (("needs_software", "is not there"), ("policy_denied", "is a link")):
        row = deploy(listing, policy, row)
        assert (row["error_kind"], words in row["hint"]) == (kind, True)
        found = call(first, policy)
        assert (found.error_kind, words in str(found.hint)) == (kind, True)
        if kind == "needs_software":
            folder.symlink_to(away)
    folder.unlink()
    away.rename(folder)
    assert deploy(listing, policy, row)["status"] == "ok"


def test_nothing_outside_of_its_own_scratch_is_written(deploy, policy, tmp_path):
    beside = tmp_path / "beside"
    beside.write_text("mine")
    source = f"""
def put(path):
    with open(path, "w") as file: file.write("theirs")
found = attempt("folder", lambda: put(os.getcwd() + "/server.py"))
found += attempt("new", lambda: put("new.txt")) + attempt("beside", lambda: put({str(beside)!r}))
found += attempt("read", lambda: open({str(beside)!r}).read())
found += attempt("network", lambda: __import__("socket").create_connection(("127.0.0.1", 9)))
put("/tmp/scratch"), put(os.environ["HOME"] + "/scratch")
serve(found + [tool("sound")])
"""
    folder = write_server(tmp_path / "own", source)
    before = (folder / "server.py").read_text()
    row = deploy(*trust(policy, folder))
    assert (row["status"], row["n_tools"]) == ("ok", 1), row
    assert ((folder / "server.py").read_text(), os.listdir(folder)) == (before, ["server.py"])
    assert beside.read_text() == "mine"


def test_a_server_that_must_write_its_own_folder_is_told_so(deploy, policy, tmp_path):
    folder = write_server(tmp_path / "own", "open('state.db', 'w')")
    row = deploy(*trust(policy, folder))
    assert (row["status"], row["error_kind"]) == ("failed", "read_only"), row["hint"]
    assert not (folder / "state.db").exists()


def test_a_secret_of_the_file_is_made_up_and_a_call_asks_for_it(deploy, policy, folder):
    listing, policy = trust(policy, folder, env={"API_KEY": "sk-" + "a1b2" * 8, "MODE": "fast"})
    row = deploy(listing, policy)
    assert (row["status"], row["placeholders"]) == ("ok", '["env:API_KEY"]')
    assert "a1b2a1b2" not in str(row)
    with pytest.raises(CallFailed) as caught:
        plan_launch(NAME, json.loads(row["recipe"]), policy)
    assert (caught.value.kind, "API_KEY" in str(caught.value.fix)) == ("needs_secret", True)


def test_no_home_and_no_folder_with_toolmills_own_files_is_shown(deploy, policy, folder, tmp_path):
    state = folder / "var" / "state"
    state.mkdir(parents=True)
    listing, trusted = trust(policy, folder)
    for own in (state, folder, tmp_path):
        row = deploy(listing, replace(trusted, own=(own,)))
        assert (row["error_kind"], str(own) in row["hint"]) == ("policy_denied", True)
    elsewhere = (tmp_path / "home", tmp_path / "toolmill.toml")
    assert deploy(listing, replace(trusted, own=elsewhere))["status"] == "ok"
    # A folder in the home as a whole is nobody's secret; one among its state is.
    assert deploy(listing, replace(trusted, home=tmp_path, own=(tmp_path,)))["status"] == "ok"
    made = {**dump_recipe(plan(list_server(folder))), "directory": str(Path.home())}
    with expect_kind(CallFailed, "policy_denied", "home folder"):
        plan_launch(NAME, made, policy)


def test_a_granted_folder_is_what_an_argument_outside_names(deploy, policy, tmp_path, warehouse):
    folder = write_server(tmp_path / "own", "serve([tool(x) for x in os.listdir(sys.argv[1])])")
    notes = tmp_path / "notes"
    notes.mkdir(mode=0o755)
    (notes / "one.txt").write_text("")
    listing, policy = trust(policy, folder, "python", "server.py", "/home/me/notes")
    grant = ServerGrant(folders=mount_folders([str(notes)]), personal=True)
    row = deploy(listing, replace(policy, grants={NAME: grant}))
    assert (row["status"], row["placeholders"]) == ("ok", "[]"), row["hint"]
    [tool] = warehouse.blobs.get_json(row["tools_blob"])
    assert tool["name"] == "one.txt"


def environment(folder: Path, *programs: str) -> None:
    """An environment like `uv sync` makes, of this Python."""
    bin_folder = folder / ".venv" / "bin"
    bin_folder.mkdir(parents=True)
    (folder / ".venv" / "pyvenv.cfg").write_text("home = x\n")
    (bin_folder / "python").symlink_to(find_toolchain().python)
    for name in programs:
        (bin_folder / name).write_text("#!/bin/sh\n")
        (bin_folder / name).chmod(0o755)


@cases(
    "words, argv",
    (("python", "server.py"), ("BIN/python", "server.py")),
    (("python3", "-m", "own"), None),
    (("uv", "run", "server.py", "-v"), ("BIN/python", "server.py", "-v")),
    (("uv", "--quiet", "run", "--frozen", "own-mcp"), ("BIN/own-mcp",)),
    (("uv", "run", "--", "python", "server.py"), ("BIN/python", "server.py")),
    (("uv", "run", "-m", "own", "-v"), ("BIN/python", "-m", "own", "-v")),
    (("own-mcp", "--all"), ("BIN/own-mcp", "--all")),
    ((".venv/bin/own-mcp",), ("BIN/own-mcp",)),
)
def test_what_a_command_starts(folder, words, argv):
    environment(folder, "own-mcp")
    bin_folder = str(folder / ".venv" / "bin")
    launch = make_local_launch(plan(list_server(folder, *words)), find_toolchain())
    expected = argv or (str(find_toolchain().python), *words[1:])
    assert launch.argv == tuple(word.replace("BIN", bin_folder) for word in expected)
    assert (launch.cwd, launch.uid) == (str(folder), None)
    assert not any(mount.writable for mount in launch.mounts)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's sandbox is another user")
def test_a_folder_that_is_closed_to_others_says_how_to_open_it(folder):
    recipe = plan(list_server(folder))
    folder.chmod(0o700)
    with pytest.raises(PackageError, match=f"chmod -R o\\+rX {folder}"):
        make_local_launch(recipe, find_toolchain())


@cases(
    "words, message",
    (("no-such-program",), "no program 'no-such-program'"),
    (("bin/none",), "no program"),
    (("/opt/none/bin/x",), "no program '/opt/none/bin/x'"),
    (("./plain.txt",), "not executable"),
    (("uv", "run", "server.py"), "`uv sync`"),
    (("uv", "sync"), "is not `uv run`"),
    (("python3.99", "server.py"), "no python3.99"),
)
def test_a_program_that_is_not_there_is_named_with_the_fix(folder, words, message):
    (folder / "plain.txt").write_text("")
    recipe = plan(list_server(folder, *words))
    with expect_kind(PackageError, "needs_software", message):
        make_local_launch(recipe, find_toolchain())


def test_an_environment_in_the_folder_is_really_used(deploy, policy, tmp_path, warehouse):
    folder = write_server(tmp_path / "own", "serve([tool(sys.prefix)])")
    environment(folder)
    row = deploy(*trust(policy, folder, "uv", "run", "server.py"))
    assert row["status"] == "ok", row["hint"]
    [tool] = warehouse.blobs.get_json(row["tools_blob"])
    assert tool["name"] == str(folder / ".venv")


def test_an_interpreter_behind_a_link_of_a_version_manager_is_shown(deploy, policy, tmp_path):
    """`cpython-3.12` -> `cpython-3.12.9`, as uv installs them."""
    folder = write_server(tmp_path / "own")
    python = find_toolchain().python
    (tmp_path / "cpython-3").symlink_to(python.parent.parent)
    environment(folder)
    link = folder / ".venv" / "bin" / "python"
    link.unlink()
    link.symlink_to(tmp_path / "cpython-3" / "bin" / python.name)
    row = deploy(*trust(policy, folder))
    assert row["status"] == "ok", row["hint"]


@cases("link", "BESIDE/x/y", "BESIDE/bin/python3", "BESIDE/id_ed25519")
def test_an_environment_that_leads_elsewhere_shows_nothing_of_it(folder, tmp_path, link):
    """Who filled the folder chose the link; what lies there is the user's."""
    beside = tmp_path / "beside"
    (beside / "bin").mkdir(parents=True)
    for name in ("id_ed25519", "bin/python3"):
        (beside / name).write_text("mine")
    environment(folder, "own-mcp")
    python = folder / ".venv" / "bin" / "python"
    python.unlink()
    python.symlink_to(link.replace("BESIDE", str(beside)))
    with expect_kind(PackageError, "needs_software", "not a Python: recreate the environment"):
        make_local_launch(plan(list_server(folder, "own-mcp")), find_toolchain())
