"""Which revision is spoken: the handshake, or 2026-07-28 without one; over both transports."""

import asyncio
import inspect
import json
import urllib.error
import urllib.request
from typing import Any

from assets.servers.probe import failure_kinds, session, transcript
from assets.servers.probe.transcript import MessageFilter, ProbeEvidence, classify_evidence
from tests.servers.probe.test_remote_probe import ask, names, sdk_server
from tests.serving.calling import CONTRACT, Bench, open_remote, read_text
from tests.support import stateless_mcp
from tests.support.cases import cases
from tests.support.http_mcp import Call, make_tool, refuse, serve_script, served
from tests.support.stateless_mcp import VERSION, reply_stateless
from tests.support.untrusted_server import probe_source, tool_names

SOURCE = inspect.getsource(stateless_mcp)
AS_TASKS = {"capabilities": {"tasks": {"requests": {"tools": {"call": {}}}}}}
TOOLS = [make_tool("a"), make_tool("b"), make_tool("c")]
STATUS = {-32601: 404, -32602: 400, -32022: 400, -32020: 400}


def stateless(**more):
    """A script of `serve_script` that speaks 2026-07-28 alone, as its HTTP binding says."""

    def script(call: Call) -> None:
        if call.method != "POST":
            return call.say(status=405)
        sent = call.headers.get("mcp-protocol-version"), call.headers.get("mcp-method")
        made = reply_stateless(call.message, more.get("tools", TOOLS), call=more.get("call"))
        if made is None:
            return call.say(status=202)
        if "result" in made and sent != (VERSION, call.asks):
            return refuse(call, -32020, STATUS[-32020], "header mismatch")
        return call.json(made, STATUS.get(made.get("error", {}).get("code"), 200))

    return script


def test_a_server_without_a_handshake_or_ignoring_it_is_listed_over_standard_streams(tmp_path):
    found = probe_source(tmp_path, f"{SOURCE}\nserve_stateless({TOOLS!r})")
    assert (found.status, tool_names(found)) == ("ok", ["a", "b", "c"]), found.hint
    assert (found.protocol, found.server_info["name"]) == (VERSION, "modern")
    assert found.instructions == "Ask one thing at a time."
    assert [prompt["name"] for prompt in found.prompts] == ["plan"]
    assert found.capabilities == ["prompts", "tools"]
    silent = SOURCE.replace('if method in ("initialize", "ping"):', 'if method == "initialize":\n'
                            "        return None\n    if method == 'ping':")  # fmt: skip
    found = probe_source(tmp_path, f"{silent}\nserve_stateless({TOOLS!r})")
    assert (found.status, tool_names(found)) == ("ok", ["a", "b", "c"]), found.hint
    assert found.protocol == VERSION
    changed = SOURCE.replace('if params.get("cursor")', 'if "cursor" in params')
    changed = changed.replace('"nextCursor": "2"', '"nextCursor": ""')
    found = probe_source(tmp_path, f"{changed}\nserve_stateless({TOOLS!r})")
    assert (tool_names(found), found.faults) == (["a", "b", "c"], [])


@cases("transport", "http", "auto")
def test_a_server_without_a_handshake_is_listed_over_http(transport):
    with serve_script(stateless()) as here:
        found = ask(here.url, transport)
    assert (found.status, names(found)) == ("ok", ["a", "b", "c"]), found.hint
    assert (found.protocol, found.server_info["name"]) == (VERSION, "modern")
    assert here.asked[:3] == ["initialize", "server/discover", "tools/list"]


async def test_servers_without_a_handshake_are_listed_and_called_with_their_headers():
    app = sdk_server().streamable_http_app(json_response=True)
    with served(app) as url, serve_script(_without_handshake(url + "/mcp")) as here:
        listed = await asyncio.to_thread(ask, here.url, "http")
        add = listed.tools[0]
        async with open_remote(here.url) as running:
            found = await running.caller.call(running.server_id, "add", add, {"a": 2, "b": 5})
    assert (listed.status, names(listed)) == ("ok", ["add", "shout"]), listed.hint
    assert listed.protocol == VERSION
    assert (found.status, read_text(found)) == ("ok", "7"), found.hint
    schema = {"type": "object", "properties": {"x": {"type": "integer", "x-mcp-header": "Count"}}}
    listed = make_tool("do", inputSchema=schema)
    with serve_script(stateless(tools=[listed], call=answer_call)) as here:
        async with open_remote(here.url) as running:
            found = await running.call(7, contract=listed)
    assert (found.status, read_text(found)) == ("ok", "do 7"), found.hint
    [sent] = [call for call in here.calls if call.asks == "tools/call"]
    assert (sent.headers["mcp-name"], sent.headers["mcp-param-count"]) == ("do", "7")
    assert "mcp-session-id" not in sent.headers


