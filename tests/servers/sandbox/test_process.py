"""Processes in the sandbox and who of them is idle; the sandbox's certificate."""

import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import psutil
import pytest

from assets.servers.probe.probe import probe
from assets.servers.sandbox import bubblewrap, certificate, process, spec, watchdog
from assets.servers.sandbox.certificate import certify, judge_outcomes, run_preflight
from assets.servers.sandbox.process import start
from assets.servers.sandbox.spec import HOME, SandboxLaunch, SandboxMount, SandboxPolicy
from assets.servers.sandbox.toolchain import find_toolchain
from tests.support.cases import cases
from tests.support.untrusted_server import CONVERSATION, require_sandbox, tool_names, write_launch
from warehouse import process_identity

RACES = int(os.environ.get("TOOLMILL_TEST_RACES", "60"))


def _run(*argv, **facts):
    with start(SandboxLaunch(tuple(argv), **facts), SandboxPolicy()) as jailed:
        out, err = jailed.process.communicate(timeout=60)
        return out.decode(), err.decode(), jailed.exit_status()


@pytest.fixture
def real():
    require_sandbox()


@cases(
    "code, status",
(0, (0, None)), (3, (3, None)), (137, (None, "SIGKILL")), (-9, (None, "SIGKILL")),
     (None, (None, None)), (255, (255, None)),
)  # fmt: skip
def test_an_exit_is_a_code_or_a_signal(code, status):
    assert process.describe_exit(code) == status


@pytest.mark.usefixtures("real")
def test_a_command_runs_by_bubblewrap_with_its_environment_and_its_folder(tmp_path):
    tmp_path.chmod(0o755)
    (tmp_path / "x").write_text("here")
    where = {"mounts": (SandboxMount.same(tmp_path),), "cwd": str(tmp_path)}
    command = 'cat x; echo "$WORD"; pwd'
    out, _, status = _run("sh", "-c", command, env={"WORD": "a b\nc"}, **where)
    assert (out, status) == (f"herea b\nc\n{tmp_path}\n", (0, None))
    assert process.choose_backend(SandboxPolicy()).name == "bubblewrap"


@pytest.mark.usefixtures("real")
def test_a_granted_folder_that_becomes_a_link_meanwhile_is_never_shown(tmp_path):
    """Another server that may write the folder above swaps it while launches are under way."""
    tmp_path.chmod(0o755)
    granted, private, link = tmp_path / "granted", tmp_path / "private", tmp_path / "link"
    for folder in (granted, private):
        folder.mkdir(mode=0o755)
        (folder / "whose").write_text(folder.name)
    link.symlink_to(private)
    over = threading.Event()

    def swap():
        while not over.wait(0.0002):
            for one, other in (("granted", "aside"), ("link", "granted")):
                os.rename(tmp_path / one, tmp_path / other)
            for one, other in (("granted", "link"), ("aside", "granted")):
                os.rename(tmp_path / one, tmp_path / other)

    mounts = (SandboxMount(granted, "/x", nofollow=True),)
    results: Counter[str] = Counter()
    with ThreadPoolExecutor(1) as others:
        swapping = others.submit(swap)
        try:
            for _ in range(RACES):
                try:
                    results[_run("cat", "/x/whose", mounts=mounts)[0]] += 1
                except spec.UnusableGrant:
                    results["refused"] += 1
        finally:
            over.set()
        swapping.result()
    assert results["private"] == 0, results
    assert (results.total(), _run("cat", "/x/whose", mounts=mounts)[0]) == (RACES, "granted")


@pytest.mark.usefixtures("real")
@cases("nofollow", False, True)
def test_no_descriptor_of_the_host_reaches_a_server(tmp_path, nofollow):
    """One of a folder would lead out of it, by `..`."""
    tmp_path.chmod(0o755)
    mounts = (SandboxMount(tmp_path, "/x", nofollow=nofollow),)
    out, _, _ = _run("sh", "-c", "ls -l /proc/self/fd /proc/1/fd | cut -d'>' -f2-", mounts=mounts)
    assert str(tmp_path) not in out
    assert not [line for line in out.splitlines() if line.startswith(" /") and "proc" not in line]


