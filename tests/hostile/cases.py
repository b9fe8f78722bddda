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


def answering(what: str, before: str = "") -> str:
    """The handshake, then `what` for the first `tools/list` (`m`), then silence."""
    return f"welcome(read()); read(); m = read()\n{before}\n{what}\ntime.sleep(600)"


def raw(listed: str) -> str:
    """Answers `tools/list` with this text for the list of tools, as it stands."""
    text = f'{{"jsonrpc": "2.0", "id": %d, "result": {{"tools": {listed}}}}}\\n'
    return answering(f"os.write(1, ({text!r} % m['id']).replace('\\\\n', chr(10)).encode())")


_DEEP = '{"a": ' * 5000 + "1" + "}" * 5000
_A = '{"name": "a", "inputSchema": {"type": "object"}}'

LISTS = {
    "no tools": Case("serve([])", "no_tools"),
    "tools is no list": Case("serve({'a': 1})", "protocol_error"),
    "tools is null": Case("serve(None)", "protocol_error"),
    "the result is a list": Case(answering("answer(m['id'], [tool('a')])"), "protocol_error"),
    "tools of every wrong type": Case(
        "serve([None, 1, 'x', [], [[]], True, {}, {'name': None}, tool('a')])",
        tools=("None", "None", "a"),
    ),
    "10,000 tools": Case("serve([tool(f't{i}') for i in range(10000)])", "oversize", list_s=15.0),
    "a cursor without end": Case(
        "welcome(read()); read()\n"
        "while True:\n"
        "    m = read(); answer(m['id'], {'tools': [tool('t' + m['id'].__str__())],"
        " 'nextCursor': str(m['id'])})",
        "oversize",
    ),
    "empty pages without end": Case(
        "welcome(read()); read()\n"
        "while True:\n    m = read(); answer(m['id'], {'tools': [], 'nextCursor': str(m['id'])})",
        "oversize",
    ),
    "the same cursor again": Case(
        "welcome(read()); read()\n"
        "while True: answer(read()['id'], {'tools': [tool('t')], 'nextCursor': 'x'})",
        tools=("t",),
    ),
    "a cursor of 3 MB": Case(
        "welcome(read()); read()\n"
        "answer(read()['id'], {'tools': [tool('a')], 'nextCursor': 'x' * (3 << 20)})\n"
        "answer(read()['id'], {'tools': [tool('b')]}); time.sleep(600)"
    ),
    "a cursor that is no text": Case(
        answering("answer(m['id'], {'tools': [tool('a'), tool('b')], 'nextCursor': {'x': 1}})")
    ),
    "three pages": Case(
        "welcome(read()); read()\n"
        "answer(read()['id'], {'tools': [tool('a')], 'nextCursor': '1'})\n"
        "answer(read()['id'], {'tools': [], 'nextCursor': '2'})\n"
        "answer(read()['id'], {'tools': [tool('b')]}); time.sleep(600)"
    ),
    "an error and a result": Case(
        answering(
            "send({'jsonrpc': '2.0', 'id': m['id'], 'result': {'tools': [tool('evil')]},"
            " 'error': {'code': -1, 'message': 'no'}})"
        ),
        "protocol_error",
    ),
    "Result beside result": Case(
        answering(
            "send({'jsonrpc': '2.0', 'id': m['id'], 'Result': {'tools': [tool('evil')]},"
            " 'result': {'tools': [tool('a'), tool('b')], 'Tools': [tool('evil')]}})"
        )
    ),
    "Result for result": Case(
        answering("send({'jsonrpc': '2.0', 'id': m['id'], 'Result': {'tools': [tool('evil')]}})"),
        "protocol_error",
    ),
    "Name beside name": Case(
        "serve([{**tool('a'), 'Name': 'evil', 'Description': 'evil'}, tool('b')])"
    ),
    "a member twice in a tool": Case(raw('[{"name": "evil", "name": "a"}]'), "protocol_error"),
    "a member twice in the result": Case(
        answering(
            'os.write(1, b\'{"jsonrpc": "2.0", "id": %d, "result": {"tools": []},'
            ' "result": {"tools": [{"name": "evil"}]}}\\n\' % m[\'id\'])'
        ),
        "protocol_error",
    ),
    "NaN in the list": Case(raw(f'[{_A}, {{"name": "b", "x": NaN}}]'), "protocol_error"),
    "infinity in the list": Case(raw(f'[{_A}, {{"name": "b", "x": 1e999}}]'), "protocol_error"),
    "an integer of 9,000 digits in the list": Case(
        raw(f'[{_A}, {{"name": "b", "x": 1{"0" * 9000}}}]'), "protocol_error"
    ),
    "nesting without end in a schema": Case(
        raw(f'[{{"name": "a", "inputSchema": {_DEEP}}}]'), "protocol_error"
    ),
    "nesting of 600 in a schema": Case(
        raw(f'[{{"name": "a", "inputSchema": {"[" * 600}{"]" * 600}}}]'), "protocol_error"
    ),
    "invalid UTF-8 in the list": Case(
        answering(
            'os.write(1, b\'{"jsonrpc": "2.0", "id": %d, "result": {"tools":'
            ' [{"name": "\\xff\\xfe"}]}}\\n\' % m[\'id\'])'
        ),
        "protocol_error",
    ),
    "half a surrogate in a name": Case(
        "serve([tool('a'), {**tool('b'), 'description': chr(0xd800)}])"
    ),
    "a name of 1 MB": Case("serve([tool('n' * (1 << 20))])", tools=("n" * (1 << 20),)),
    "the same name a hundred times": Case("serve([tool('a')] * 100)", tools=("a",) * 100),
    "prompts and resources hang": Case(
        "while True:\n"
        "    m = read()\n"
        "    if m['method'] == 'initialize':\n"
        "        answer(m['id'], {'protocolVersion': '2025-06-18', 'serverInfo': {'name': 's',"
        " 'version': '1'}, 'capabilities': {'tools': {}, 'prompts': {}, 'resources': {}}})\n"
        "    elif m['method'] == 'tools/list':\n"
        "        answer(m['id'], {'tools': [tool('a'), tool('b')]})"
    ),
    "prompts and resources flood": Case(
        "n = 0\n"
        "while True:\n"
        "    m = read(); n += 1\n"
        "    if m['method'] == 'initialize':\n"
        "        answer(m['id'], {'protocolVersion': '2025-06-18', 'serverInfo': {'name': 's',"
        " 'version': '1'}, 'capabilities': {'tools': {}, 'prompts': {}, 'resources': {}}})\n"
        "    elif m['method'] == 'tools/list':\n"
        "        answer(m['id'], {'tools': [tool('a'), tool('b')]})\n"
        "    elif 'id' in m:\n"
        "        one = m['method'].split('/')[0]\n"
        "        answer(m['id'], {one: [{'name': 'x', 'uri': 'file:///x'}] * 500,"
        " 'nextCursor': str(n)})"
    ),
    "prompts and resources are 100 MB": Case(
        "while True:\n"
        "    m = read()\n"
        "    if m['method'] == 'initialize':\n"
        "        answer(m['id'], {'protocolVersion': '2025-06-18', 'serverInfo': {'name': 's',"
        " 'version': '1'}, 'capabilities': {'tools': {}, 'prompts': {}, 'resources': {}}})\n"
        "    elif m['method'] == 'tools/list':\n"
        "        answer(m['id'], {'tools': [tool('a'), tool('b')]})\n"
        "    elif 'id' in m:\n"
        "        while True: os.write(1, b'x' * 65536)"
    ),
    "it rewrites itself before it lists": Case(
        "def rewrite():\n"
        "    for path in (__file__, '/srv/server/new.py'):\n"
        "        try: open(path, 'a').write('# evil')\n"
        "        except OSError: continue\n"
        "        tools.append(tool('rewrote'))\n"
        "tools = [tool('a'), tool('b')]\nserve(tools, rewrite)"
    ),
    "odd serverInfo and capabilities": Case(
        "while True:\n"
        "    m = read()\n"
        "    if m['method'] == 'initialize':\n"
        "        answer(m['id'], {'protocolVersion': '2025-06-18', 'capabilities': {'tools': {}},"
        " 'serverInfo': {'name': 'x' * 100000, 'version': '\\x1b[31m'},"
        " 'instructions': 'y' * 9999})\n"
        "    elif m['method'] == 'tools/list':\n"
        "        answer(m['id'], {'tools': [tool('a'), tool('b')]})"
    ),
}


