"""The filter of system calls: read as the kernel would, and its numbers against libseccomp."""

import ctypes
import ctypes.util
import errno
import struct
import time
from pathlib import Path

import pytest

from assets.servers.sandbox import bubblewrap, kernel_limits
from assets.servers.sandbox.kernel_limits import (
    ABSENT,
    CLONE,
    DENIED,
    IOCTL,
    NAMESPACES,
    SOCKET,
    UNSHARE,
    ControlGroup,
    build_filter,
    build_profile,
    find_parent_group,
    make_control_group,
)
from assets.servers.sandbox.process import start
from assets.servers.sandbox.spec import SandboxLaunch, SandboxPolicy
from assets.servers.sandbox.watchdog import SandboxWatchdog
from tests.support.untrusted_server import require_sandbox
from warehouse.process_identity import describe_owner

MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
ALLOW = 0x7FFF0000


def asked(machine, number, *args, audit=None, segments=False):
    """What the filter returns for a call: a little interpreter of classic BPF."""
    code = build_filter(machine, segments=segments)
    assert code
    arch = MACHINES[machine][1] if audit is None else audit
    data = struct.pack("<iIQ6Q", number, arch, 0, *(*args, *[0] * (6 - len(args))))
    lines = list(struct.iter_unpack("<HBBI", code))
    place, held = 0, 0
    while True:
        what, yes, no, value = lines[place]
        place += 1
        if what == 0x20:
            held = struct.unpack_from("<I", data, value)[0]
        elif what == 0x06:
            return value
        else:
            true = {0x15: held == value, 0x35: held >= value, 0x45: bool(held & value)}[what]
            place += yes if true else no


def refused(code):
    return 0x00050000 | code


@pytest.mark.parametrize("machine", MACHINES)
def test_each_listed_call_fails_and_no_other(machine):
    column = MACHINES[machine][0]
    expected = {pair[column]: errno.EPERM for pair in DENIED.values() if pair[column] is not None}
    expected |= {pair[column]: errno.ENOSYS for pair in ABSENT.values()}
    found = {n: asked(machine, n) for n in range(600)}
    # Socket 0 is no family; every other call passes with arguments of nought.
    found.pop(SOCKET[column])
    assert {n: v for n, v in found.items() if v != ALLOW} == {
        n: refused(code) for n, code in expected.items()
    }


@pytest.mark.parametrize("machine", MACHINES)
def test_arguments_decide_where_a_call_is_needed_by_everybody(machine):
    column = MACHINES[machine][0]
    for call in (CLONE[column], UNSHARE[column]):
        assert asked(machine, call, 0x00000100) == ALLOW  # a thread's shared memory
        for bit in range(32):
            if NAMESPACES & 1 << bit:
                assert asked(machine, call, 1 << bit | 0x100) == refused(errno.EPERM)
    assert asked(machine, IOCTL[column], 0, 0x5401) == ALLOW
    for typing in (0x5412, 0x541C, 0x5412 | 1 << 32):
        assert asked(machine, IOCTL[column], 0, typing) == refused(errno.EPERM)
    families = [f for f in range(64) if asked(machine, SOCKET[column], f) == ALLOW]
    assert families == [1, 2, 10, 16]


def test_another_architecture_or_numbering_has_no_calls():
    assert asked("x86_64", 0, audit=0x40000003) == refused(errno.ENOSYS)  # i386
    assert asked("x86_64", 0x40000000) == refused(errno.ENOSYS)  # x32
    assert build_filter("riscv64") is None


def test_numbers_are_those_of_libseccomp():
    name = ctypes.util.find_library("seccomp")
    if name is None:
        pytest.skip("libseccomp is not on this host")
    resolve = ctypes.CDLL(name).seccomp_syscall_resolve_name_arch
    calls = {**DENIED, **ABSENT, "clone": CLONE, "unshare": UNSHARE}
    calls |= {"ioctl": IOCTL, "socket": SOCKET}
    for call, pair in calls.items():
        for column, audit in MACHINES.values():
            number = resolve(ctypes.c_uint32(audit), call.encode())
            if number == -1:
                continue  # newer than this libseccomp
            assert (number if number >= 0 else None) == pair[column], (call, column)


def test_the_profile_of_docker_refuses_the_same():
    rules = build_profile()["syscalls"]
    assert build_profile()["defaultAction"] == "SCMP_ACT_ALLOW"
    plain = {
        name: rule["errnoRet"] for rule in rules if "args" not in rule for name in rule["names"]
    }
    assert plain == dict.fromkeys(DENIED, errno.EPERM) | dict.fromkeys(ABSENT, errno.ENOSYS)
    flags = [r["args"][0]["value"] for r in rules if r["names"] == ["clone", "unshare"]]
    assert sum(flags) == NAMESPACES
    families = {r["args"][0]["value"] for r in rules if r["names"] == ["socket"]}
    assert set(range(kernel_limits._N_FAMILIES)) - families == {1, 2, 10, 16}


@pytest.mark.parametrize("machine", MACHINES)
def test_a_program_of_ours_may_have_segments_and_nothing_else_more(machine):
    column = MACHINES[machine][0]
    for table in (ABSENT, DENIED):
        for name, numbers in table.items():
            if numbers[column] is not None:
                allowed = asked(machine, numbers[column], segments=True) == ALLOW
                assert allowed == (name == "shmget"), name


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
