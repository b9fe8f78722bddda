"""Untrusted remote servers: bodies without end and answers that never come are bounded."""

import json
import threading
import zlib

import pytest

from assets.servers.probe.remote_transport import RemotePolicy
from assets.servers.probe.session import ProbePolicy
from tests.hostile.cases import CHUNK, keep_silent, make_chunk, probe_script, write_endlessly
from tests.support.http_mcp import Call, make_good_script, make_tool, make_welcome

# What answers `initialize` or `tools/list` with such a body has the kind of its test.


def huge_json(call: Call) -> None:
    call.head(200, Content_Type="application/json", Content_Length=str(100 << 20))
    write_endlessly(call)


def huge_chunked(call: Call) -> None:
    call.head(200, Content_Type="application/json", Transfer_Encoding="chunked")
    write_endlessly(call, make_chunk(CHUNK))


def endless_event(call: Call) -> None:
    call.events()
    call.write(b"data: ")
    write_endlessly(call)


def endless_line_of_field(call: Call) -> None:
    call.events()
    write_endlessly(call)


def many_lines_in_one_event(call: Call) -> None:
    call.events()
    write_endlessly(call, b"data: x\n" * 4000)


def comments(call: Call) -> None:
    call.events()
    write_endlessly(call, b": ping\n" * 8000)


def empty_events(call: Call) -> None:
    call.events()
    write_endlessly(call, b"event: x\ndata: 1\n\n" * 2000)


def notifications(call: Call) -> None:
    call.events()
    note = json.dumps({"jsonrpc": "2.0", "method": "notifications/message", "params": {}})
    write_endlessly(call, f"data: {note}\n\n".encode() * 500)


def bomb(call: Call) -> None:
    """100 MB in 100 kB."""
    call.head(200, Content_Type="application/json", Content_Encoding="gzip")
    packer = zlib.compressobj(wbits=31)
    for _ in range(100):
        call.write(packer.compress(b" " * (1 << 20)) + packer.flush(zlib.Z_SYNC_FLUSH))


def bomb_of_events(call: Call) -> None:
    call.events(Content_Encoding="gzip")
    packer = zlib.compressobj(wbits=31)
    for _ in range(100):
        call.write(packer.compress(b": ping\n" * 150_000) + packer.flush(zlib.Z_SYNC_FLUSH))


def nothing_packed(call: Call) -> None:
    """Compressed blocks that decode to nothing, without end."""
    call.head(200, Content_Type="application/json", Content_Encoding="gzip")
    packer = zlib.compressobj(wbits=31)
    call.write(packer.compress(b"") + packer.flush(zlib.Z_SYNC_FLUSH))
    write_endlessly(call, b"\x00\x00\x00\xff\xff" * 8000)


def early_answers(call: Call) -> None:
    """1xx without end; the client's parser skips them."""
    write_endlessly(call, b"HTTP/1.1 103 Early Hints\r\nX-A: " + b"y" * 8000 + b"\r\n\r\n")


def tiny_chunks(call: Call) -> None:
    """A body of one byte a chunk, each behind a long chunk extension."""
    call.head(200, Content_Type="application/json", Transfer_Encoding="chunked")
    write_endlessly(call, b"1;" + b"e" * 8000 + b"\r\nx\r\n")


OVERSIZE = [
    huge_json,
    huge_chunked,
    endless_event,
    endless_line_of_field,
    many_lines_in_one_event,
    comments,
    empty_events,
    notifications,
    bomb,
    bomb_of_events,
    nothing_packed,
    early_answers,
    tiny_chunks,
]


@pytest.mark.parametrize("when", ["initialize", "tools_list"])
@pytest.mark.parametrize("body", OVERSIZE, ids=lambda body: body.__name__)
def test_a_body_without_end_is_oversize(body, when):
    found, _ = probe_script(make_good_script(**{when: body}))
    assert (found.error_kind, found.tools) == ("oversize", [])


@pytest.mark.parametrize(
    "body", [endless_event, many_lines_in_one_event, comments, empty_events, notifications]
)
def test_a_stream_without_end_is_oversize_over_sse_too(body):
    def script(call: Call) -> None:
        body(call) if call.method == "GET" else call.say(status=202)

    assert probe_script(script, "sse")[0].error_kind == "oversize"


def drip(call: Call) -> None:
    call.head(200, Content_Type="application/json", Content_Length="100000")
    call.for_ever(lambda: call.write(b" "), pause_s=0.05)


def drip_of_headers(call: Call) -> None:
    call.write(b"HTTP/1.1 200 OK\r\n")
    call.for_ever(lambda: call.write(b"X: y\r\n"), pause_s=0.05)


def open_stream(call: Call) -> None:
    call.events()
    call.for_ever()


def pings(call: Call) -> None:
    call.events()
    call.for_ever(lambda: call.write(b": ping\n\n"), pause_s=0.05)


def half_a_message(call: Call) -> None:
    call.events()
    call.write(b'data: {"jsonrpc": "2.0", "id": ')
    call.for_ever()


SLOW = [drip, drip_of_headers, keep_silent, open_stream, pings, half_a_message]


@pytest.mark.parametrize("body", SLOW, ids=lambda body: body.__name__)
def test_a_server_that_keeps_us_waiting_is_left(body):
    quick = ProbePolicy(start_s=0.3, list_s=0.3)
    assert (
        probe_script(make_good_script(initialize=body), limits=quick)[0].error_kind
        == "timeout_start"
    )
    listing = ProbePolicy(start_s=30, list_s=0.3)
    assert (
        probe_script(make_good_script(tools_list=body), limits=listing)[0].error_kind
        == "timeout_list"
    )
    never = RemotePolicy(allow_loopback=True, wall_s=0.4)
    assert (
        probe_script(make_good_script(initialize=body), policy=never)[0].error_kind
        == "timeout_start"
    )


def test_a_stream_that_never_names_its_endpoint_is_left():
    quick = ProbePolicy(start_s=0.3, list_s=0.3)
    found, _ = probe_script(lambda call: open_stream(call), "sse", limits=quick)
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
        make_good_script(initialize=begin, prompts_list=keep_silent, resources_list=huge_chunked)
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
    assert (
        probe_script(make_good_script(initialize=begin, DELETE=keep_silent), policy=policy)[
            0
        ].status
        == "ok"
    )
