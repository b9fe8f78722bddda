"""What untrusted servers leave behind, and what their neighbours notice: nothing."""

import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.hostile.test_untrusted_servers import no_process_is_left
from tests.support.paths import ROOT
from tests.support.untrusted_server import probe_source, require_sandbox, tool_names


@pytest.fixture(autouse=True)
def sandbox():
    require_sandbox()


def test_descriptors_run_out_inside_only(tmp_path):
    source = "x = []\nwhile True: x.append(os.open('/dev/null', 0))"
    assert probe_source(tmp_path, source, open_files=64).error_kind == "crashed"
    Path("/dev/null").read_bytes()  # ours did not


def test_no_process_outlives_its_server(tmp_path):
    source = (
        "for _ in range(5):\n"
        "    if os.fork() == 0:\n"
        "        os.setsid()\n"
        "        if os.fork() == 0:\n"
        "            while True: time.sleep(31.4)\n"
        "        os._exit(0)\n"
        "serve([tool('a')])"
    )
    before = set(psutil.pids())
    assert tool_names(probe_source(tmp_path, source)) == ["a"]
    assert no_process_is_left()
    assert [pid for pid in set(psutil.pids()) - before if "31.4" in _argv(pid)] == []


def test_our_descriptors_are_given_back(tmp_path):
    probe_source(tmp_path, "serve([tool('a')])")  # what is opened once for all
    before = psutil.Process().num_fds()
    for source in ("serve([tool('a')])", "sys.exit(1)", "os.close(1); time.sleep(9)"):
        probe_source(tmp_path, source)
    assert psutil.Process().num_fds() <= before


def test_a_killed_host_process_takes_its_servers_with_it(tmp_path):
    source = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from assets.servers.sandbox.spec import Launch, SandboxPolicy\n"
        "from assets.servers.sandbox.process import start\n"
        "jailed = start(Launch(('sh', '-c', 'echo up; sleep 1234.5')), SandboxPolicy())\n"
        "print(jailed.process.stdout.readline().decode(), flush=True); jailed.process.wait()\n"
    )
    root = str(ROOT)
    host = subprocess.Popen([sys.executable, "-c", source, root], stdout=subprocess.PIPE)
    assert host.stdout
    assert host.stdout.readline().strip() == b"up"
    inside = psutil.Process(host.pid).children(recursive=True)
    host.kill()
    host.wait()
    host.stdout.close()
    _, alive = psutil.wait_procs(inside, timeout=60)
    assert len(inside) >= 2
    assert alive == []


def _argv(pid: int) -> str:
    try:
        return " ".join(psutil.Process(pid).cmdline())
    except psutil.Error:
        return ""
