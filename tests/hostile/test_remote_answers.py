"""Untrusted remote servers: answers that mislead or break the protocol, and bodies without end."""

import gzip
import json
import threading
import zlib
from functools import partial

import pytest

from assets.servers.probe.remote_transport import MAX_STREAMS, RemotePolicy
from assets.servers.probe.session import ProbePolicy
from tests.hostile.cases import CHUNK, keep_silent, make_chunk, probe_script, write_endlessly
from tests.support import http_mcp, network
from tests.support.cases import cases
from tests.support.http_mcp import Call, make_good_script, make_reply, make_tool, make_welcome


def test_nothing_is_sent_to_a_private_address_or_with_an_event_id_that_injects():
    connector, inner = network.guard_loopback("10.9.8.7")
    redirect = partial(Call.say, status=307, Location="http://metadata.example/latest")
    found, here = probe_script(redirect, connector=connector)
    assert (found.error_kind, len(here.calls), inner.dialled) == ("policy_denied", 1, [])
    assert "10.9.8.7" in str(found.hint)

    def breaks(call: Call) -> None:
        call.events()
        call.write("id: a\x01é b\ndata:\n\n".encode())

    found, here = probe_script(make_good_script(tools_list=breaks))
    assert found.error_kind == "protocol_error"
    assert all("last-event-id" not in call.headers for call in here.calls)


@cases("session", "s\x01", "s 1", "s\t1", "s\xe9", "", "s" * 1024)
def test_a_session_id_that_is_none_is_not_sent_back(session):
    def begin(call: Call) -> None:
        data = json.dumps(make_reply(call.message, make_welcome())).encode()
        head = f"HTTP/1.1 200 OK\r\nMcp-Session-Id: {session}\r\nConnection: close\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
        call.write(head.encode("latin-1") + data)

    found, here = probe_script(make_good_script(initialize=begin))
    assert (found.error_kind, len(here.calls)) == ("protocol_error", 1)


@cases(
    "head",
    b"HTTP/1.1 200 OK\r\nX-A: b\r\n folded\r\nBad Header\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 7\r\n\r\nhello",
    b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nhello",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"HTTP/9.9 200 OK\r\n\r\n",
    b"HTTP/1.1 99999 OK\r\n\r\n",
    b"HTTP/1.1 200 OK\r\n" + b"X-A: " + b"y" * 300_000 + b"\r\n\r\n",
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
    b"\0" * 4096 + b"\r\n\r\n",
    b"",
)
def test_what_is_no_http_is_classified(head):
    found, _ = probe_script(lambda call: call.write(head))
    assert found.error_kind in ("protocol_error", "remote_down")


def test_no_cookie_is_kept_for_another_probe_and_no_control_character_shown():
    def begin(call: Call) -> None:
        call.answer(make_welcome(), Set_Cookie="who=me; Path=/")

    calls = [probe_script(make_good_script(initialize=begin))[1].calls for _ in range(2)]
    assert calls[0][-1].headers.get("cookie") == "who=me"
    assert "cookie" not in calls[1][0].headers
    words = "\x1b[31mred\x1b[0m \u202e\x07\r\nnext"
    found, _ = probe_script(lambda call: call.say(words, status=400))
    assert found.error_kind == "protocol_error"
    assert all(char.isprintable() for char in str(found.hint))


@cases(
    "endpoint",
    *("http://127.0.0.1:1/steal", "https://evil.example/steal", "//evil.example/steal"),
    *("file:///etc/passwd", "http://[bad", "/" + "x" * 3000),
)
def test_an_endpoint_elsewhere_is_refused_and_nothing_sent_there(endpoint):
    """The SDK raises within its reader, which then waits for ever."""
    headers = {"Authorization": "Bearer tok-en"}
    found, here = probe_script(http_mcp.make_sse_script(endpoint=endpoint), "sse", headers=headers)
    assert (found.error_kind, "elsewhere" in str(found.hint)) == ("protocol_error", True)
    assert [call.method for call in here.calls] == ["GET"]


def test_a_second_endpoint_is_noise():
    first = http_mcp.make_sse_script()

    def twice(call: Call) -> None:
        if call.method == "GET":
            call.events()
            call.event("/messages?id=1", event="endpoint")
            call.event("http://127.0.0.1:1/steal", event="endpoint")
            waiting.append(call)
            call.for_ever()
        elif call.asks == "initialize":
            call.say(status=202)
            waiting[-1].event(make_reply(call.message, make_welcome()))
        elif call.asks == "tools/list":
            call.say(status=202)
            waiting[-1].event(make_reply(call.message, {"tools": [make_tool("a")]}))
        else:
            first(call)

    waiting: list[Call] = []
    found, _ = probe_script(twice, "sse")
    assert [tool["name"] for tool in found.tools] == ["a"]


