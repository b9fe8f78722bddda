"""The catalogue, one untrusted server at a time: each is contained and has its kind."""

import json
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import psutil
import pytest

from assets.contracts.canonical import ContractError, contract_digest, index_contracts
from assets.contracts.tool_diff import compare_tools
from assets.contracts.validate import find_schema_problem, validate_call
from assets.servers.deploy.deploy import DeploymentResult
from assets.servers.probe.failure_kinds import KINDS
from assets.servers.probe.probe import probe
from tests.hostile.cases import EATERS, LISTS, WIRE
from tests.support import paths, untrusted_server
from tests.support.untrusted_server import probe_source, require_sandbox, tool_names, write_launch

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
    clocks = {"list_s": list_s, "start_s": start_s}
    result = probe_source(tmp_path, case.source, clocks, **case.limits)
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
    patient = replace(untrusted_server.CONVERSATION, start_s=30.0, idle_s=5.0, list_s=20.0)
    policy = replace(untrusted_server.POLICY, wall_s=60.0)

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


def test_no_process_and_no_descriptor_outlives_its_server(tmp_path):
    source = """
for _ in range(5):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0: os.execvp('sleep', ['sleep', '3141.5'])
        os._exit(0)
serve([tool('a')])"""
    assert tool_names(probe_source(tmp_path, source)) == ["a"]
    assert no_process_is_left()

    def is_asleep() -> bool:
        return any("3141.5" in (p.info["cmdline"] or ()) for p in psutil.process_iter(["cmdline"]))

    deadline = time.monotonic() + 10  # the kernel ends a namespace in its own time
    while is_asleep() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_asleep()
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
    root = str(paths.ROOT)
    host = subprocess.Popen([sys.executable, "-c", source, root], stdout=subprocess.PIPE)
    assert host.stdout.readline().strip() == b"up"
    inside = psutil.Process(host.pid).children(recursive=True)
    host.kill()
    host.wait()
    host.stdout.close()
    _, alive = psutil.wait_procs(inside, timeout=60)
    assert len(inside) >= 2
    assert alive == []


def listed(tmp_path, schema):
    """The tools of a server whose tool `x` has this schema (Python source)."""
    result = probe_source(tmp_path, f"serve([tool('a'), {{'name': 'x', 'inputSchema': {schema}}}])")
    assert (result.status, tool_names(result)) == ("ok", ["a", "x"]), result.hint
    assert DeploymentResult.from_json(DeploymentResult(result).to_json()).probe == result
    return result.tools


def test_a_remote_ref_is_never_fetched(tmp_path):
    """Through probe, contract, schema check and the check of a call, nobody knocks."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/schema.json"
        schema = {
            "type": "object",
            "$schema": url,
            "$id": url,
            "properties": {"a": {"$ref": url}, "b": {"$dynamicRef": f"{url}#x"}},
            "allOf": [{"$ref": f"{url}#/definitions/x"}],
        }
        for one in (schema, {**schema, "$schema": "https://json-schema.org/draft/2020-12/schema"}):
            tools = listed(tmp_path, repr(one))
            for body in index_contracts(tools)[0].values():
                find_schema_problem(body["inputSchema"])
                validate_call(body, {"a": 1, "b": 2})
                changed = {**body, "inputSchema": {**body["inputSchema"], "required": ["a"]}}
                compare_tools([body], [changed])
            contract_digest(tools[1])
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()


CALLS = """
import json, sys
sys.path.insert(0, sys.argv[1])
from assets.contracts.canonical import index_contracts
from assets.contracts.repair.repair import repair_call
from assets.contracts.validate import find_schema_problem, validate_call
for body in index_contracts(json.loads(sys.stdin.read()))[0].values():
    problem = find_schema_problem(body["inputSchema"])
    arguments = {"a": "a" * 5000 + "!", "b": [1] * 50, "c": {"c": {"c": 1}}}
    flaws = validate_call(body, arguments)
    repair_call(body, arguments)
    print(json.dumps([body["name"], bool(problem), len(flaws)]), flush=True)
