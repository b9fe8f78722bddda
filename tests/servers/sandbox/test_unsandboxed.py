"""The backend `none`: no isolation, but a clean start and a clean end."""

import os
from pathlib import Path

import psutil
import pytest

from assets.servers.probe.probe import probe
from assets.servers.sandbox import watchdog
from assets.servers.sandbox.process import _replace_paths, start
from assets.servers.sandbox.spec import HOME, SandboxLaunch, SandboxMount, SandboxPolicy
from assets.servers.sandbox.toolchain import find_toolchain
from tests.support.untrusted_server import CONVERSATION, tool_names, write_launch

NONE = SandboxPolicy(backend="none", memory_mb=192, wall_s=20.0, open_files=77)


def run(*argv, **facts):
    with start(SandboxLaunch(tuple(argv), **facts), NONE) as jailed:
        out, err = jailed.process.communicate(timeout=60)
        assert jailed.exit_status() == (0, None), err
        return out.decode()


def test_a_server_is_probed_with_its_paths_moved_to_the_hosts(tmp_path):
    source = "serve([tool(__file__), tool(os.environ['WHERE'])])"
    result = probe(write_launch(tmp_path, source, WHERE="/srv/server/data"), NONE, CONVERSATION)
    assert tool_names(result) == [str(tmp_path / "untrusted.py"), str(tmp_path / "data")]


def test_its_environment_is_clean_and_its_home_is_its_own_and_gone_afterwards(monkeypatch):
    monkeypatch.setenv("SECRET_OF_THE_HOST", "42")
    output = run("sh", "-c", f"env; echo x > {HOME}/f; pwd; ulimit -n", env={"KEY": "v"})
    lines = output.splitlines()
    assert "SECRET_OF_THE_HOST" not in output
    assert {"KEY=v", "77"} <= set(lines)
    home = next(line for line in lines if line.startswith("HOME="))[5:]
    assert home != str(Path.home())
    assert home in lines  # where it was started
    assert not Path(home).exists()


def test_leaving_ends_processes_that_left_the_group():
    sleep = f"sleep 600.{os.getpid()}"
    left = f"setsid sh -c '{sleep} & echo >up; {sleep}' >/dev/null 2>&1 </dev/null"
    run("sh", "-c", f"{left} & until [ -e up ]; do sleep 0.01; done")
    words = sleep.split()
    started = [p for p in psutil.process_iter(["cmdline"]) if p.info["cmdline"] == words]
    assert psutil.wait_procs(started, timeout=60)[1] == []


@pytest.mark.parametrize(
    ("text", "placed"),
    [
        ("/srv/server/x", "/h/x"),
        ("--dir=/srv/server", "--dir=/h"),
        ("/srv/server-other", "/srv/server-other"),
        ("/srv/server/data/y", "/d/y"),
        ("/same/z", "/same/z"),
    ],
)
def test_only_whole_paths_are_moved(text, placed):
    places = {"/srv/server": "/h", "/srv/server/data": "/d", "/same": "/same"}
    assert _replace_paths(text, places) == placed


def test_a_process_that_still_sees_the_hosts_tmp_is_not_blamed_for_it():
    """While bubblewrap sets up, its root is ours: a /tmp with a million files failed a server."""
    assert watchdog._read_private_disks([os.getpid()]) == []


def test_mounts_of_runtimes_stay_where_they_are(tmp_path):
    python = find_toolchain().python
    mounts = tuple(SandboxMount.same(path) for path in find_toolchain().binds)
    assert run(str(python), "-c", "print(1)", mounts=mounts) == "1\n"
