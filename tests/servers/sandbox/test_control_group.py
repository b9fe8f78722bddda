"""Control groups: made, joined, read and removed, in a folder that stands for the kernel's tree."""

import time
from pathlib import Path

import pytest

from assets.servers.sandbox import bubblewrap, kernel_limits
from assets.servers.sandbox.kernel_limits import ControlGroup, find_parent_group, make_control_group
from assets.servers.sandbox.process import start
from assets.servers.sandbox.spec import SandboxLaunch, SandboxPolicy
from assets.servers.sandbox.watchdog import SandboxWatchdog
from tests.support.untrusted_server import require_sandbox
from warehouse.process_identity import describe_owner


@pytest.fixture
def tree(monkeypatch, tmp_path):
    """/sys/fs/cgroup with our own group `shell` in `user`, which may have others beside it."""
    (tmp_path / "user" / "shell").mkdir(parents=True)
    (tmp_path / "user" / "cgroup.subtree_control").write_text("memory pids\n")
    (tmp_path / "user" / "shell" / "cgroup.subtree_control").write_text("\n")
    (tmp_path / "own").write_text("4:memory:/other\n0::/user/shell\n")
    monkeypatch.setattr(kernel_limits, "_ROOT", tmp_path)
    monkeypatch.setattr(kernel_limits, "_OWN", tmp_path / "own")
    find_parent_group.cache_clear()
    yield tmp_path
    find_parent_group.cache_clear()


def wait_until_file(path):
    """Until a launch has come to write it; nobody waits for that where groups are the kernel's."""
    deadline = time.monotonic() + 60
    while not (path.exists() and path.read_text()) and time.monotonic() < deadline:
        time.sleep(0.01)


def groups(tree):
    return sorted((tree / "user").glob("toolmill-*"))


def test_a_group_is_made_beside_ours_with_the_memory_of_the_policy(tree):
    assert find_parent_group() == tree / "user"
    group = make_control_group(SandboxPolicy(memory_mb=256))
    assert group
    assert group.folder.parent == tree / "user"
    assert (group.folder / "memory.max").read_text() == str(384 << 20)
    assert (group.folder / "memory.oom.group").read_text() == "1"
    assert (group.folder / "memory.swap.max").read_text() == "0"
    group.end()
    assert (group.folder / "cgroup.kill").read_text() == "1"


@pytest.mark.parametrize(
    ("own", "control"),
    [("0::/user/shell", "pids"), ("4:memory:/user/shell", "memory"), ("0::/../user", "memory")],
)
def test_a_host_that_gives_no_memory_controller_has_no_groups(tree, own, control):
    (tree / "own").write_text(own)
    (tree / "user" / "cgroup.subtree_control").write_text(control)
    assert find_parent_group() is None
    assert make_control_group(SandboxPolicy()) is None
    assert groups(tree) == []


def test_a_group_that_no_process_can_join_is_not_used(tree, monkeypatch):
    monkeypatch.setattr(ControlGroup, "wrap", lambda self, argv: ["sh", "-c", "exit 2"])
    assert find_parent_group() is None


def test_groups_of_dead_owners_are_removed(tree):
    pid, identity, place = describe_owner().split("@")
    dead = f"{pid}@{identity}0@{place}"  # a process before this one, of the same pid
    for name, owner in (("a", dead), ("b", describe_owner()), ("c", "9@x:1@another-boot:1")):
        (tree / "user" / f"toolmill-{name}-{owner}").mkdir()
    kernel_limits._sweep_groups(tree / "user")
    left = [folder.name for folder in groups(tree) if not (folder / "cgroup.kill").exists()]
    assert left == [f"toolmill-b-{describe_owner()}", "toolmill-c-9@x:1@another-boot:1"]


@pytest.mark.parametrize(("kills", "limit"), [(1, "memory"), (0, None)])
def test_a_launch_joins_its_group_first_and_its_end_is_told(tree, kills, limit):
    require_sandbox()
    assert find_parent_group() == tree / "user"
    before = groups(tree)
    with start(SandboxLaunch(("sleep", "60")), SandboxPolicy()) as jailed:
        made = [folder for folder in groups(tree) if folder not in before]
        (folder,) = made
        (folder / "memory.events").write_text(f"low 0\noom 1\noom_kill {kills}\n")
        with SandboxWatchdog(jailed, SandboxPolicy()) as watch:
            wait_until_file(folder / "cgroup.procs")
            jailed.kill()
    assert (folder / "cgroup.procs").read_text() == "0\n"
    assert (watch.breach.limit if watch.breach else None) == limit


def test_this_host_holds_its_memory_by_the_kernel():
    require_sandbox()
    if find_parent_group() is None:
        pytest.skip("this host lets us make no control group of version 2 with a memory limit")
    policy = SandboxPolicy(memory_mb=64, wall_s=20.0)
    eats = "x=$(head -c 400000000 /dev/zero | tr '\\0' x); echo held"
    with start(SandboxLaunch(("sh", "-c", eats)), policy) as jailed:
        out, _ = jailed.process.communicate(timeout=60)
        folder = Path(jailed.process.args[3]).parent  # type: ignore[index]
        jailed.kill()
    assert (out, jailed.overran) == (b"", True)
    assert not folder.exists()
    assert bubblewrap.BubblewrapBackend().facts(policy)["memory"] == "control group"
