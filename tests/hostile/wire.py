"""Untrusted servers that misbehave on the wire: handshake, framing, ids, floods, storms."""

from tests.hostile.case import GOOD, Case, answering

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
    "a wrong id": Case(answering("answer(m['id'] + 7, {'tools': [tool('evil')]})"), "timeout_list"),
    "an id of text": Case(
        answering("answer(str(m['id']), {'tools': [tool('evil')]})"), "timeout_list"
    ),
    "an id of null": Case(answering("answer(None, {'tools': [tool('evil')]})"), "timeout_list"),
    "an id that is a list": Case(
        answering("answer([1], {'tools': [tool('evil')]})"), "timeout_list"
    ),
    "a handshake with a wrong id": Case(
        "m = read(); answer('x', {'protocolVersion': '2025-06-18'}); time.sleep(600)",
        "timeout_start",
    ),
    "a handshake that is a list": Case(
        "m = read(); answer(m['id'], [1, 2]); time.sleep(600)", "protocol_error"
    ),
    "a handshake without capabilities": Case(
        "m = read(); answer(m['id'], {'protocolVersion': 7}); time.sleep(600)", "protocol_error"
    ),
    "a protocol of the future": Case(
        "welcome(read(), '2999-01-01'); time.sleep(600)", "protocol_error"
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