@cases("name", "LD_PRELOAD", "LD_AUDIT", "GCONV_PATH", "GLIBC_TUNABLES")
def test_nothing_is_loaded_into_the_program_that_sets_the_limits(name):
    launch = SandboxLaunch(("true",), {name: "/x.so"})
    with pytest.raises(spec.LaunchRefused, match=f"variable {name}: .*limits"):
        bubblewrap.BubblewrapBackend().command(launch, SandboxPolicy())


@pytest.fixture
def bare_host(monkeypatch):
    """A host without any program of a process."""
    monkeypatch.setattr(shutil, "which", lambda name, path=None: None)
    bubblewrap._try_once.cache_clear()
    yield
    bubblewrap._try_once.cache_clear()


@pytest.mark.usefixtures("bare_host")
def test_a_missing_program_is_named_with_the_way_to_get_it_and_to_opt_out():
    with pytest.raises(process.SandboxUnavailable, match="apt-get install bubblewrap") as refused:
        process.preflight()
    assert 'sandbox.backend = "none"' in str(refused.value)
    for name in ("bubblewrap", "none"):  # that is named is no guess
        with pytest.raises(process.SandboxUnavailable, match="not installed"):
            process.choose_backend(SandboxPolicy(backend=name))


@cases(
    "root, reason, fix",
    (True, "Creating new namespace failed: Operation not permitted", "CAP_SYS_ADMIN"),
    (False, "setting up uid map: Permission denied", "AppArmor"),
    (False, "Unknown option --disable-userns", "0.8 or later"),
)
def test_a_kernel_that_refuses_gets_its_remedy(monkeypatch, root, reason, fix):
    monkeypatch.setattr(bubblewrap.os, "geteuid", lambda: 0 if root else 1000)
    assert fix in bubblewrap._find_remedy(reason)


@pytest.mark.skipif(process.os.geteuid() != 0, reason="only root can become somebody else")
@pytest.mark.usefixtures("real")
def test_an_ordinary_user_has_the_same_sandbox():
    """The other branch: one bubblewrap, by nobody."""
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "assets" / "servers" / "sandbox"
        shutil.copytree(Path(process.__file__).parent, package)
        (Path(folder) / "warehouse").mkdir()
        shutil.copy(process_identity.__file__, Path(folder) / "warehouse")
        Path(folder).chmod(0o755)
        become = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        command = [*become, "/usr/bin/python3", "-c", AS_NOBODY]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=folder)
    if "SandboxUnavailable" in done.stderr:
        pytest.skip("this kernel refuses user namespaces to ordinary users")
    assert done.stdout.split() == ["65534", "tmp", "1"], done.stderr


AS_NOBODY = """
from assets.servers.sandbox.spec import SandboxLaunch, SandboxPolicy
from assets.servers.sandbox.process import start

command = (
    "id -u; ls /root 2>/dev/null; touch /tmp/ok && echo tmp;"
    " (unshare -U true || echo 1) 2>/dev/null; touch /dev/x /x 2>/dev/null && echo leak"
)
with start(SandboxLaunch(("sh", "-c", command)), SandboxPolicy(processes=32)) as jailed:
    out, err = jailed.process.communicate(timeout=60)
print(out.decode())
"""


RESTS = watchdog.ProcessStat(parent=1, ticks=7, threads=1, resident=0)


@pytest.fixture
def watch():
    watched = watchdog.SandboxWatchdog(cast(Any, None), SandboxPolicy())
    watched._note_activity([RESTS], time.monotonic())
    return watched


