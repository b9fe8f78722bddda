"""Untrusted remote servers: bodies without end and answers that never come are bounded."""

import json
import threading
import zlib
from functools import partial

import pytest

from assets.servers.probe.remote_transport import RemotePolicy
from assets.servers.probe.session import ProbePolicy
from tests.hostile.cases import CHUNK, keep_silent, make_chunk, probe_script, write_endlessly
from tests.support.cases import cases
from tests.support.http_mcp import Call, make_good_script, make_tool, make_welcome

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


def nothing_packed(call: Call) -> None:
    """Compressed blocks that decode to nothing, without end."""
    packer = zlib.compressobj(wbits=31)
    begin = packer.compress(b"") + packer.flush(zlib.Z_SYNC_FLUSH)
    flood({**JSON, "Content_Encoding": "gzip"}, b"\x00\x00\x00\xff\xff" * 8000, begin, call)


def early_answers(call: Call) -> None:
    """1xx without end; the client's parser skips them."""
    write_endlessly(call, b"HTTP/1.1 103 Early Hints\r\nX-A: " + b"y" * 8000 + b"\r\n\r\n")


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
    "nothing packed": nothing_packed,
    "early answers": early_answers,
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


HEAD = b"HTTP/1.1 200 OK\r\n"
EVENTS = HEAD + b"Content-Type: text/event-stream\r\n\r\n"
SLOW = {
    "a byte at a time": partial(
        drip, b" ", HEAD + b"Content-Type: application/json\r\nContent-Length: 100000\r\n\r\n"
    ),
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


def test_a_stream_that_never_names_its_endpoint_is_left():
    quick = ProbePolicy(start_s=0.3, list_s=0.3)
    found, _ = probe_script(lambda call: SLOW["an open stream"](call), "sse", limits=quick)
    assert found.error_kind == "timeout_start"


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


def test_what_was_listed_stands_when_the_extras_hold_us():
    def begin(call: Call) -> None:
        call.answer(make_welcome(prompts={}, resources={}))

    found, _ = probe_script(
        make_good_script(
            initialize=begin, prompts_list=keep_silent, resources_list=OVERSIZE["huge chunks"]
        )
    )
    assert (found.status, len(found.tools)) == ("ok", 2)
    found, _ = probe_script(make_good_script(initialize=begin, prompts_list=keep_silent))
    assert (found.status, len(found.tools)) == ("ok", 2)
    assert "prompts" in found.missed


def test_a_farewell_that_hangs_does_not():
    def begin(call: Call) -> None:
        call.answer(make_welcome(), Mcp_Session_Id="s-1")

    def bye(call: Call) -> None:
        call.head(200)
        write_endlessly(call)

    found, here = probe_script(make_good_script(initialize=begin, DELETE=bye))
    assert (found.status, here.calls[-1].method) == ("ok", "DELETE")
    policy = RemotePolicy(allow_loopback=True, wall_s=0.8)
    silent = make_good_script(initialize=begin, DELETE=keep_silent)
    assert probe_script(silent, policy=policy)[0].status == "ok"
