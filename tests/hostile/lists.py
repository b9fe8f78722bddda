"""Untrusted servers whose lists are hostile: pages, cursors, members, numbers, text, schemas."""

from tests.hostile.case import Case, answering, raw

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
        "protocol_error",
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