def _without_handshake(url):
    def script(call: Call) -> None:
        if call.asks == "initialize":
            return refuse(call, -32601, 404)
        kept = {k: v for k, v in call.headers.items() if k not in ("host", "content-length")}
        asked = urllib.request.Request(url, call.body or None, kept, method=call.method)
        try:
            with urllib.request.urlopen(asked, timeout=60) as reply:
                return call.json(json.loads(reply.read() or b"{}"), reply.status)
        except urllib.error.HTTPError as refused:
            return call.say(refused.read(), refused.code, Content_Type="application/json")

    return script


def answer_call(name, params):
    return {"content": [{"type": "text", "text": f"{name} {params['arguments']['x']}"}]}


async def test_a_changed_contract_is_not_called_and_a_result_that_asks_is_no_answer():
    listed = [CONTRACT]
    with serve_script(stateless(tools=listed, call=answer_call)) as here:
        async with open_remote(here.url) as running:
            first = await running.call(7)
            listed[0] = {**CONTRACT, "description": "something else"}
            second = await running.call(7)
    assert (first.status, second.error_kind) == ("ok", "contract_changed")
    assert here.asked.count("tools/call") == 1
    asks = {"resultType": "input_required", "inputRequests": {}}
    with serve_script(stateless(tools=[CONTRACT], call=lambda *_: asks)) as here:
        async with open_remote(here.url) as running:
            found = await running.call(7)
    assert (found.status, found.error_kind) == ("failed", "protocol_error")
    assert "input_required" in (found.hint or "")


async def test_such_a_server_that_was_late_is_kept_if_it_lives(tmp_path, monkeypatch):
    source = f"""{SOURCE}
import os
def call(name, params):
    if params["arguments"]["x"] == 13:
        time.sleep(0.6)
    return {{"content": [{{"type": "text", "text": str(os.getpid())}}]}}
serve_stateless([tool("do", inputSchema=SCHEMA)], call=call)
"""
    async with Bench(tmp_path, monkeypatch).launch(source) as running:
        first = await running.call(1)
        late = await running.call(13, timeout_s=0.3)
        second = await running.call(2)
    assert late.error_kind == "timeout_call"
    assert read_text(first) == read_text(second) != ""


def test_who_speaks_both_is_spoken_to_in_the_older_way_and_a_loop_of_versions_ends():
    with served(sdk_server().streamable_http_app(json_response=True)) as url:
        assert ask(url + "/mcp", "http").protocol == "2025-11-25"

    def loops(call: Call) -> None:
        refuse(call, -32022, 400, "another", data={"supported": [VERSION], "requested": "x"})

    with serve_script(loops) as here:
        found = ask(here.url, "http")
    assert found.status == "failed"
    assert here.asked == ["initialize", "server/discover", "server/discover"]


@cases("status", 400, 404, 405)
def test_a_bare_refusal_is_no_word_of_another_revision(status):
    with serve_script(lambda call: call.say("no", status=status)) as here:
        assert ask(here.url, "http").status == "failed"
    assert here.asked == ["initialize"]


SILENT = """
while True:
    m = read()
    if m["method"] == "initialize":
        fail(m, -32601, "no such")
"""
NEITHER = SILENT.replace('m["method"] == "initialize"', '"id" in m')
LOOP = """
asked = 0
while True:
    m = read()
    asked += 1
    if asked > 8: send({"jsonrpc": "2.0", "id": m["id"], "result": {"tools": []}})
    send({"jsonrpc": "2.0", "id": m["id"], "error": {"code": -32022, "message": "another",
          "data": {"supported": ["2026-07-28"], "requested": "x"}}})
"""
FOREIGN = f"{SOURCE}\nserve_stateless([], versions=('2099-01-01',))"
GARBAGE = f"{SILENT}    else: answer(m['id'], %s)\n"