def test_a_stream_that_ends_before_the_answer_or_names_no_endpoint_is_classified():
    def ends(call: Call) -> None:
        if call.method == "GET":
            call.events()
            call.event("/messages", event="endpoint")
        else:
            call.say(status=202)

    for script in (ends, lambda call: call.events()):
        assert probe_script(script, "sse")[0].error_kind == "protocol_error"
    quick = ProbePolicy(start_s=0.3, list_s=0.3)
    found, _ = probe_script(lambda call: SLOW["an open stream"](call), "sse", limits=quick)
    assert found.error_kind == "timeout_start"


def test_an_endless_answer_to_a_post_or_with_401_is_read_no_further():
    behind = http_mcp.make_sse_script()

    def chatty(call: Call) -> None:
        if call.method == "POST" and call.asks.startswith("notifications/"):
            call.head(200, Content_Type="text/html")
            write_endlessly(call)
        else:
            behind(call)

    assert probe_script(chatty, "sse")[0].status == "ok"

    def closed(call: Call) -> None:
        call.head(401, WWW_Authenticate='Bearer resource_metadata="http://10.0.0.1/"')
        write_endlessly(call)

    found, here = probe_script(closed)
    assert (found.error_kind, len(here.calls)) == ("remote_auth", 1)


def raw(text: str):
    """Answers with this text in the place of a message; `ID` is the request's id."""

    def answer(call: Call) -> None:
        call.say(text.replace("ID", str(call.message["id"])), Content_Type="application/json")

    return answer


def stream_of(*texts: str):
    def answer(call: Call) -> None:
        call.events()
        for text in texts:
            call.event(text.replace("ID", str(call.message["id"])))

    return answer


LISTED = '{"jsonrpc":"2.0","id":ID,"result":{"tools":[{"name":"a","inputSchema":{}}]}}'
BROKEN = {
    "NaN": '{"jsonrpc":"2.0","id":ID,"result":{"tools":[{"name":"a","x":NaN}]}}',
    "a huge integer": '{"jsonrpc":"2.0","id":ID,"result":{"tools":[],"n":1' + "0" * 5000 + "}}",
    "a duplicate member": '{"jsonrpc":"2.0","id":ID,"result":{"tools":[]},"result":{}}',
    "a duplicate within a tool": LISTED.replace('"name":"a"', '"name":"a","name":"b"'),
    "nesting": '{"jsonrpc":"2.0","id":ID,"result":' + "[" * 100_000,
    "half a message": '{"jsonrpc":"2.0","id":ID,"resu',
    "no object": "7",
    "an empty body": "",
    "an empty list": "[]",
    "no JSON": "OK",
    "another version": LISTED.replace("2.0", "1.0"),
    "a wrong id": LISTED.replace("ID", "999"),
    "an id that is a list": LISTED.replace("ID", "[ID]"),
    "tools that are no list": '{"jsonrpc":"2.0","id":ID,"result":{"tools":{"a":1}}}',
    "a result that is a text": '{"jsonrpc":"2.0","id":ID,"result":"tools"}',
    "neither result nor error": '{"jsonrpc":"2.0","id":ID}',
    "case-variant keys": '{"jsonrpc":"2.0","id":ID,"Result":{"tools":[]}}',
    "a control character": '{"a": "\u0080',
}


@cases("method, form", ("tools_list", raw), ("tools_list", stream_of), ("initialize", raw))
@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_answer_is_a_protocol_error(name, method, form):
    found, _ = probe_script(make_good_script(**{method: form(BROKEN[name])}))
    assert (found.error_kind, found.tools) == ("protocol_error", []), found.hint


TWO = [LISTED, LISTED.replace('"a"', '"evil"')]


@cases(
    "answer",
    stream_of(*TWO),
    stream_of(TWO[1].replace("ID", "77"), TWO[0]),
    raw(f"[{TWO[0]},{TWO[1]}]"),
)
def test_of_two_answers_the_first_to_what_was_asked_counts(answer):
    found, _ = probe_script(make_good_script(tools_list=answer))
    assert [tool["name"] for tool in found.tools] == ["a"]


