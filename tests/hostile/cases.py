"""One hostile server: what it does, and the result it must have."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import mcp.client.session  # noqa: F401  before any clock runs: seconds on a busy machine

from assets.servers.probe.remote_probe import probe_remote
from assets.servers.probe.remote_transport import RemotePolicy
from assets.servers.probe.session import ProbePolicy
from tests.support.http_mcp import Call, serve_script

GOOD = "serve([tool('a'), tool('b')])"


@dataclass(frozen=True)
class Case:
    """kind: of the taxonomy, or None where its tools are listed all the same; then `tools` are
    their names. limits: fields of SandboxPolicy that differ from the suite's; list_s: seconds for
    the list, more where a sound end needs work that a busy machine is slow at."""

    source: str
    kind: str | None = None
    tools: tuple[str, ...] = ("a", "b")
    limits: Mapping[str, Any] = field(default_factory=dict)
    list_s: float = 1.5


def make_cases(sources: Mapping[str | None, Mapping[str, str]]) -> dict[str, Case]:
    """sources: kind -> {name: source}."""
    return {name: Case(x, kind) for kind, named in sources.items() for name, x in named.items()}


def answering(what: str, before: str = "") -> str:
    """The handshake, then `what` for the first `tools/list` (`m`), then silence."""
    return f"welcome(read()); read(); m = read()\n{before}\n{what}\ntime.sleep(600)"


def before_list(action: str) -> str:
    """A good server that does something each time before it lists its tools."""
    return f"serve([tool('a'), tool('b')], lambda: {action})"


def raw(listed: str) -> str:
    text = f'{{"jsonrpc": "2.0", "id": %d, "result": {{"tools": {listed}}}}}\\n'
    return answering(f"os.write(1, ({text!r} % m['id']).replace('\\\\n', chr(10)).encode())")


_OFFERS = """while True:
    m = read()
    if m['method'] == 'initialize':
        answer(m['id'], {'protocolVersion': '2025-06-18', 'serverInfo': {'name': 's',
            'version': '1'}, 'capabilities': {'tools': {}, 'prompts': {}, 'resources': {}}})
    elif m['method'] == 'tools/list':
        answer(m['id'], {'tools': [tool('a'), tool('b')]})"""
_DEEP = '{"a": ' * 5000 + "1" + "}" * 5000
_LISTS = "answer(m['id'], {'tools': [tool('a'), tool('b')]})"
_HALF_A_LIST = 'os.write(1, b\'{"jsonrpc": "2.0", "id": 1, "result": {"tools": [\')'
_EVIL = "{'tools': [tool('evil')]}"
_FILL, _MORE = "f = 0\nwhile True:\n    f += 1; ", {"memory_mb": 1024}
_DRIP = "for _ in iter(int, 1): os.write(1, b' '); time.sleep(0.02)"
_ASKED = ("sampling/createMessage", "elicitation/create", "roots/list", "x/y")
_A = '{"name": "a", "inputSchema": {"type": "object"}}'

LISTS = make_cases(
    {
        "no_tools": {"no tools": "serve([])"},
        "protocol_error": {
            "tools is no list": "serve({'a': 1})",
            "tools is null": "serve(None)",
            "the result is a list": answering("answer(m['id'], [tool('a')])"),
            "an error and a result": answering(
                "send({'jsonrpc': '2.0', 'id': m['id'], 'result': {'tools': [tool('evil')]},"
                " 'error': {'code': -1, 'message': 'no'}})"
            ),
            "Result for result": answering(
                f"send({{'jsonrpc': '2.0', 'id': m['id'], 'Result': {_EVIL}}})"
            ),
            "a member twice in the result": raw('[]}, "result": {"tools": [{"name": "evil"}]'),
            "NaN in the list": raw(f'[{_A}, {{"name": "b", "x": NaN}}]'),
            "infinity in the list": raw(f'[{_A}, {{"name": "b", "x": 1e999}}]'),
            "nesting without end in a schema": raw(f'[{{"name": "a", "inputSchema": {_DEEP}}}]'),
            "invalid UTF-8 in the list": answering(
                'os.write(1, b\'{"jsonrpc": "2.0", "id": %d, "result": {"tools":'
                ' [{"name": "\\xff\\xfe"}]}}\\n\' % m[\'id\'])'
            ),
        },
        "oversize": {
            "a cursor without end": "welcome(read()); read()\n"
            "while True:\n"
            "    m = read(); answer(m['id'], {'tools': [tool('t' + m['id'].__str__())],"
            " 'nextCursor': str(m['id'])})",
            "empty pages without end": "welcome(read()); read()\n"
            "while True:\n    m = read(); answer(m['id'], {'tools': [], 'nextCursor':"
            " str(m['id'])})",
        },
        None: {
            "a cursor of 3 MB": "welcome(read()); read()\n"
            "answer(read()['id'], {'tools': [tool('a')], 'nextCursor': 'x' * (3 << 20)})\n"
            "answer(read()['id'], {'tools': [tool('b')]}); time.sleep(600)",
            "a cursor that is no text": answering(
                "answer(m['id'], {'tools': [tool('a'), tool('b')], 'nextCursor': {'x': 1}})"
            ),
            "three pages": "welcome(read()); read()\n"
            "answer(read()['id'], {'tools': [tool('a')], 'nextCursor': '1'})\n"
            "answer(read()['id'], {'tools': [], 'nextCursor': '2'})\n"
            "answer(read()['id'], {'tools': [tool('b')]}); time.sleep(600)",
            "Result beside result": answering(
                "send({'jsonrpc': '2.0', 'id': m['id'], 'Result': {'tools': [tool('evil')]},"
                " 'result': {'tools': [tool('a'), tool('b')], 'Tools': [tool('evil')]}})"
            ),
            "prompts and resources hang": _OFFERS,
            "prompts and resources flood": "n = 0\n"
            + _OFFERS.replace("= read()", "= read(); n += 1")
            + "\n    elif 'id' in m:\n"
            "        one = m['method'].split('/')[0]\n"
            "        answer(m['id'], {one: [{'name': 'x', 'uri': 'file:///x'}] * 500,"
            " 'nextCursor': str(n)})",
            "prompts and resources are 100 MB": _OFFERS + "\n    elif 'id' in m:\n"
            "        while True: os.write(1, b'x' * 65536)",
            "it rewrites itself before it lists": "def rewrite():\n"
            "    for path in (__file__, '/srv/server/new.py'):\n"
            "        try: open(path, 'a').write('# evil')\n"
            "        except OSError: continue\n"
            "        tools.append(tool('rewrote'))\n"
            "tools = [tool('a'), tool('b')]\nserve(tools, rewrite)",
            "odd serverInfo and capabilities": "while True:\n"
            "    m = read()\n"
            "    if m['method'] == 'initialize':\n"
            "        answer(m['id'], {'protocolVersion': '2025-06-18', 'capabilities': {'tools':"
            " {}},"
            " 'serverInfo': {'name': 'x' * 100000, 'version': '\\x1b[31m'},"
            " 'instructions': 'y' * 9999})\n"
            "    elif m['method'] == 'tools/list':\n"
            "        answer(m['id'], {'tools': [tool('a'), tool('b')]})",
        },
    }
) | {
    "tools of every wrong type": Case(
        "serve([None, 1, 'x', [], [[]], True, {}, {'name': None}, tool('a')])",
        tools=("None", "None", "a"),
    ),
    "10,000 tools": Case("serve([tool(f't{i}') for i in range(10000)])", "oversize", list_s=15.0),
    "the same cursor again": Case(
        "welcome(read()); read()\n"
        "while True: answer(read()['id'], {'tools': [tool('t')], 'nextCursor': 'x'})",
        tools=("t",),
    ),
    "a name of 1 MB": Case("serve([tool('n' * (1 << 20))])", tools=("n" * (1 << 20),)),
    "the same name a hundred times": Case("serve([tool('a')] * 100)", tools=("a",) * 100),
}


EATERS = make_cases(
    {
        "out_of_memory": {
            "memory": "x = []\nwhile True: x.append(bytearray(8 << 20))",
            "shared memory": "import mmap\nx = []\nwhile True:\n    m = mmap.mmap(-1, 8 << 20)"
            "; m.write(b'x' * (8 << 20)); x.append(m)",
            "memory of many processes": "x = []\nfor _ in range(12):\n    if os.fork() == 0:\n"
            "        x = bytearray(40 << 20)"
            "\n        time.sleep(600)\ntime.sleep(600)",
            "memory while it lists": "def eat():\n    x = []\n    while True:"
            " x.append(bytearray(8 << 20))\n"
            "serve([tool('a')], eat)",
        },
        "crashed": {
            "memory in files nobody maps": "x = []\nwhile True:\n    x.append(os.memfd_create('x'))"
            "\n    os.write(x[-1], b'x' * (4 << 20))",
            "descriptors": "x = []\nwhile True: x.append(os.pipe())",
        },
        "too_many_processes": {
            "threads": "import threading\nwhile True: threading.Thread(target=time.sleep,"
            " args=(600,)).start()"
        },
        "disk_full": {
            "the disk": _FILL + "open(f'/tmp/{f}', 'wb').write(b'x' * (1 << 20))",
            "home": "home = os.environ['HOME']\n"
            f"{_FILL}open(f'{{home}}/{{f}}', 'wb').write(b'x' * (1 << 20))",
            "shared memory files": _FILL + "open(f'/dev/shm/{f}', 'wb').write(b'x' * (1 << 20))",
            "one large file": "open('/tmp/f', 'wb').write(b'x' * (64 << 20))",
            "one large file with holes": "os.truncate(os.open('/tmp/f', 66), 1 << 40)",
        },
    }
) | {
    "forks": Case("while True: os.fork()", "too_many_processes", limits=_MORE),
    "forks that leave the group": Case(
        "while True:\n    if os.fork() == 0: os.setsid()", "too_many_processes", limits=_MORE
    ),
    "inodes": Case(_FILL + "os.mkdir(f'/tmp/{f}')", "disk_full", limits={"memory_mb": 512}),
}


WIRE = make_cases(
    {
        "oversize": {
            "flood without a newline": "while True: os.write(1, b'x' * 65536)",
            "flood of empty lines": "while True: os.write(1, b'\\n' * 65536)",
            "flood of valid messages": "while True: notify('progress', x='y' * 60000)",
            "one message of 100 MB": "os.write(1, b'{')\nfor _ in range(1600): os.write(1, b'x' *"
            " 65536)",
            "a list of 100 MB": answering(
                f"{_HALF_A_LIST}\nfor _ in range(1600): os.write(1, b'\"' + b'x' * 65536 + b'\",')"
            ),
            "100 MB of its environment": "while True: print(dict(os.environ), 'x' * 50000)",
        },
        "timeout_start": {
            "hang at start": "time.sleep(600)",
            "busy loop at start": "while True: pass",
            "never reads": "while True: time.sleep(0.2)",
            "half a message, then a hang": "os.write(1, b'{\"jsonrpc\": '); time.sleep(600)",
            "one byte at a time before the handshake": _DRIP,
            "output closed at start": "os.close(1); time.sleep(600)",
            "all streams closed": "for fd in (0, 1, 2): os.close(fd)\ntime.sleep(600)",
        },
        "timeout_list": {
            "half a list, then a hang": answering(_HALF_A_LIST),
            "one byte at a time in the list": answering(_DRIP),
            "output closed after the handshake": "welcome(read()); read(); os.close(1);"
            " sys.stdin.read(); time.sleep(600)",
            "never lists": "welcome(read()); time.sleep(600)",
            "a protocol of the future": "welcome(read(), '2999-01-01'); time.sleep(600)",
        },
        "protocol_error": {
            "talks, but no JSON-RPC": "print('ready', flush=True); time.sleep(600)",
            "speaks HTTP": "os.write(1, b'HTTP/1.1 200 OK\\r\\n\\r\\n{}\\r\\n'); time.sleep(600)",
            "speaks with length headers": "m = read(); os.write(1, b'Content-Length: 2\\r\\n\\r\\n"
            "{}\\r\\n'); time.sleep(600)",
            "speaks UTF-16": "m = read() | {'result': {}}; os.write(1, json.dumps(m)"
            ".encode('utf-16') + b'\\n'); time.sleep(600)",
            "a wrong id": answering("answer(m['id'] + 7, {'tools': [tool('evil')]})"),
            "an id of null": answering("answer(None, {'tools': [tool('evil')]})"),
            "a handshake with a wrong id": "m = read(); answer('x', {'protocolVersion':"
            " '2025-06-18'}); time.sleep(600)",
            "a handshake that is a list": "m = read(); answer(m['id'], [1, 2]); time.sleep(600)",
            "a handshake without capabilities": "answer(read()['id'], {'protocolVersion': 7});"
            " time.sleep(600)",
            "an error of odd types": answering("fail(m, 'x', [])"),
        },
        "crashed": {
            "exit without a word": "sys.exit(3)",
            "exit in mid-handshake": "read(); sys.stdout.write('{\"json'); sys.exit(0)",
            "exit in mid-list": answering(f"{_HALF_A_LIST}; sys.exit(0)"),
            "exit between two pages": "welcome(read()); read(); m = read()\n"
            "answer(m['id'], {'tools': [tool('a')], 'nextCursor': '1'}); sys.exit(4)",
            "killed by its own signal": "os.kill(os.getpid(), 11)",
            "kills its whole group": "read(); os.killpg(0, 9)",
            "the parent leaves and a child serves": "if os.fork(): os._exit(0)\ntime.sleep(1)\n"
            + GOOD,
        },
        "needs_secret": {
            "asks for a secret": "sys.exit('Error: NOTION_API_KEY is required')",
            "an error for an answer": "fail(read(), -32000, 'Unauthorized: token missing');"
            " time.sleep(600)",
        },
        "needs_argument": {"asks for an argument": "sys.exit('usage: server [-h] DIRECTORY')"},
        "needs_network": {
            "wants the network": "import socket; socket.create_connection(('127.0.0.1', 9))"
        },
        "needs_software": {"lacks a module": "import no_such_module_anywhere"},
        "no_tools": {"no such method": answering("fail(m, -32601, 'Method not found')")},
        None: {
            "logs on standard output": "print('starting…', flush=True); " + GOOD,
            "invalid UTF-8 before the handshake": "os.write(1, b'\\xff\\xfe\\n'); " + GOOD,
            "NaN and huge numbers before the handshake": 'os.write(1, b\'{"a": NaN}\\n{"b": 1\' +'
            " b'0' * 9000 + b'}\\n'); " + GOOD,
            "nesting without end before the handshake": "os.write(1, b'[' * 100000 + b'\\n'); "
            + GOOD,
            "100 MB on standard error": "[os.write(2, b'e' * 65536) for _ in range(1600)]; " + GOOD,
            "standard error closed": "os.close(2); " + GOOD,
            "colours and control characters": "os.write(2, b'\\x1b[31m\\x07\\x00' * 999); " + GOOD,
            "a storm of notifications before the handshake": "[notify('message', data='x')"
            " for _ in range(20000)]; " + GOOD,
            "a storm of notifications before the list": before_list(
                "[notify('tools/list_changed') for _ in range(20000)]"
            ),
            "sampling, elicitation and roots are asked for": before_list(
                f"[ask('s' + m, m) for m in {_ASKED[:3]}]"
            ),
            "requests are declined": "def ask_all():\n"
            f"    for m in {_ASKED}:\n"
            "        ask(m, m, messages=[], maxTokens=9, message='key?',"
            " requestedSchema={'type': 'object', 'properties': {}})\n"
            "        answer = read()\n"
            "        assert answer['id'] == m and 'error' in answer, answer\n"
            "serve([tool('a'), tool('b')], ask_all)",
            "many requests": before_list("[ask(i, 'sampling/createMessage') for i in range(5000)]"),
            "a request with our own id": answering(_LISTS, "ask(m['id'], 'roots/list')"),
            "two answers for one id": answering(f"{_LISTS}; answer(m['id'], {_EVIL})"),
            "answers before the request": "m = read(); [answer(m['id'] + i, {'tools':"
            " [tool('evil')]}) for i in range(1, 9)]\n"
            "welcome(m); " + GOOD,
            "a batch of answers": answering(
                "send([{'jsonrpc': '2.0', 'id': 99, 'result': {}}, {'jsonrpc': '2.0',"
                " 'id': m['id'], 'result': {'tools': [tool('a'), tool('b')]}}])"
            ),
            "SIGTERM ignored": "import signal; signal.signal(15, signal.SIG_IGN); " + GOOD,
            "every signal ignored": "import signal\nfor s in set(signal.valid_signals()) - {9,"
            " 19}:\n"
            "    signal.signal(s, signal.SIG_IGN)\n" + GOOD,
            "a daemon is left behind": "if os.fork() == 0:\n    os.setsid()\n"
            "    if os.fork(): os._exit(0)\n"
            "    for fd in (0, 1, 2): os.close(fd)\n    time.sleep(600)\n" + GOOD,
            "children hold its output": "if os.fork() == 0:\n    os.setsid(); time.sleep(600)\n"
            + GOOD,
        },
    }
) | {
    "processor time without end": Case("while True: pass", "oversize", limits={"cpu_s": 1}),
    "an id of text": Case(answering("answer(str(m['id']), {'tools': [tool('a')]})"), tools=("a",)),
}


# What ends by its content must not meet a clock on a busy machine: a test of a clock sets its own.
LIMITS = ProbePolicy(start_s=20.0, list_s=20.0, extras_s=0.5)
POLICY = RemotePolicy(allow_loopback=True, max_mb=4, message_mb=2, wall_s=40.0)
CHUNK = b"x" * 65536


def probe_script(script, transport="http", limits=LIMITS, policy=POLICY, **more):
    with serve_script(script) as here:
        found = probe_remote(here.url, transport=transport, limits=limits, policy=policy, **more)
    return found, here


def write_endlessly(call: Call, data: bytes = CHUNK) -> None:
    call.for_ever(lambda: call.write(data), pause_s=0)


def make_chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


def keep_silent(call: Call) -> None:
    call.for_ever()