@cases(
    "source, kind, words",
    (NEITHER, "protocol_error", "no such"),
    (LOOP, "protocol_error", "another"),
    (FOREIGN, "protocol_error", "2099-01-01"),
    (GARBAGE % "{}", "protocol_error", "no such"),
    (GARBAGE % "{'supportedVersions': 7, 'capabilities': []}", "protocol_error", "no such"),
    (GARBAGE % "{'supportedVersions': ['x'] * 9000, 'capabilities': {}}", None, "'x', 'x'"),
    (SILENT, "protocol_error", ""),
    ("answer(read()['id'], {'protocolVersion': []}); read()", "protocol_error", ""),
    ("answer(read()['id'], {'protocolVersion': '2026-07-28'}); read()", "protocol_error", ""),
    ids=["neither", "loop", "foreign", "empty", "garbage", "many", "silent", "odd", "unasked"],
)
def test_a_server_that_agrees_on_nothing_is_classified(tmp_path, source, kind, words):
    found = probe_source(tmp_path, source)
    assert (found.status, found.error_kind) == ("failed", kind or "protocol_error")
    assert words in (found.hint or "")
    assert len(found.hint or "") < 600


@cases(
    "execution, server, needed",
    ({"taskSupport": "required"}, AS_TASKS, True),
    ({"taskSupport": "optional"}, AS_TASKS, False),
    (None, AS_TASKS, False),
    ("required", AS_TASKS, False),
    ({"taskSupport": "required"}, {"capabilities": {"tasks": {"list": {}}}}, False),
    ({"taskSupport": "required"}, {"capabilities": ["tasks"]}, False),
    ({"taskSupport": "required"}, {}, False),
)
def test_a_tool_needs_a_task_where_its_server_takes_them(execution, server, needed):
    assert session.needs_task({"name": "do", "execution": execution}, server) is needed


def take(method: str, answer: dict) -> tuple[transcript.ServerTranscript, Any]:
    """What a filter notes and passes on of one answer to a request of ours."""
    listener = MessageFilter()
    listener.note_request({"id": 2, "method": method})
    return listener.transcript, listener.take({"jsonrpc": "2.0", "id": 2, **answer})


@cases("method", "initialize", "tools/list")
@cases("result, kind", ("x", "str"), ([1], "list"), (None, "NoneType"))
def test_a_result_of_the_wrong_type_is_named_and_no_noise(method, result, kind):
    transcript, _ = take(method, {"result": result})
    late = failure_kinds.ProbeFailure("timeout_list", "30 s")
    detail = f"the result of `{method}` is {kind}, expected an object"
    found = classify_evidence(ProbeEvidence(transcript, late, answered=True))
    assert (found.kind, found.detail) == ("protocol_error", detail)


@cases(
    "method, answer",
    ("tools/list", {"result": {"tools": []}}),
    ("tools/list", {"error": {"code": -32601, "message": "no"}}),
    ("prompts/list", {"result": "x"}),
)
def test_other_answers_end_no_conversation(method, answer):
    assert take(method, answer)[0].broken is None


@cases(
    "answer, code, message",
    ({"error": {"code": "ENOENT", "message": "no file"}}, -32603, "no file"),
    ({"error": {"code": -32000}}, -32000, "an error without a message"),
    ({"error": {"code": 7.0, "message": {"why": "é"}}}, 7, '{"why": "é"}'),
    ({"error": {"code": True, "message": "x"}}, -32603, "x"),
    ({"error": "boom"}, -32603, "boom"),
    ({"error": ["boom"], "result": {}}, -32603, '["boom"]'),
)
def test_an_error_of_odd_form_is_an_answer_all_the_same(answer, code, message):
    transcript, taken = take("tools/call", answer)
    assert taken == {"jsonrpc": "2.0", "id": 2, "error": {"code": code, "message": message}}
    assert transcript.errors[-1] == (code, message)


@cases("result", None, [1], "x")
def test_a_result_that_is_no_object_ends_its_call_and_is_no_error_of_the_server(result):
    transcript, taken = take("tools/call", {"result": result})
    kind = type(result).__name__
    assert taken["error"]["message"] == f"the result is {kind}, expected an object"
    assert not transcript.errors


@cases("error", None, False, {}, "")
def test_an_error_of_nothing_beside_a_result_is_none(error):
    result = {"result": {"content": []}}
    taken = take("tools/call", {**result, "error": error})[1]
    assert taken == {"jsonrpc": "2.0", "id": 2, **result}