EATERS = {
    "memory": Case("x = []\nwhile True: x.append(bytearray(8 << 20))", "out_of_memory"),
    "shared memory": Case(
        "import mmap\nx = []\nwhile True:\n    m = mmap.mmap(-1, 8 << 20)"
        "; m.write(b'x' * (8 << 20)); x.append(m)",
        "out_of_memory",
    ),
    "memory in files nobody maps": Case(
        "x = []\nwhile True:\n    x.append(os.memfd_create('x'))"
        "\n    os.write(x[-1], b'x' * (4 << 20))",
        "crashed",  # refused: no process of the sandbox need show what it holds
    ),
    "memory in files in flight": Case(
        "import socket\npair = socket.socketpair()\nfor _ in range(100):\n"
        "    f = os.memfd_create('x'); os.write(f, b'x' * (8 << 20))\n"
        "    socket.send_fds(pair[0], [b'x'], [f]); os.close(f)\nserve([tool('held')])",
        "crashed",
        limits={"file_mb": 64},
    ),
    "segments of System V": Case(
        "import ctypes\nlibc = ctypes.CDLL(None); libc.shmat.restype = ctypes.c_void_p\n"
        "for _ in range(100):\n"
        "    number = libc.shmget(0, 8 << 20, 0o1600); assert number >= 0\n"
        "    address = libc.shmat(number, None, 0); ctypes.memset(address, 1, 8 << 20)\n"
        "    libc.shmdt(ctypes.c_void_p(address))\nserve([tool('held')])",
        "crashed",
    ),
    "memory in its folders": Case(
        "for folder in ('/tmp', os.environ['HOME'], '/dev/shm'):\n"
        "    try:\n        for n in range(50):\n"
        "            open(f'{folder}/{n}', 'wb').write(b'x' * (8 << 20))\n"
        "    except OSError: pass\nserve([tool('held')], lambda: time.sleep(1))",
        "out_of_memory",
        limits={"tmp_mb": 512, "file_mb": 64},
    ),
    "memory of many processes": Case(
        "x = []\nfor _ in range(12):\n    if os.fork() == 0:\n        x = bytearray(40 << 20)"
        "\n        time.sleep(600)\ntime.sleep(600)",
        "out_of_memory",
    ),
    "memory while it lists": Case(
        "def eat():\n    x = []\n    while True: x.append(bytearray(8 << 20))\n"
        "serve([tool('a')], eat)",
        "out_of_memory",
    ),
    "forks": Case("while True: os.fork()", "too_many_processes", limits={"memory_mb": 1024}),
    "forks that leave the group": Case(
        "while True:\n    if os.fork() == 0: os.setsid()",
        "too_many_processes",
        limits={"memory_mb": 1024},
    ),
    "threads": Case(
        "import threading\nwhile True: threading.Thread(target=time.sleep, args=(600,)).start()",
        "too_many_processes",
    ),
    "the disk": Case(
        "f = 0\nwhile True:\n    f += 1; open(f'/tmp/{f}', 'wb').write(b'x' * (1 << 20))",
        "disk_full",
    ),
    "home": Case(
        "f, home = 0, os.environ['HOME']\n"
        "while True:\n    f += 1; open(f'{home}/{f}', 'wb').write(b'x' * (1 << 20))",
        "disk_full",
    ),
    "shared memory files": Case(
        "f = 0\nwhile True:\n    f += 1; open(f'/dev/shm/{f}', 'wb').write(b'x' * (1 << 20))",
        "disk_full",
    ),
    "one large file": Case("open('/tmp/f', 'wb').write(b'x' * (64 << 20))", "disk_full"),
    "one large file with holes": Case("os.truncate(os.open('/tmp/f', 66), 1 << 40)", "disk_full"),
    "inodes": Case(
        "f = 0\nwhile True:\n    f += 1; os.mkdir(f'/tmp/{f}')",
        "disk_full",
        limits={"memory_mb": 512},
    ),
    "descriptors": Case("x = []\nwhile True: x.append(os.open('/dev/null', 0))", "crashed"),
    "pipes": Case("x = []\nwhile True: x.append(os.pipe())", "crashed"),
}