def test_odd_keys_surrogates_versions_and_ids_stop_no_probe_and_faults_are_named():
    odd = {"name": "a", "Name": "b", "inputSchema": {}, "inputschema": {"x": 1}}
    assert probe_script(make_good_script([odd]))[0].tools == [odd]
    found, _ = probe_script(make_good_script([make_tool("a", description="\ud800 \udfff")]))
    assert found.status == "ok"

    def begin(call: Call) -> None:
        call.answer({**make_welcome(), "instructions": "\ud800"})

    assert probe_script(make_good_script(initialize=begin))[0].status == "ok"
    newer = make_good_script(initialize=lambda call: call.answer(make_welcome("2999-01-01")))
    found = probe_script(newer)[0]
    assert (found.status, any("2999-01-01" in fault for fault in found.faults)) == ("ok", True)
    text = probe_script(make_good_script(tools_list=raw(LISTED.replace("ID", '"ID"'))))[0]
    assert (text.status, any("id" in fault for fault in text.faults)) == ("ok", True)


def test_ten_thousand_tools_are_too_many():
    found, _ = probe_script(make_good_script([make_tool(f"t{n}") for n in range(10_000)]))
    assert (found.error_kind, found.tools) == ("oversize", [])


@cases("cursor, kind", (str, "oversize"), (lambda _: "x", None), ids=["new", "same"])
def test_a_cursor_without_end_and_one_that_comes_twice(cursor, kind):
    def page(call: Call) -> None:
        number = call.message["id"]
        call.answer({"tools": [make_tool(f"t{number}")], "nextCursor": cursor(number)})

    few = ProbePolicy(start_s=2, list_s=5, max_pages=20)
    found = probe_script(make_good_script(tools_list=page), limits=few)[0]
    assert found.error_kind == kind
    assert kind or any("cursor" in fault for fault in found.faults)


def test_a_storm_of_requests_is_bounded():
    """Each request of a server is answered by a POST of ours: it must not make us its hammer."""

    def storm(call: Call) -> None:
        call.events()
        for number in range(1000):
            call.event({"jsonrpc": "2.0", "id": number, "method": "ping"})
        call.event(make_reply(call.message, {"tools": [make_tool("a")]}))

    limits = ProbePolicy(start_s=2, list_s=5)
    found, here = probe_script(make_good_script(tools_list=storm), limits=limits)
    assert (found.initiated <= 1000, len(here.calls) <= 220) == (True, True)
    assert found.error_kind in (None, "timeout_list", "timeout_start")


def test_a_stream_that_ends_at_once_is_not_asked_for_ever():
    """`retry: 0` would have the SDK's client ask again without a pause."""

    def ends(call: Call) -> None:
        call.events()
        call.write(b"retry: 0\ndata:\nid: 1\n\n")

    quick = ProbePolicy(start_s=20, list_s=1)
    silent = make_good_script(initialize=http_mcp.begin_session, GET=ends, tools_list=keep_silent)
    found, here = probe_script(silent, limits=quick)
    assert found.error_kind == "timeout_list"
    assert [call.method for call in here.calls].count("GET") <= MAX_STREAMS
    found, here = probe_script(make_good_script(tools_list=ends), limits=quick)
    assert [call.method for call in here.calls].count("GET") <= MAX_STREAMS


# What answers `initialize` or `tools/list` with such a body has the kind of its test.
JSON = {"Content_Type": "application/json"}
NOTE = json.dumps({"jsonrpc": "2.0", "method": "notifications/message", "params": {}})


def flood(head: dict[str, str] | None, data: bytes, before: bytes, call: Call) -> None:
    """Sends a head (None for that of an event stream), then `data` without end."""
    call.events() if head is None else call.head(200, **head)
    call.write(before)
    write_endlessly(call, data)


def pack(piece: bytes, head: dict[str, str] | None, call: Call) -> None:
    """100 MB in 100 kB."""
    packed = {"Content_Encoding": "gzip"}
    call.events(**packed) if head is None else call.head(200, **head, **packed)
    packer = zlib.compressobj(wbits=31)
    for _ in range(100):
        call.write(packer.compress(piece) + packer.flush(zlib.Z_SYNC_FLUSH))


# 1xx without end; the client's parser skips them.
EARLY = b"HTTP/1.1 103 Early Hints\r\nX-A: " + b"y" * 8000 + b"\r\n\r\n"
# Compressed blocks that decode to nothing, behind the 10 bytes of gzip's header.
EMPTY_BLOCKS, HEADER = b"\x00\x00\x00\xff\xff" * 8000, gzip.compress(b"")[:10]
CHUNKED = {**JSON, "Transfer_Encoding": "chunked"}
STREAMS = {
    "an endless event": partial(flood, None, CHUNK, b"data: "),
    "many lines in one event": partial(flood, None, b"data: x\n" * 4000, b""),
    "comments": partial(flood, None, b": ping\n" * 8000, b""),
    "empty events": partial(flood, None, b"event: x\ndata: 1\n\n" * 2000, b""),
    "notifications": partial(flood, None, f"data: {NOTE}\n\n".encode() * 500, b""),
}
OVERSIZE = STREAMS | {
    "huge JSON": partial(flood, {**JSON, "Content_Length": str(100 << 20)}, CHUNK, b""),
    "huge chunks": partial(flood, CHUNKED, make_chunk(CHUNK), b""),
    "an endless line": partial(flood, None, CHUNK, b""),
    "a bomb": partial(pack, b" " * (1 << 20), JSON),
    "a bomb of events": partial(pack, b": ping\n" * 150_000, None),
    "nothing packed": partial(flood, {**JSON, "Content_Encoding": "gzip"}, EMPTY_BLOCKS, HEADER),
    "early answers": lambda call: write_endlessly(call, EARLY),
    # One byte a chunk, each behind a long chunk extension.
    "tiny chunks": partial(flood, CHUNKED, b"1;" + b"e" * 8000 + b"\r\nx\r\n", b""),
}