@cases(
    "stat, times, every_s, least, most",
    (RESTS, 20, 0.05, 0.99, 1.01),
    (replace(RESTS, ticks=8), 1, 0.05, 0.0, 0.0),  # processor time ends idleness
    (replace(RESTS, at_work=True), 100, 0.05, 0.0, 0.0),  # it waits for a processor
    # Our own thread was starved for five seconds: the server may have been so, too.
    (RESTS, 1, 5.0, 0.0, 0.2),
)
def test_a_server_is_idle_as_long_as_it_is_seen_to_rest(watch, stat, times, every_s, least, most):
    start = watch._seen_at
    for n in range(1, times + 1):
        watch._note_activity([stat], start + n * every_s)
    assert least <= watch.idle_s <= most


NONE = SandboxPolicy(backend="none", memory_mb=192, wall_s=20.0, open_files=77)


def run(*argv, **facts):
    with start(SandboxLaunch(tuple(argv), **facts), NONE) as jailed:
        out, err = jailed.process.communicate(timeout=60)
        assert jailed.exit_status() == (0, None), err
        return out.decode()


def test_paths_of_a_server_are_moved_to_the_hosts_and_mounts_of_runtimes_stay(tmp_path):
    source = "serve([tool(__file__), tool(os.environ['WHERE'])])"
    result = probe(write_launch(tmp_path, source, WHERE="/srv/server/data"), NONE, CONVERSATION)
    assert tool_names(result) == [str(tmp_path / "untrusted.py"), str(tmp_path / "data")]
    python = find_toolchain().python
    mounts = tuple(SandboxMount.same(path) for path in find_toolchain().binds)
    assert run(str(python), "-c", "print(1)", mounts=mounts) == "1\n"


def test_its_environment_and_home_are_its_own_and_leaving_ends_what_left_the_group(monkeypatch):
    monkeypatch.setenv("SECRET_OF_THE_HOST", "42")
    output = run("sh", "-c", f"env; echo x > {HOME}/f; pwd; ulimit -n", env={"KEY": "v"})
    lines = output.splitlines()
    assert "SECRET_OF_THE_HOST" not in output
    assert {"KEY=v", "77"} <= set(lines)
    assert {"HOME", "PATH", "TMPDIR"} <= {line.partition("=")[0] for line in lines}
    home = next(line for line in lines if line.startswith("HOME="))[5:]
    assert home != str(Path.home())
    assert home in lines  # where it was started
    assert not Path(home).exists()
    sleep = f"sleep 600.{os.getpid()}"
    left = f"setsid sh -c '{sleep} & echo >up; {sleep}' >/dev/null 2>&1 </dev/null"
    run("sh", "-c", f"{left} & until [ -e up ]; do sleep 0.01; done")
    words = sleep.split()
    started = [p for p in psutil.process_iter(["cmdline"]) if p.info["cmdline"] == words]
    assert psutil.wait_procs(started, timeout=60)[1] == []


@cases(
    "text, placed",
    ("/srv/server/x", "/h/x"),
    ("--dir=/srv/server", "--dir=/h"),
    ("/srv/server-other", "/srv/server-other"),
    ("/srv/server/data/y", "/d/y"),
    ("/same/z", "/same/z"),
)
def test_only_whole_paths_are_moved(text, placed):
    places = {"/srv/server": "/h", "/srv/server/data": "/d", "/same": "/same"}
    assert process._replace_paths(text, places) == placed


def test_a_process_that_still_sees_the_hosts_tmp_is_not_blamed_for_it():
    """While bubblewrap sets up, its root is ours: a /tmp with a million files failed a server."""
    assert watchdog._read_private_disks([os.getpid()]) == []


REFUSED = dict.fromkeys(certificate._ATTEMPTS, "refused")
GOOD = REFUSED | dict.fromkeys(certificate._CONTROLS, "worked")
ABOUT = {"backend": "test", "suite": "s", "network": "none"}


@pytest.fixture(autouse=True)
def uncached(monkeypatch):
    monkeypatch.setattr(certificate, "_cached", {})


@pytest.fixture
def toolchain():
    require_sandbox()
    return find_toolchain()