"""

HEAVY = {
    "a pattern that backtracks": {"properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}},
    "nested stars": {"properties": {"a": {"pattern": "^((a*)*)*b$"}}},
    "overlapping alternatives": {"properties": {"a": {"pattern": "^(a|aa|a?)+$"}}},
    "patternProperties that backtrack": {"patternProperties": {"^(a|a)*b": {"type": "string"}}},
    "a pattern of 100 kB": {"properties": {"a": {"pattern": "(a?){50}" * 12_000}}},
    "a pattern that is none": {"properties": {"a": {"pattern": "(((("}}},
    "a counted repetition": {"properties": {"a": {"pattern": "^(a{1,999}){1,999}b$"}}},
    "a reference to itself": {"$ref": "#"},
    "references in a ring": {
        "$ref": "#/$defs/x",
        "$defs": {"x": {"$ref": "#/$defs/y"}, "y": {"$ref": "#/$defs/x"}},
    },
    "alternatives that multiply": {
        "$defs": {
            str(i): {"anyOf": [{"$ref": f"#/$defs/{i + 1}"}] * 4} if i < 20 else {"not": {}}
            for i in range(21)
        },
        "properties": {"a": {"$ref": "#/$defs/0"}},
    },
    "a multiple of almost nothing": {"properties": {"b": {"items": {"multipleOf": 1e-300}}}},
    "a choice of 5,000": {"properties": {"a": {"enum": list(range(5_000))}}},
    "300 forms": {"anyOf": [{"required": [f"n{n}"]} for n in range(300)]},
    "ten thousand members": {"properties": {f"p{i}": {"type": "string"} for i in range(10_000)}},
}


@pytest.fixture(scope="module")
def checked(tmp_path_factory):
    """{tool: (has a bad schema, number of flaws)} of one server that lists them all, each checked
    in another process; one that hangs is killed after three minutes, what follows is missing."""
    schemas = {name: {"type": "object", **schema} for name, schema in HEAVY.items()}
    listed = [{"name": name, "inputSchema": schema} for name, schema in schemas.items()]
    source = f"serve(json.loads({json.dumps(listed)!r}))"
    result = probe_source(tmp_path_factory.mktemp("heavy"), source)
    assert tool_names(result) == list(HEAVY), result.hint
    argv, tools = [sys.executable, "-c", CALLS, str(paths.ROOT)], json.dumps(result.tools).encode()
    try:
        out = subprocess.run(argv, input=tools, stdout=subprocess.PIPE, timeout=180).stdout
    except subprocess.TimeoutExpired as error:
        out = error.stdout or b""
    lines = [json.loads(line) for line in out.splitlines()]
    return {name: (bad, flaws) for name, bad, flaws in lines}


@pytest.mark.parametrize("name", HEAVY)
def test_a_call_against_it_is_checked_all_the_same(name, checked):
    bad, flaws = checked[name]
    assert bad or flaws


def test_half_a_surrogate_and_the_deepest_list_that_is_heard_can_be_kept_and_printed(tmp_path):
    result = probe_source(tmp_path, "serve([{**tool('b'), 'description': 'x' + chr(0xd800)}])")
    assert tool_names(result) == ["b"]
    again = DeploymentResult.from_json(DeploymentResult(result).to_json())
    assert again.probe.tools == result.tools
    for body in index_contracts(result.tools)[0].values():
        json.dumps(body).encode()
    # What is passed on must survive every recursion behind us; deeper is refused on arrival.
    deep = '{"a":' * 110 + "1" + "}" * 110
    tools = listed(tmp_path, f"json.loads({deep!r})")
    json.dumps(tools)
    try:
        contract_digest(tools[1])
    except ContractError:
        return
    assert "x" in index_contracts(tools)[0]
