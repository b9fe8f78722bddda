"""Recipes of commands in a folder of this host: what their digest covers, and what is refused."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assets.marketplaces.listing import EnvVar, LaunchFacts, Listing
from assets.servers.deploy.policy import DeployPolicy, digest_confirmed, find_unconfirmed
from assets.servers.probe.failure_kinds import PackageError
from assets.servers.recipes import recipe_plan
from assets.servers.recipes.placeholders import DATA
from assets.servers.recipes.recipe import LaunchRecipe, UnlaunchableServer
from assets.servers.recipes.recipe_plan import digest_folder, find_script, plan_recipe
from assets.servers.secrets import LaunchSecrets
from tests.support.cases import cases
from tests.support.errors import expect_kind

NAME = "private:mcp.json#notes"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "notes"
    made.mkdir()
    (made / "server.py").write_text("serve()")
    (made / "lib").mkdir()
    (made / "lib" / "more.py").write_text("x = 1")
    return made


def list_command(folder: Path | str, *words: str, **facts: Any) -> Listing:
    command, *args = words or ("python", "server.py")
    launch = LaunchFacts(directory=str(folder))
    about = {"marketplace": "private", "native_id": "mcp.json#notes", "name": "notes"}
    more = {"command": command, "args": tuple(args), "launch": launch, "runnable": True}
    return Listing(**{**about, **more, **facts})


def plan(listing: Listing) -> LaunchRecipe | UnlaunchableServer:
    return plan_recipe(listing, lambda *_, **__: pytest.fail("a registry was asked"))


def plan_right(listing: Listing) -> LaunchRecipe:
    found = plan(listing)
    assert isinstance(found, LaunchRecipe), found
    return found


def test_a_command_is_planned_as_its_owner_wrote_it(folder):
    found = plan_right(list_command(folder, "python", "server.py", f"{folder}/lib", "./lib", "-v"))
    assert (found.server_id, found.ecosystem, found.is_image) == (NAME, "private", False)
    assert (found.command, found.directory) == (("python",), str(folder))
    assert found.args == ("server.py", f"{folder}/lib", "./lib", "-v")
    assert found.placeholders == ()


def test_what_lies_outside_of_the_folder_is_made_up(folder):
    env = (
        EnvVar(name="API_KEY", required=True, secret=True),
        EnvVar(name="HERE", default=f"{folder}/lib"),
        EnvVar(name="THERE", default="/home/me/elsewhere"),
    )
    words = ("python", "server.py", "/home/me/docs", "--token", "{token}", "../beside")
    found = plan_right(list_command(folder, *words, env=env))
    assert found.args[1:3] == (DATA, "--token")
    assert "{token}" not in found.args
    assert dict(found.env)["HERE"] == f"{folder}/lib"
    assert dict(found.env)["THERE"] == DATA
    assert {"arg:1", "arg:3", "env:API_KEY", "env:THERE"} <= set(found.placeholders)


@cases(
    "change",
    lambda folder: (folder / "server.py").write_text("serve(1)"),
    lambda folder: (folder / "lib" / "more.py").unlink(),
    lambda folder: (folder / "lib" / "new.py").write_text(""),
    lambda folder: (folder / "server.py").chmod(0o755),
    lambda folder: (folder / "lib" / "link").symlink_to("more.py"),
    lambda folder: (folder / "lib" / "more.py").rename(folder / "more.py"),
)
def test_changed_content_is_another_recipe_and_is_trusted_as_before(folder, change):
    (folder / "server.py").chmod(0o644)
    before = plan_right(list_command(folder))
    change(folder)
    after = plan_right(list_command(folder))
    assert before.digest != after.digest
    assert digest_confirmed(before) == digest_confirmed(after)


def test_caches_and_times_of_change_are_no_content(folder):
    before = digest_folder(str(folder))
    for name in (".git", "__pycache__", "lib/__pycache__"):
        (folder / name).mkdir()
        (folder / name / "x").write_text("x")
    os.utime(folder / "server.py", (1, 1))
    assert digest_folder(str(folder)) == before


def test_beyond_what_is_hashed_size_and_time_count(folder, monkeypatch):
    monkeypatch.setattr(recipe_plan, "_MOST_READ", 4)
    before = digest_folder(str(folder))
    assert digest_folder(str(folder)) == before
    os.utime(folder / "server.py", (1, 1))
    assert digest_folder(str(folder)) != before


def test_a_tree_without_end_costs_no_more_than_its_bounds(folder):
    deep = folder
    for _ in range(80):
        deep = deep / "d"
        deep.mkdir()
    with expect_kind(PackageError, "oversize", "more than 64 folders"):
        digest_folder(str(folder))


@cases(
    "words, facts, asks",
    (("python", "server.py", "--all"), {}, True),
    (("python3", "server.py"), {}, True),
    ((), {"env": (EnvVar(name="MODE", default="a"), EnvVar(name="B", default="c"))}, True),
    ((), {"env": ()}, True),
    ((), {"env": (EnvVar(name="MODE", default="b"),)}, False),  # a plain value
    ((), {"env": (EnvVar(name="MODE", default="a"), EnvVar(name="X"))}, False),  # not passed
    ((), {"name": "renamed", "description": "more"}, False),
)
def test_a_changed_command_asks_again(folder, words, facts, asks):
    env = {"env": (EnvVar(name="MODE", default="a"),)}
    trusted = plan_right(list_command(folder, **env))
    policy = DeployPolicy(folder.parent)
    failure = find_unconfirmed(trusted, LaunchSecrets(), policy)
    assert (failure.kind, "not trusted yet" in failure.detail) == ("needs_confirmation", True)
    assert "toolmill trust 'private:mcp.json#notes'" in failure.detail
    policy = replace(policy, confirmed={NAME: (digest_confirmed(trusted),)})
    assert find_unconfirmed(trusted, LaunchSecrets(), policy) is None
    changed = plan_right(list_command(folder, *words, **{**env, **facts}))
    failure = find_unconfirmed(changed, LaunchSecrets(), policy)
    assert bool(failure) is asks
    assert not failure or "another one than you trusted" in failure.detail


def test_another_folder_and_a_variable_that_chooses_code_ask_again(folder):
    other = folder.parent / "other"
    other.mkdir()
    (other / "server.py").write_text("serve()")
    options = [(EnvVar(name="NODE_OPTIONS", default=f"--{word}"),) for word in ("trace", "require")]
    recipes = [plan_right(list_command(folder, env=env)) for env in options]
    recipes += [plan_right(list_command(folder)), plan_right(list_command(other))]
    assert len({digest_confirmed(recipe) for recipe in recipes}) == 4


@cases(
    "place, kind, words",
    ("gone", "needs_software", "is not there"),
    ("link", "policy_denied", "is a link"),
    ("way/notes", "policy_denied", "is a link"),
    ("notes/server.py", "needs_software", "is no folder"),
    ("home", "policy_denied", "home folder"),
    (".", "policy_denied", "home folder"),
)
def test_a_folder_no_server_sees_is_named_with_the_fix(folder, monkeypatch, place, kind, words):
    (folder.parent / "link").symlink_to(folder)
    (folder.parent / "way").symlink_to(folder.parent)
    home = folder.parent / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    found = plan(list_command(folder.parent / place))
    assert isinstance(found, UnlaunchableServer)
    assert (found.kind, words in found.reason, "`cwd`" in found.reason) == (kind, True, True)


@cases(
    "script, message",
    ("main.py", "holds no file 'main.py'"),
    ("../out.py", "not in it"),
    ("{}/out.py", "not in it"),
)
def test_a_script_that_is_missing_or_lies_elsewhere_is_named(folder, script, message):
    (folder.parent / "out.py").write_text("")
    found = plan(list_command(folder, "python", script.format(folder.parent)))
    assert isinstance(found, UnlaunchableServer)
    assert message in found.reason


@cases(
    "words, script",
    (("python", "-u", "server.py", "more.py"), "server.py"),
    (("/usr/bin/node", "dist/index.js"), "dist/index.js"),
    (("uv", "run", "server.py"), "server.py"),
    (("python", "-m", "notes", "x.py"), None),
    (("notes-mcp", "x.py"), None),
    ((), None),
)
def test_the_script_of_a_command(words, script):
    assert find_script(words) == script
