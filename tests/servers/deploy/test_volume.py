"""Volumes: a server's home that outlives its sessions, written by one at a time."""

import os
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest

from assets.servers.deploy.deploy import deploy
from assets.servers.deploy.grants import (
    ServerGrant,
    VolumeBusy,
    hold_volume,
    hold_volume_async,
    list_granted_places,
    mount_folders,
)
from assets.servers.deploy.policy import DeployPolicy
from assets.servers.recipes.placeholders import DATA
from assets.servers.recipes.recipe import LaunchRecipe
from assets.servers.sandbox.watchdog import SandboxWatchdog
from tests.support.untrusted_server import (
    CONVERSATION,
    POLICY,
    PREAMBLE,
    install_source,
    require_sandbox,
    tool_names,
)

NAME = "npm:x"
RECIPE = LaunchRecipe(server_id=NAME, ecosystem="npm", name="x", version="1", integrity="sha512-x")
# Tools named after the files that it found at home, before it left another.
KEEP = """
home = os.path.expanduser("~")
found = sorted(one for one in os.listdir(home) if one.endswith(".txt"))
open(home + f"/{len(found)}.txt", "w").write("kept")
open(home + "/data/own.txt", "a").write("x")
serve([tool(one) for one in [*found, open(home + "/data/own.txt").read()]])
"""
HOLD = """
import sys, time
from pathlib import Path
from assets.servers.deploy.grants import hold_volume
with hold_volume(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def policy(tmp_path, monkeypatch):
    """One server with a volume."""
    require_sandbox()
    install_source(tmp_path, monkeypatch, KEEP)
    policy = DeployPolicy(tmp_path / "home", POLICY, CONVERSATION, twice=False)
    return replace(policy, grants={NAME: ServerGrant(volume=True, personal=True)})


def test_what_a_server_keeps_at_home_is_there_the_next_time(policy):
    assert tool_names(deploy(RECIPE, policy).probe) == ["x"]
    assert tool_names(deploy(RECIPE, policy).probe) == ["0.txt", "xx"]
    kept = policy.volume_of(NAME)
    assert sorted(one.name for one in kept.iterdir()) == ["0.txt", "1.txt", "data"]
    assert kept.is_relative_to(policy.home)
    assert kept.name != policy_of("npm:y", policy).name
    assert (kept.stat().st_mode & 0o777, policy.volume_of("npm:z")) == (0o700, None)


def policy_of(server_id, policy):
    """Where another server's volume would lie."""
    return replace(policy, grants={server_id: ServerGrant(volume=True)}).volume_of(server_id)


def test_a_volume_follows_the_user_that_a_granted_folder_asks_for(policy, tmp_path):
    deploy(RECIPE, policy)
    notes = tmp_path / "notes"
    notes.mkdir()
    if os.geteuid() == 0:
        os.chown(notes, 4242, 4242)
    grant = ServerGrant(folders=mount_folders([f"{notes}:rw"]), volume=True, personal=True)
    result = deploy(RECIPE, replace(policy, grants={NAME: grant})).probe
    assert tool_names(result) == ["0.txt", "x"], result.hint
    assert (notes / "own.txt").read_text() == "x"
    kept = policy.volume_of(NAME)
    assert (kept / "0.txt").stat().st_uid == (4242 if os.geteuid() == 0 else os.getuid())


def test_a_link_that_a_server_left_where_a_folder_is_mounted_is_not_followed(policy, tmp_path):
    deploy(RECIPE, policy)
    away = tmp_path / "away"
    away.mkdir(mode=0o777)
    kept = policy.volume_of(NAME)
    (kept / "data" / "own.txt").unlink()
    (kept / "data").rmdir()
    (kept / "data").symlink_to(away)
    assert tool_names(deploy(RECIPE, policy).probe) == ["0.txt", "x"]
    assert not (kept / "data").is_symlink()
    assert list(away.iterdir()) == []


def test_a_path_that_was_made_up_is_real_in_a_volume():
    recipe = RECIPE.model_copy(update={"args": (DATA,), "placeholders": ("arg:0",)})
    assert list_granted_places(recipe, ServerGrant(volume=True)) == {"arg:0"}


def test_two_runs_on_one_volume_never_write_at_once(policy, monkeypatch):
    kept = policy.volume_of(NAME)
    argv = [sys.executable, "-c", HOLD, str(kept)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as other:
        try:
            assert other.stdout
            assert other.stdout.readline() == "held\n"
            with pytest.raises(VolumeBusy, match=f"held by a session of process {other.pid}"):
                hold_volume(kept, 0.0).__enter__()
            monkeypatch.setattr(
                "assets.servers.deploy.deploy.hold_volume", lambda one: hold_volume(one, 0.0)
            )
            result = deploy(RECIPE, policy).probe
            assert (result.error_kind, str(other.pid) in str(result.hint)) == ("bad_grant", True)
            assert not kept.exists()
        finally:
            other.kill()
    # The kernel frees it when its holder dies, and the next one waits for that.
    assert tool_names(deploy(RECIPE, policy).probe) == ["x"]


async def test_a_second_session_waits_for_one_that_ends(tmp_path):
    kept = tmp_path / "volume"
    with hold_volume(kept), pytest.raises(VolumeBusy):
        await hold_volume_async(kept, 0.0).__aenter__()
    async with hold_volume_async(kept, 0.0):
        with pytest.raises(VolumeBusy):
            hold_volume(kept, 0.0).__enter__()
    with hold_volume(None), hold_volume(None):
        pass


def test_a_folder_that_a_server_closed_hides_nothing_from_the_watchdog(tmp_path, monkeypatch):
    (tmp_path / "closed").mkdir()
    scan = os.scandir

    def look(path):
        if str(path).endswith("closed"):  # as anybody but root meets mode 000
            raise PermissionError(13, "Permission denied")
        return scan(path)

    monkeypatch.setattr("assets.servers.sandbox.watchdog.os.scandir", look)
    jailed = SimpleNamespace(volume=tmp_path, pid=1, process=None, overran=False)
    breach = SandboxWatchdog(jailed, POLICY)._find_volume_breach()
    assert (breach.limit, "is closed" in breach.found) == ("disk", True)


def test_a_volume_that_fills_up_ends_the_server(policy, tmp_path):
    source = """
home = os.path.expanduser("~")
def fill():
    for n in range(400):
        open(home + f"/{n}.bin", "wb").write(os.urandom(1 << 18))
        time.sleep(0.02)
serve([tool("a")], before_list=fill)
"""
    (tmp_path / "tree" / "main.py").write_text(PREAMBLE + source)
    policy = replace(policy, conversation=replace(CONVERSATION, list_s=15.0))
    policy = replace(policy, sandbox=replace(POLICY, volume_mb=4))
    result = deploy(RECIPE, policy).probe
    assert (result.error_kind, "of 4 in its volume" in str(result.hint)) == ("disk_full", True)