WIRE = {
    "flood of lines": Case("while True: os.write(1, b'x\\n' * 10000)", "oversize"),
    "flood without a newline": Case("while True: os.write(1, b'x' * 65536)", "oversize"),
    "flood of empty lines": Case("while True: os.write(1, b'\\n' * 65536)", "oversize"),
    "flood of valid messages": Case(
        "while True: send({'jsonrpc': '2.0', 'method': 'notifications/progress',"
        " 'params': {'x': 'y' * 60000}})",
        "oversize",
    ),
    "one message of 100 MB": Case(
        "os.write(1, b'{')\nfor _ in range(1600): os.write(1, b'x' * 65536)", "oversize"
    ),
    "a list of 100 MB": Case(
        answering(
            'os.write(1, b\'{"jsonrpc": "2.0", "id": 1, "result": {"tools": [\')\n'
            "for _ in range(1600): os.write(1, b'\"' + b'x' * 65536 + b'\",')"
        ),
        "oversize",
    ),
    "100 MB of its environment": Case(
        "while True: print(dict(os.environ), 'x' * 50000, flush=True)", "oversize"
    ),
    "hang at start": Case("time.sleep(600)", "timeout_start"),
    "busy loop at start": Case("while True: pass", "timeout_start"),
    "processor time without end": Case("while True: pass", "oversize", limits={"cpu_s": 1}),
    "never reads": Case("while True: time.sleep(0.2)", "timeout_start"),
    "half a message, then a hang": Case(
        "sys.stdout.write('{\"jsonrpc\": '); sys.stdout.flush(); time.sleep(600)", "timeout_start"
    ),
    "half a list, then a hang": Case(
        answering('os.write(1, b\'{"jsonrpc": "2.0", "id": 1, "result": {"tools": [\')'),
        "timeout_list",
    ),
    "one byte at a time before the handshake": Case(
        "for _ in iter(int, 1): os.write(1, b' '); time.sleep(0.02)", "timeout_start"
    ),
    "one byte at a time in the list": Case(
        answering("for _ in iter(int, 1): os.write(1, b' '); time.sleep(0.02)"), "timeout_list"
    ),
    "talks, but no JSON-RPC": Case("print('ready', flush=True); time.sleep(600)", "protocol_error"),
    "speaks HTTP": Case(
        "os.write(1, b'HTTP/1.1 200 OK\\r\\n\\r\\n{}\\r\\n'); time.sleep(600)", "protocol_error"
    ),
    "speaks with length headers": Case(
        "m = read(); os.write(1, b'Content-Length: 2\\r\\n\\r\\n{}\\r\\n'); time.sleep(600)",
        "protocol_error",
    ),
    "speaks UTF-16": Case(
        "m = read(); os.write(1, json.dumps({'jsonrpc': '2.0', 'id': m['id'], 'result': {}})"
        ".encode('utf-16') + b'\\n'); time.sleep(600)",
        "protocol_error",
    ),
    "exit without a word": Case("sys.exit(3)", "crashed"),
    "exit in mid-handshake": Case("read(); sys.stdout.write('{\"json'); sys.exit(0)", "crashed"),
    "exit in mid-list": Case(
        'welcome(read()); read(); m = read(); sys.stdout.write(\'{"jsonrpc": "2.0", "id"\')\n'
        "sys.stdout.flush(); sys.exit(0)",
        "crashed",
    ),
    "exit between two pages": Case(
        "welcome(read()); read(); m = read()\n"
        "answer(m['id'], {'tools': [tool('a')], 'nextCursor': '1'}); sys.exit(4)",
        "crashed",
    ),
    "killed by its own signal": Case("os.kill(os.getpid(), 11)", "crashed"),
    "kills its whole group": Case("read(); os.killpg(0, 9)", "crashed"),
    "the parent leaves and a child serves": Case(
        f"if os.fork(): os._exit(0)\ntime.sleep(1)\n{GOOD}", "crashed"
    ),
    "output closed at start": Case("os.close(1); time.sleep(600)", "timeout_start"),
    "output closed after the handshake": Case(
        "welcome(read()); read(); os.close(1); sys.stdin.read(); time.sleep(600)", "timeout_list"
    ),
    "all streams closed": Case(
        "for fd in (0, 1, 2): os.close(fd)\ntime.sleep(600)", "timeout_start"
    ),
    "asks for a secret": Case("sys.exit('Error: NOTION_API_KEY is required')", "needs_secret"),
    "asks for an argument": Case("sys.exit('usage: server [-h] DIRECTORY')", "needs_argument"),
    "wants the network": Case(
        "import socket; socket.create_connection(('127.0.0.1', 9))", "needs_network"
    ),
    "lacks a module": Case("import no_such_module_anywhere", "needs_software"),
    "never lists": Case("welcome(read()); time.sleep(600)", "timeout_list"),
    "a wrong id": Case(
        answering("answer(m['id'] + 7, {'tools': [tool('evil')]})"), "protocol_error"
    ),
    "an id of text": Case(answering("answer(str(m['id']), {'tools': [tool('a')]})"), tools=("a",)),
    "an id of null": Case(answering("answer(None, {'tools': [tool('evil')]})"), "protocol_error"),
    "an id that is a list": Case(
        answering("answer([1], {'tools': [tool('evil')]})"), "protocol_error"
    ),
    "a handshake with a wrong id": Case(
        "m = read(); answer('x', {'protocolVersion': '2025-06-18'}); time.sleep(600)",
        "protocol_error",
    ),
    "a handshake that is a list": Case(
        "m = read(); answer(m['id'], [1, 2]); time.sleep(600)", "protocol_error"
    ),
    "a handshake without capabilities": Case(
        "m = read(); answer(m['id'], {'protocolVersion': 7}); time.sleep(600)", "protocol_error"
    ),
    "a protocol of the future": Case(
        "welcome(read(), '2999-01-01'); time.sleep(600)", "timeout_list"
    ),
    "an error for an answer": Case(
        "m = read(); send({'jsonrpc': '2.0', 'id': m['id'],"
        " 'error': {'code': -32000, 'message': 'Unauthorized: token missing'}}); time.sleep(600)",
        "needs_secret",
    ),
    "no such method": Case(
        answering(
            "send({'jsonrpc': '2.0', 'id': m['id'],"
            " 'error': {'code': -32601, 'message': 'Method not found'}})"
        ),
        "no_tools",
    ),
    "an error of odd types": Case(
        answering("send({'jsonrpc': '2.0', 'id': m['id'], 'error': {'code': 'x', 'message': []}})"),
        "protocol_error",
    ),
    "logs on standard output": Case("print('starting…', flush=True); " + GOOD),
    "invalid UTF-8 before the handshake": Case("os.write(1, b'\\xff\\xfe\\n'); " + GOOD),
    "NaN and huge numbers before the handshake": Case(
        "os.write(1, b'{\"a\": NaN}\\n{\"b\": 1' + b'0' * 9000 + b'}\\n'); " + GOOD
    ),
    "nesting without end before the handshake": Case(
        "os.write(1, b'[' * 100000 + b'\\n'); " + GOOD
    ),
    "100 MB on standard error": Case("[os.write(2, b'e' * 65536) for _ in range(1600)]; " + GOOD),
    "standard error closed": Case("os.close(2); " + GOOD),
    "colours and control characters": Case("os.write(2, b'\\x1b[31m\\x07\\x00' * 999); " + GOOD),
    "a storm of notifications before the handshake": Case(
        "[send({'jsonrpc': '2.0', 'method': 'notifications/message', 'params': {'level': 'info',"
        " 'data': 'x'}}) for _ in range(20000)]; " + GOOD
    ),
    "a storm of notifications before the list": Case(
        "serve([tool('a'), tool('b')], lambda: [send({'jsonrpc': '2.0', 'method':"
        " 'notifications/tools/list_changed'}) for _ in range(20000)])"
    ),
    "sampling, elicitation and roots are asked for": Case(
        "serve([tool('a'), tool('b')], lambda: [send({'jsonrpc': '2.0', 'id': f's{m}', 'method': m,"
        " 'params': {}}) for m in ('sampling/createMessage', 'elicitation/create', 'roots/list')])"
    ),
    "requests are declined": Case(
        "def ask():\n"
        "    for m in ('sampling/createMessage', 'elicitation/create', 'roots/list', 'x/y'):\n"
        "        send({'jsonrpc': '2.0', 'id': m, 'method': m, 'params': {'messages': [],"
        " 'maxTokens': 9, 'message': 'key?', 'requestedSchema': {'type': 'object',"
        " 'properties': {}}}})\n"
        "        answer = read()\n"
        "        assert answer['id'] == m and 'error' in answer, answer\n"
        "serve([tool('a'), tool('b')], ask)"
    ),
    "a storm of requests": Case(
        "serve([tool('a'), tool('b')], lambda: [send({'jsonrpc': '2.0', 'id': i, 'method':"
        " 'sampling/createMessage', 'params': {}}) for i in range(5000)])"
    ),
    "a request with our own id": Case(
        answering(
            "answer(m['id'], {'tools': [tool('a'), tool('b')]})",
            "send({'jsonrpc': '2.0', 'id': m['id'], 'method': 'roots/list'})",
        )
    ),
    "two answers for one id": Case(
        answering(
            "answer(m['id'], {'tools': [tool('a'), tool('b')]})\n"
            "answer(m['id'], {'tools': [tool('evil')]})"
        )
    ),
    "answers before the request": Case(
        "m = read(); [answer(m['id'] + i, {'tools': [tool('evil')]}) for i in range(1, 9)]\n"
        "welcome(m); " + GOOD
    ),
    "a batch of answers": Case(
        answering(
            "send([{'jsonrpc': '2.0', 'id': 99, 'result': {}}, {'jsonrpc': '2.0', 'id': m['id'],"
            " 'result': {'tools': [tool('a'), tool('b')]}}])"
        )
    ),
    "SIGTERM ignored": Case("import signal; signal.signal(15, signal.SIG_IGN); " + GOOD),
    "every signal ignored": Case(
        "import signal\nfor s in set(signal.valid_signals()) - {9, 19}:\n"
        "    signal.signal(s, signal.SIG_IGN)\n" + GOOD
    ),
    "a daemon is left behind": Case(
        "if os.fork() == 0:\n    os.setsid()\n    if os.fork(): os._exit(0)\n"
        "    for fd in (0, 1, 2): os.close(fd)\n    time.sleep(600)\n" + GOOD
    ),
    "children hold its output": Case(
        "if os.fork() == 0:\n    os.setsid(); time.sleep(600)\n" + GOOD
    ),
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