@cases("when", "initialize", "tools_list")
@pytest.mark.parametrize("name", OVERSIZE)
def test_a_body_without_end_is_oversize(name, when):
    found, _ = probe_script(make_good_script(**{when: OVERSIZE[name]}))
    assert (found.error_kind, found.tools) == ("oversize", [])


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_without_end_is_oversize_over_sse_too(name):
    def script(call: Call) -> None:
        STREAMS[name](call) if call.method == "GET" else call.say(status=202)

    assert probe_script(script, "sse")[0].error_kind == "oversize"


def drip(data: bytes, before: bytes, call: Call) -> None:
    call.write(before)
    call.for_ever(lambda: call.write(data), pause_s=0.05)


HEAD, TYPED = b"HTTP/1.1 200 OK\r\n", b"Content-Type: application/json\r\n\r\n"
EVENTS = HEAD + b"Content-Type: text/event-stream\r\n\r\n"
SLOW = {
    "a byte at a time": partial(drip, b" ", HEAD + b"Content-Length: 100000\r\n" + TYPED),
    "a header at a time": partial(drip, b"X: y\r\n", HEAD),
    "silence": keep_silent,
    "an open stream": partial(drip, b"", EVENTS),
    "pings": partial(drip, b": ping\n\n", EVENTS),
    "half a message": partial(drip, b"", EVENTS + b'data: {"jsonrpc": "2.0", "id": '),
}


@pytest.mark.parametrize("name", SLOW)
def test_a_server_that_keeps_us_waiting_is_left(name):
    slow_start = make_good_script(initialize=SLOW[name])
    quick = ProbePolicy(start_s=0.3, list_s=0.3)
    assert probe_script(slow_start, limits=quick)[0].error_kind == "timeout_start"
    never = RemotePolicy(allow_loopback=True, wall_s=0.4)
    assert probe_script(slow_start, policy=never)[0].error_kind == "timeout_start"
    listing = ProbePolicy(start_s=30, list_s=0.3)
    slow_list = make_good_script(tools_list=SLOW[name])
    assert probe_script(slow_list, limits=listing)[0].error_kind == "timeout_list"


def test_the_wall_clock_ends_a_server_that_answers_slowly_for_ever():
    def page(call: Call) -> None:
        threading.Event().wait(0.1)
        number = call.message["id"]
        call.answer({"tools": [make_tool(f"t{number}")], "nextCursor": str(number)})

    patient = ProbePolicy(start_s=30, list_s=30)
    policy = RemotePolicy(allow_loopback=True, wall_s=0.6)
    found, here = probe_script(make_good_script(tools_list=page), limits=patient, policy=policy)
    assert (found.error_kind, found.tools) == ("timeout_list", [])
    assert len(here.calls) < 20


def test_what_was_listed_stands_when_the_extras_or_a_farewell_hang():
    def begin(call: Call) -> None:
        call.answer(make_welcome(prompts={}, resources={}))

    more = {"prompts_list": keep_silent, "resources_list": OVERSIZE["huge chunks"]}
    found, _ = probe_script(make_good_script(initialize=begin, **more))
    assert (found.status, len(found.tools)) == ("ok", 2)
    found, _ = probe_script(make_good_script(initialize=begin, prompts_list=keep_silent))
    assert (found.status, len(found.tools), "prompts" in found.missed) == ("ok", 2, True)

    def bye(call: Call) -> None:
        call.head(200)
        write_endlessly(call)

    found, here = probe_script(make_good_script(initialize=http_mcp.begin_session, DELETE=bye))
    assert (found.status, here.calls[-1].method) == ("ok", "DELETE")
    policy = RemotePolicy(allow_loopback=True, wall_s=0.8)
    silent = make_good_script(initialize=http_mcp.begin_session, DELETE=keep_silent)
    assert probe_script(silent, policy=policy)[0].status == "ok"
