"""The catalogue, one untrusted server at a time: each is contained and has its kind."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import psutil
import pytest

from assets.contracts.canonical import contract_digest, index_contracts
from assets.servers.probe.failure_kinds import KINDS
from assets.servers.probe.probe import probe
from tests.hostile.cases import EATERS, LISTS, WIRE
from tests.support.paths import ROOT
from tests.support.untrusted_server import (
    CONVERSATION,
    POLICY,
    probe_source,
    require_sandbox,
    tool_names,
    write_launch,
)

CASES = {**WIRE, **LISTS, **EATERS}


@pytest.fixture(autouse=True)
def sandbox():
    require_sandbox()


@pytest.mark.parametrize("name", CASES)
def test_it_is_contained_and_classified(name, tmp_path):
    case = CASES[name]
    # Clocks for those alone that they are to end: 20,000 notifications took over 1.5 s once.
    start_s = 4.0 if case.kind == "timeout_start" else 60.0
    list_s = case.list_s if case.kind else 60.0
    result = probe_source(tmp_path, case.source, list_s, start_s, **case.limits)
    assert result.error_kind == case.kind, result.hint
    if case.kind:
        assert (result.status, result.tools) == ("failed", [])
        assert case.kind in KINDS
        assert result.hint
    else:
        assert (result.status, tool_names(result)) == ("ok", list(case.tools))
        index_contracts(result.tools)  # whatever it listed, it does no harm here
    json.dumps(result.tools, allow_nan=False)
    assert len(result.stderr_tail) <= 2000
    assert not any(ord(char) < 32 and char not in "\n\t" for char in result.stderr_tail)
    assert no_process_is_left()


def no_process_is_left() -> bool:
    """No untrusted server is among our children any more, and no zombie."""
    ours = psutil.Process()
    for process in ours.children(recursive=True):
        try:
            if process.status() == psutil.STATUS_ZOMBIE or "untrusted.py" in process.cmdline():
                return False
        except psutil.NoSuchProcess:
            continue
    return True


# Good servers of different kinds: pages, schemas, prompts, a child process, noise on stderr.
GOOD = [
    "serve([tool('a'), tool('b', description='B')])",
    "serve([tool(f't{i}', inputSchema={'type': 'object', 'properties': {'x': {'type': 'integer',"
    " 'minimum': i}}, 'required': ['x']}) for i in range(300)])",
    "welcome(read()); read()\n"
    "answer(read()['id'], {'tools': [tool('p1')], 'nextCursor': '1'})\n"
    "answer(read()['id'], {'tools': [tool('p2', annotations={'readOnlyHint': True})]})\nread()",
    "import subprocess\nserve([tool(subprocess.check_output(['echo', 'child']).decode().strip())])",
    "os.write(2, b'log\\n' * 2000); serve([tool('loud')])",
    "x = bytearray(40 << 20); serve([tool('large', outputSchema={'type': 'object'})])",
    "import threading\n[threading.Thread(target=time.sleep, args=(9,), daemon=True).start()"
    " for _ in range(8)]\nserve([tool('threads')])",
    "open(os.environ['HOME'] + '/f', 'wb').write(b'x' * (4 << 20)); serve([tool('writes')])",
]
HOSTILE = [
    *map(EATERS.get, ("memory", "forks", "threads", "the disk")),
    *map(WIRE.get, ("flood without a newline", "a daemon is left behind")),
    *(WIRE["100 MB on standard error"], LISTS["a cursor without end"]),
]


def outcome(result):
    """What must not depend on the neighbours."""
    digests = [contract_digest(tool) for tool in result.tools]
    return result.status, result.error_kind, result.pages, result.tools, digests


def test_eight_good_servers_beside_eight_hostile_ones_give_what_they_give_alone(tmp_path):
    # The clocks are long here: sixteen servers share what cores there are.
    patient = replace(CONVERSATION, start_s=30.0, idle_s=5.0, list_s=20.0)
    policy = replace(POLICY, wall_s=60.0)

    def meet(item):
        name, source, limits = item
        folder = tmp_path / name
        folder.mkdir()
        return probe(write_launch(folder, source), replace(policy, **limits), patient)

    alone = [meet((f"alone{i}", source, {})) for i, source in enumerate(GOOD)]
    assert [result.error_kind for result in alone] == [None] * len(GOOD)
    good = [(f"good{i}", source, {}) for i, source in enumerate(GOOD)]
    bad = [(f"bad{i}", case.source, dict(case.limits)) for i, case in enumerate(HOSTILE)]
    mixed = [item for pair in zip(bad, good, strict=True) for item in pair]
    with ThreadPoolExecutor(16) as pool:
        results = dict(zip((item[0] for item in mixed), pool.map(meet, mixed), strict=True))
    for place, before in enumerate(alone):
        assert outcome(results[f"good{place}"]) == outcome(before), GOOD[place]
    kinds = [results[f"bad{place}"].error_kind for place in range(len(HOSTILE))]
    assert kinds == [case.kind for case in HOSTILE]
    assert no_process_is_left()


def test_no_process_outlives_its_server(tmp_path):
    source = """
for _ in range(5):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            while True: time.sleep(31.4)
        os._exit(0)
serve([tool('a')])"""
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
        "from assets.servers.sandbox.spec import SandboxLaunch, SandboxPolicy\n"
        "from assets.servers.sandbox.process import start\n"
        "jailed = start(SandboxLaunch(('sh', '-c', 'echo up; sleep 1234.5')), SandboxPolicy())\n"
        "print(jailed.process.stdout.readline().decode(), flush=True); jailed.process.wait()\n"
    )
    root = str(ROOT)
    host = subprocess.Popen([sys.executable, "-c", source, root], stdout=subprocess.PIPE)
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