PLAIN = """
def talk(reply_list, version="2025-06-18", change=lambda answer: answer):
    while True:
        message = read()
        if message.get("method") == "initialize":
            result = {"protocolVersion": version, "capabilities": {"tools": {}},
                      "serverInfo": {"name": "odd", "version": "1"}}
        elif message.get("method") == "tools/list":
            result = reply_list(message.get("params") or {})
        elif "id" in message:
            result = {"code": -32601, "message": "Method not found"}
        else:
            continue
        key = "error" if "code" in result else "result"
        send(change({"jsonrpc": "2.0", "id": message["id"], key: result}))
"""
BOTH = '{"tools": [tool("a"), tool("b")]}'


@cases(
    "source, fault",
    (f"talk(lambda p: {BOTH}, change=lambda a: a | {{'id': str(a['id'])}})",
     "ids of type int as str"),
    (f"talk(lambda p: {BOTH}, change=lambda a: a | {{'id': float(a['id'])}})",
     None),
    (f"talk(lambda p: {BOTH}, version='2024-10-07')", "'2024-10-07'"),
    (f"talk(lambda p: {BOTH}, version='2026-07-28')", "'2026-07-28'"),
    (f"talk(lambda p: {BOTH} | {{'nextCursor': ''}})", None),
    (f"talk(lambda p: {BOTH} | {{'nextCursor': 'same'}})", "the cursor 'same' came twice"),
    (f"talk(lambda p: {BOTH} | {{'nextCursor': {{}}}})", "`nextCursor` of `tools` is dict"),
    ("talk(lambda p: {'tools': [tool('b')]} if p.get('cursor') == '2' else"
     " {'tools': [tool('a')], 'nextCursor': 2})", "`nextCursor` of `tools` is int"),
    (f"talk(lambda p: {BOTH[:-2]}, 'c']}})", "an entry of `tools` is no object"),
)  # fmt: skip
def test_answers_of_odd_form_are_read_and_named(tmp_path, source, fault):
    found = probe_source(tmp_path, f"{PLAIN}\n{source}")
    assert (found.status, tool_names(found)) == ("ok", ["a", "b"]), found.hint
    assert [str(fault) in each for each in found.faults] == ([True] if fault else [])


def test_an_answer_without_an_id_is_that_of_the_only_request():
    listener = MessageFilter()
    listener.note_request({"id": 4, "method": "tools/list"})
    error = {"code": -32700, "message": "Parse error"}
    assert listener.take({"jsonrpc": "2.0", "id": None, "error": error}) is not None
    assert listener.take({"jsonrpc": "2.0", "id": None, "error": error}) is None


@cases(
    "source, hint",
    ("talk(lambda p: {'code': -32603, 'message': 'reading x'})",
     "the server speaks MCP and answered `tools/list` with an error of its own"),
    ("talk(lambda p: {'tools': None})", "`tools` is null, expected a list: the server speaks"),
    ("talk(lambda p: {})", "`tools` is missing, expected a list: the server speaks MCP"),
    (f"talk(lambda p: {BOTH}, change=lambda a: (a['result'].get('serverInfo', {{}}).pop"
     "('version', 0), a)[1])", "serverInfo has no version: the server speaks MCP"),
    ("talk(lambda p: open('/etc/odd/config.json'))", "reads a file that is not there"),
    ("sys.exit('Error: Configuration file not found: ~/.mast')", "reads a file that is not"),
    (f"talk(lambda p: {BOTH}, change=lambda a: a | {{'id': '0%d' % a['id']}})",
     "answers to ids that nobody sent, first '01': the server speaks MCP"),
    (f"talk(lambda p: {BOTH}, change=lambda a: a | {{'result': [1]}})",
     "the result of `initialize` is list, expected an object: the server speaks MCP"),
    (f"talk(lambda p: {BOTH}, change=lambda a: (a['result'].update(capabilities=[]), a)[1])",
     "capabilities is list, expected an object: the server speaks MCP"),
    ("print('Usage: mast <dir>'); sys.exit(2)", "said 'Usage: mast <dir>'"),
    ("time.sleep(9)", "`sandbox.start_s` gives it longer"),
)  # fmt: skip
def test_a_hint_names_what_is_wrong_and_no_more(tmp_path, source, hint):
    found = probe_source(tmp_path, f"{PLAIN}\n{source}")
    assert hint in str(found.hint)
    assert "does not speak MCP" not in str(found.hint)
    assert "pydantic" not in str(found.hint)