def test_the_sandbox_of_this_host_passes_and_is_another_only_with_the_network(toolchain):
    given = certify(SandboxPolicy(), toolchain)
    assert given["passed"], given["escaped"]
    assert (given["fixes"], given["n"], given["attempts"]) == ([], len(REFUSED), REFUSED)
    assert (given["host_loopback"], given["fetch_network"]) == ("unreachable", "registries")
    first = certify(SandboxPolicy(), toolchain)
    assert certify(SandboxPolicy(wall_s=5), toolchain) is first  # once for a process
    certificate._cached.clear()
    assert certify(SandboxPolicy(memory_mb=512), toolchain) == first
    networked = certify(SandboxPolicy(network="full"), toolchain)
    assert networked["passed"], networked["escaped"]
    assert networked["attempts"]["has_a_route"] == "granted"
    assert networked["host_loopback"] == "reachable"
    wider = certify(SandboxPolicy(fetch_hosts=("files.example",)), toolchain)
    assert wider["fetch_hosts"] == ["files.example"]
    assert len({one["digest"] for one in (first, networked, wider)}) == 3


def test_a_folder_of_the_host_that_is_shown_is_found(toolchain, monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    tmp_path.chmod(0o755)
    given = certify(SandboxPolicy(), replace(toolchain, binds=(*toolchain.binds, tmp_path)))
    assert given["escaped"] == ["reads_a_file_of_the_host"]
    assert given["fixes"] == ["upgrade bubblewrap (0.8 or later)"]


def test_a_toolchain_that_shows_its_neighbours_is_found(monkeypatch, tmp_path):
    """`~/.local` as a whole, because Node lies there."""
    require_sandbox()
    local = tmp_path / ".local"
    (local / "bin").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path))
    found = find_toolchain()
    assert certify(SandboxPolicy(), replace(found, binds=(*found.binds, local / "bin")))["passed"]
    monkeypatch.setattr(spec, "is_private_folder", lambda path: False)
    given = certify(SandboxPolicy(), replace(found, binds=(*found.binds, local)))
    assert given["escaped"] == ["finds_a_file_beside_the_toolchain"]
    assert [path.name for path in tmp_path.rglob("*")] == [".local", "bin"]


def test_without_isolation_the_attempts_work_and_the_certificate_fails(toolchain):
    found = run_preflight(SandboxPolicy(backend="none"), toolchain)
    assert {name for name, outcome in found.items() if outcome == "worked"} >= {
        "reads_a_file_of_the_host", "shares_the_mounts_of_the_host",
        "shares_the_processes_of_the_host", "shares_the_network_of_the_host", "inherits_a_variable",
        "gains_by_a_setuid_program", *certificate._CONTROLS,
    }  # fmt: skip
    assert not Path("/usr/lib/canary").exists()
    given = certify(SandboxPolicy(backend="none"), find_toolchain())
    assert (given["backend"], given["passed"], given["n"]) == ("none", False, 0)
    assert (set(given["attempts"].values()), given["fetch_network"]) == ({"not run"}, "host")


@cases("source", "raise SystemExit", "print('[1]')", "import os; os.abort()")
def test_a_preflight_that_ran_nothing_does_not_pass(toolchain, monkeypatch, source):
    monkeypatch.setattr(certificate, "_PROGRAM", source)
    given = certify(SandboxPolicy(), toolchain)
    assert (given["passed"], given["escaped"]) == (False, ["nothing_ran"])


def test_each_control_must_work_and_each_attempt_be_refused():
    good = judge_outcomes(ABOUT, GOOD)
    assert good["passed"]
    for name in certificate._CONTROLS:
        assert judge_outcomes(ABOUT, {**GOOD, name: "refused"})["escaped"] == ["nothing_ran"]
    for name in REFUSED:
        given = judge_outcomes(ABOUT, {**GOOD, name: "worked"})
        assert given["escaped"] == [name]
        assert given["fixes"]
        assert given["digest"] != good["digest"]
        missing = {case: outcome for case, outcome in GOOD.items() if case != name}
        assert judge_outcomes(ABOUT, missing)["escaped"] == ["nothing_ran"]
