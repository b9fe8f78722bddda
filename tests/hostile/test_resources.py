"""Strangers that eat the machine: limits hold, the tree dies, the neighbours do not notice."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from tests.support.stranger import meet, names, require_sandbox


@pytest.fixture(autouse=True)
def sandbox():
    require_sandbox()


EATERS = {
    "memory": ("x = []\nwhile True: x.append(bytearray(8 << 20))", "out_of_memory"),
    "shared memory": (
        "import mmap\nx = []\nwhile True:\n    m = mmap.mmap(-1, 8 << 20)"
        "; m.write(b'x' * (8 << 20)); x.append(m)",
        "out_of_memory",
    ),
    "memory in files nobody maps": (
        "x = []\nwhile True:\n    x.append(os.memfd_create('x'))"
        "\n    os.write(x[-1], b'x' * (4 << 20))",
        "out_of_memory",
    ),
    "memory of many processes": (
        "x = []\nfor _ in range(12):\n    if os.fork() == 0:\n        x = bytearray(40 << 20)"
        "\n        time.sleep(600)\ntime.sleep(600)",
        "out_of_memory",
    ),
    "forks": ("while True: os.fork()", "too_many_processes"),
    "threads": (
        "import threading\nwhile True: threading.Thread(target=time.sleep, args=(600,)).start()",
        "too_many_processes",
    ),
    "the disk": (
        "f = 0\nwhile True:\n    f += 1; open(f'/tmp/{f}', 'wb').write(b'x' * (1 << 20))",
        "disk_full",
    ),
    "one large file": ("open('/tmp/f', 'wb').write(b'x' * (64 << 20))", "disk_full"),
}  # fmt: skip


@pytest.mark.parametrize("name", EATERS)
def test_the_limit_holds_and_says_its_name(name, tmp_path):
    source, kind = EATERS[name]
    result = meet(tmp_path, source, **({"memory_mb": 1024} if name == "forks" else {}))
    assert (result.status, result.error_kind) == ("failed", kind), result.hint


def test_inodes_are_counted(tmp_path):
    source = "f = 0\nwhile True:\n    f += 1; os.mkdir(f'/tmp/{f}')"
    result = meet(tmp_path, source, memory_mb=512)
    assert result.error_kind in ("disk_full", "timeout_start"), result.hint


def test_descriptors_run_out_inside_only(tmp_path):
    source = "x = []\nwhile True: x.append(os.open('/dev/null', 0))"
    assert meet(tmp_path, source, open_files=64).status == "failed"
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
    assert names(meet(tmp_path, source)) == ["a"]
    ours = psutil.Process()
    assert [p for p in ours.children(recursive=True) if "stranger.py" in " ".join(_argv(p))] == []
    assert [p for p in ours.children() if p.status() == psutil.STATUS_ZOMBIE] == []


def test_a_killed_host_process_takes_its_servers_with_it(tmp_path):
    source = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from assets.servers.launch import Launch, SandboxPolicy\n"
        "from assets.servers.sandbox import start\n"
        "jailed = start(Launch(('sh', '-c', 'echo up; sleep 1234.5')), SandboxPolicy())\n"
        "print(jailed.process.stdout.readline().decode(), flush=True); jailed.process.wait()\n"
    )
    root = str(Path(__file__).parents[2])
    host = subprocess.Popen([sys.executable, "-c", source, root], stdout=subprocess.PIPE)
    assert host.stdout
    assert host.stdout.readline().strip() == b"up"
    inside = psutil.Process(host.pid).children(recursive=True)
    host.kill()
    host.wait()
    host.stdout.close()
    _, alive = psutil.wait_procs(inside, timeout=10)
    assert len(inside) >= 2
    assert alive == []


def test_good_servers_beside_hostile_ones_list_the_same(tmp_path):
    hostile = [EATERS[name][0] for name in ("memory", "forks")]
    hostile += ["while True: os.write(1, b'x' * 65536)", "while True: pass"]
    good = "serve([tool('a'), tool('b')])"

    def one(item):
        folder = tmp_path / str(item[0])
        folder.mkdir()
        return meet(folder, item[1])

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(one, enumerate([*hostile, good, good, good])))
    assert [result.status for result in results] == ["failed"] * 4 + ["ok"] * 3
    assert all(names(result) == ["a", "b"] for result in results[4:])


def _argv(process):
    try:
        return process.cmdline()
    except psutil.Error:
        return []
