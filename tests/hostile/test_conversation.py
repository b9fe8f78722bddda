"""Strangers that misbehave on the wire: each is contained and has its kind."""

import pytest

from assets.contracts.snapshot import contracts_of
from assets.contracts.validate import schema_problem
from tests.support.stranger import meet, names, require_sandbox


@pytest.fixture(autouse=True)
def sandbox():
    require_sandbox()


GOOD = "serve([tool('a'), tool('b')])"

KINDS = {
    "flood of lines": ("while True: os.write(1, b'x\\n' * 10000)", "oversize"),
    "flood without a newline": ("while True: os.write(1, b'x' * 65536)", "oversize"),
    "one message of 100 MB": (
        "os.write(1, b'{')\nfor _ in range(1600): os.write(1, b'x' * 65536)",
        "oversize",
    ),
    "hang at start": ("time.sleep(600)", "timeout_start"),
    "busy loop at start": ("while True: pass", "timeout_start"),
    "half a message, then a hang": (
        "sys.stdout.write('{\"jsonrpc\": '); sys.stdout.flush(); time.sleep(600)",
        "timeout_start",
    ),
    "talks, but no JSON-RPC": ("print('ready', flush=True); time.sleep(600)", "protocol_error"),
    "exit without a word": ("sys.exit(3)", "crashed"),
    "exit in mid-handshake": ("read(); sys.stdout.write('{\"json'); sys.exit(0)", "crashed"),
    "killed by its own signal": ("os.kill(os.getpid(), 11)", "crashed"),
    "standard output closed": ("os.close(1); time.sleep(600)", "timeout_start"),
    "asks for a secret": ("sys.exit('Error: NOTION_API_KEY is required')", "needs_secret"),
    "asks for an argument": ("sys.exit('usage: server [-h] DIRECTORY')", "needs_argument"),
    "wants the network": ("import socket; socket.create_connection(('127.0.0.1', 9))",
                          "needs_network"),
    "lacks a module": ("import no_such_module_anywhere", "needs_software"),
    "never lists": ("welcome(read()); time.sleep(600)", "timeout_list"),
    "answers with a wrong id": (
        "welcome(read()); read(); m = read(); answer(m['id'] + 7, {'tools': []}); time.sleep(600)",
        "timeout_list",
    ),
    "no tools": ("serve([])", "no_tools"),
    "tools is no list": ("serve({'a': 1})", "protocol_error"),
    "a protocol of the future": ("welcome(read(), '2999-01-01'); time.sleep(600)",
                                 "protocol_error"),
    "5,000 tools": ("serve([tool(f't{i}') for i in range(5000)])", "oversize"),
    "a cursor without end": (
        "welcome(read()); read()\n"
        "while True:\n"
        "    m = read(); answer(m['id'], {'tools': [tool('t' + m['id'].__str__())],"
        " 'nextCursor': str(m['id'])})",
        "oversize",
    ),
    "the same cursor again": (
        "welcome(read()); read()\n"
        "while True: answer(read()['id'], {'tools': [tool('t')], 'nextCursor': 'x'})",
        "protocol_error",
    ),
    "an error for an answer": (
        "m = read(); send({'jsonrpc': '2.0', 'id': m['id'],"
        " 'error': {'code': -32000, 'message': 'Unauthorized: token missing'}}); time.sleep(600)",
        "needs_secret",
    ),
    "no such method": (
        "welcome(read()); read(); m = read(); send({'jsonrpc': '2.0', 'id': m['id'],"
        " 'error': {'code': -32601, 'message': 'Method not found'}}); time.sleep(600)",
        "no_tools",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", KINDS)
def test_it_is_contained_and_classified(name, tmp_path):
    source, kind = KINDS[name]
    result = meet(tmp_path, source)
    assert (result.status, result.error_kind, result.tools) == ("failed", kind, [])
    assert result.hint


TOLERATED = {
    "logs on standard output": "print('starting…', flush=True); " + GOOD,
    "invalid UTF-8 before the handshake": "os.write(1, b'\\xff\\xfe\\n'); " + GOOD,
    "NaN and huge numbers": "os.write(1, b'{\"a\": NaN}\\n{\"b\": 1' + b'0' * 9000 + b'}\\n'); "
    + GOOD,
    "nesting without end": "os.write(1, b'[' * 100000 + b'\\n'); " + GOOD,
    "a flood on standard error": "os.write(2, b'e' * (4 << 20)); " + GOOD,
    "a storm of notifications": (
        "serve([tool('a'), tool('b')], lambda: [send({'jsonrpc': '2.0', 'method':"
        " 'notifications/message', 'params': {'level': 'info', 'data': 'x'}})"
        " for _ in range(3000)])"
    ),
    "requests to the client": (
        "serve([tool('a'), tool('b')], lambda: [send({'jsonrpc': '2.0', 'id': f's{m}', 'method': m,"
        " 'params': {}}) for m in ('sampling/createMessage', 'elicitation/create', 'roots/list')])"
    ),
    "two answers for one id": (
        "serve([tool('a'), tool('b')], lambda: None) if 0 else None\n"
        "welcome(read()); read(); m = read()\n"
        "answer(m['id'], {'tools': [tool('a'), tool('b')]})\n"
        "answer(m['id'], {'tools': [tool('c')]}); time.sleep(600)"
    ),
    "answers nobody asked for": "answer(999, {'tools': [tool('z')]}); " + GOOD,
    "SIGTERM ignored": "import signal; signal.signal(15, signal.SIG_IGN); " + GOOD,
    "three pages": (
        "welcome(read()); read()\n"
        "answer(read()['id'], {'tools': [tool('a')], 'nextCursor': '1'})\n"
        "answer(read()['id'], {'tools': [], 'nextCursor': '2'})\n"
        "answer(read()['id'], {'tools': [tool('b')]}); time.sleep(600)"
    ),
}


@pytest.mark.parametrize("name", TOLERATED)
def test_it_is_contained_and_its_tools_are_listed_all_the_same(name, tmp_path):
    result = meet(tmp_path, TOLERATED[name])
    assert (result.status, names(result)) == ("ok", ["a", "b"]), result.hint
    assert len(result.stderr_tail) <= 2000


def test_one_bad_schema_does_not_lose_the_list(tmp_path):
    bad = "{'type': 'object', 'properties': {'x': {'type': 'any'}}}"
    source = "serve([tool('a'), {'name': 'b', 'inputSchema': 7}, {'Name': 'c'},"
    source += f" 'noise', {{'name': 'd', 'inputSchema': {bad}}}])"
    result = meet(tmp_path, source)
    assert (result.status, len(result.tools)) == ("ok", 4)
    bodies = contracts_of(result.tools)
    assert [body["name"] for body in bodies] == ["a", "d"]
    assert schema_problem(bodies[1]["inputSchema"])
