"""Strangers at the other end of HTTP: each is bounded and has its kind."""

import json
import threading
import zlib

import pytest

from assets.servers.probe.session import ProbePolicy
from assets.servers.remote.client import MAX_STREAMS
from assets.servers.remote.probe import RemotePolicy, probe_remote
from tests.support.http_mcp import Call, good, old, peer, reply, tool, welcome

LIMITS = ProbePolicy(start_s=1.0, list_s=1.0, extras_s=0.5)
POLICY = RemotePolicy(allow_loopback=True, max_mb=4, message_mb=2, wall_s=2.5, connect_s=1)
CHUNK = b"x" * 65536


def meet(script, transport="http", limits=LIMITS, policy=POLICY, **more):
    with peer(script) as here:
        found = probe_remote(here.url, transport=transport, limits=limits, policy=policy, **more)
    return found, here


def endless(call: Call, data: bytes = CHUNK) -> None:
    call.for_ever(lambda: call.write(data), pause_s=0)


def chunk(data: bytes) -> bytes:
    return f"{len(data):x}\r\n".encode() + data + b"\r\n"


# --- a body each: what answers `initialize` or `tools/list` with it has the kind


def huge_json(call: Call) -> None:
    call.head(200, Content_Type="application/json", Content_Length=str(100 << 20))
    endless(call)


def huge_chunked(call: Call) -> None:
    call.head(200, Content_Type="application/json", Transfer_Encoding="chunked")
    endless(call, chunk(CHUNK))


def endless_event(call: Call) -> None:
    call.events()
    call.write(b"data: ")
    endless(call)


def endless_line_of_field(call: Call) -> None:
    call.events()
    endless(call)


def many_lines_in_one_event(call: Call) -> None:
    call.events()
    endless(call, b"data: x\n" * 4000)


def comments(call: Call) -> None:
    call.events()
    endless(call, b": ping\n" * 8000)


def empty_events(call: Call) -> None:
    call.events()
    endless(call, b"event: x\ndata: 1\n\n" * 2000)


def notifications(call: Call) -> None:
    call.events()
    note = json.dumps({"jsonrpc": "2.0", "method": "notifications/message", "params": {}})
    endless(call, f"data: {note}\n\n".encode() * 500)


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
    endless(call, b"\x00\x00\x00\xff\xff" * 8000)


def early_answers(call: Call) -> None:
    """1xx without end; the client's parser skips them."""
    endless(call, b"HTTP/1.1 103 Early Hints\r\nX-A: " + b"y" * 8000 + b"\r\n\r\n")


def tiny_chunks(call: Call) -> None:
    """A body of one byte a chunk, each behind a long chunk extension."""
    call.head(200, Content_Type="application/json", Transfer_Encoding="chunked")
    endless(call, b"1;" + b"e" * 8000 + b"\r\nx\r\n")


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
    found, _ = meet(good(**{when: body}))
    assert (found.error_kind, found.tools) == ("oversize", [])


@pytest.mark.parametrize(
    "body", [endless_event, many_lines_in_one_event, comments, empty_events, notifications]
)
def test_a_stream_without_end_is_oversize_over_sse_too(body):
    def script(call: Call) -> None:
        body(call) if call.method == "GET" else call.say(status=202)

    assert meet(script, "sse")[0].error_kind == "oversize"


def drip(call: Call) -> None:
    call.head(200, Content_Type="application/json", Content_Length="100000")
    call.for_ever(lambda: call.write(b" "), pause_s=0.05)


def drip_of_headers(call: Call) -> None:
    call.write(b"HTTP/1.1 200 OK\r\n")
    call.for_ever(lambda: call.write(b"X: y\r\n"), pause_s=0.05)


def silence(call: Call) -> None:
    call.for_ever()


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


SLOW = [drip, drip_of_headers, silence, open_stream, pings, half_a_message]


@pytest.mark.parametrize("body", SLOW, ids=lambda body: body.__name__)
def test_a_server_that_keeps_us_waiting_is_left(body):
    quick = ProbePolicy(start_s=0.3, list_s=0.3)
    assert meet(good(initialize=body), limits=quick)[0].error_kind == "timeout_start"
    assert meet(good(tools_list=body), limits=quick)[0].error_kind == "timeout_list"
    never = RemotePolicy(allow_loopback=True, wall_s=0.4)
    assert meet(good(initialize=body), policy=never)[0].error_kind == "timeout_start"


def test_a_stream_that_never_names_its_endpoint_is_left():
    quick = ProbePolicy(start_s=0.3, list_s=0.3)
    found, _ = meet(lambda call: open_stream(call), "sse", limits=quick)
    assert found.error_kind == "timeout_start"


def test_the_wall_clock_ends_a_server_that_answers_slowly_for_ever():
    def page(call: Call) -> None:
        threading.Event().wait(0.1)
        number = call.message["id"]
        call.answer({"tools": [tool(f"t{number}")], "nextCursor": str(number)})

    patient = ProbePolicy(start_s=30, list_s=30)
    policy = RemotePolicy(allow_loopback=True, wall_s=0.6)
    found, here = meet(good(tools_list=page), limits=patient, policy=policy)
    assert (found.error_kind, found.tools) == ("timeout_list", [])
    assert len(here.calls) < 20


def test_what_was_listed_stands_when_the_extras_hold_us():
    def begin(call: Call) -> None:
        call.answer(welcome(prompts={}, resources={}))

    found, _ = meet(good(initialize=begin, prompts_list=silence, resources_list=huge_chunked))
    assert (found.status, len(found.tools)) == ("ok", 2)
    found, _ = meet(good(initialize=begin, prompts_list=silence))
    assert (found.status, len(found.tools)) == ("ok", 2)
    assert "prompts" in found.missed


def test_a_farewell_that_hangs_does_not():
    def begin(call: Call) -> None:
        call.answer(welcome(), Mcp_Session_Id="s-1")

    def bye(call: Call) -> None:
        call.head(200)
        endless(call)

    found, here = meet(good(initialize=begin, DELETE=bye))
    assert (found.status, here.calls[-1].method) == ("ok", "DELETE")
    policy = RemotePolicy(allow_loopback=True, wall_s=0.8)
    assert meet(good(initialize=begin, DELETE=silence), policy=policy)[0].status == "ok"


# --- redirects


@pytest.mark.parametrize(
    "location",
    ["/mcp", "/mcp/../mcp", "?again", "//127.0.0.1:{port}/mcp", "http://127.0.0.1:{port}/x"],
)
def test_a_loop_of_redirects_ends(location):
    def loop(call: Call) -> None:
        port = call.handler.server.server_address[1]  # type: ignore[index]
        call.say(status=307, Location=location.format(port=port))

    found, here = meet(loop)
    assert (found.error_kind, len(here.calls)) == ("protocol_error", 4)


def test_a_redirect_to_another_origin_is_told_no_secret():
    with peer(good()) as there:
        headers = {"Authorization": "Bearer tok-en-4242", "X-Api-Key": "key-4242"}
        found, here = meet(lambda call: call.say(status=308, Location=there.url), headers=headers)
    assert (found.status, len(found.tools)) == ("ok", 2)
    assert here.calls[0].headers["authorization"] == "Bearer tok-en-4242"
    assert all("4242" not in str(call.headers) for call in there.calls)


@pytest.mark.parametrize(
    "location", ["file:///etc/passwd", "gopher://127.0.0.1/", "http://u:p@127.0.0.1/", "unix:/x"]
)
def test_a_redirect_to_what_is_no_web_address_is_denied(location):
    found, here = meet(lambda call: call.say(status=307, Location=location))
    assert (found.error_kind, len(here.calls)) == ("policy_denied", 1)


def test_a_redirect_to_a_private_address_is_denied_before_anything_is_sent():
    from tests.support.network import NoNetwork
    from warehouse.network.egress import Connector, look_up

    class Loopback(NoNetwork):
        """Lets loopback through, where the test's own server is, and notes what else was asked."""

        async def connect_tcp(self, host: str, port: int, *more: object, **named: object):
            import httpcore2

            if host == "127.0.0.1":
                return await httpcore2.AnyIOBackend().connect_tcp(host, port)
            return await super().connect_tcp(host, port, *more, **named)

    async def answers(host: str, port: int) -> list[str]:
        return ["10.9.8.7"] if host == "metadata.example" else await look_up(host, port)

    inner = Loopback()
    connector = Connector(resolve=answers, inner=inner, allow_loopback=True)
    target = "http://metadata.example/latest"
    found, here = meet(lambda call: call.say(status=307, Location=target), connector=connector)
    assert (found.error_kind, len(here.calls), inner.dialled) == ("policy_denied", 1, [])
    assert "10.9.8.7" in str(found.hint)


# --- messages


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
    "an id of another type": LISTED.replace("ID", '"ID"'),
    "an id that is a list": LISTED.replace("ID", "[ID]"),
    "tools that are no list": '{"jsonrpc":"2.0","id":ID,"result":{"tools":{"a":1}}}',
    "a result that is a text": '{"jsonrpc":"2.0","id":ID,"result":"tools"}',
    "neither result nor error": '{"jsonrpc":"2.0","id":ID}',
    "case-variant keys": '{"jsonrpc":"2.0","id":ID,"Result":{"tools":[]}}',
    "invalid UTF-8": "\udcff",
}


@pytest.mark.parametrize("form", [raw, stream_of])
@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_answer_is_a_protocol_error(name, form):
    text = BROKEN[name] if name != "invalid UTF-8" else '{"a": "\u0080'
    found, _ = meet(good(tools_list=form(text)))
    assert (found.error_kind, found.tools) == ("protocol_error", []), found.hint


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_handshake_is_a_protocol_error(name):
    text = BROKEN[name] if name != "invalid UTF-8" else '{"a": "\u0080'
    assert meet(good(initialize=raw(text)))[0].error_kind == "protocol_error"


TWO = [LISTED, LISTED.replace('"a"', '"evil"')]


@pytest.mark.parametrize(
    "answer",
    [stream_of(*TWO), stream_of(TWO[1].replace("ID", "77"), TWO[0]), raw(f"[{TWO[0]},{TWO[1]}]")],
)
def test_of_two_answers_the_first_to_what_was_asked_counts(answer):
    found, _ = meet(good(tools_list=answer))
    assert [one["name"] for one in found.tools] == ["a"]


def test_keys_that_differ_in_case_are_kept_as_they_came():
    odd = {"name": "a", "Name": "b", "inputSchema": {}, "inputschema": {"x": 1}}
    assert meet(good([odd]))[0].tools == [odd]


def test_lone_surrogates_do_not_stop_a_probe():
    found, _ = meet(good([tool("a", description="\ud800 \udfff")]))
    assert found.status == "ok"

    def begin(call: Call) -> None:
        call.answer({**welcome(), "instructions": "\ud800"})

    assert meet(good(initialize=begin))[0].status == "ok"


def test_ten_thousand_tools_are_too_many():
    found, _ = meet(good([tool(f"t{n}") for n in range(10_000)]))
    assert (found.error_kind, found.tools) == ("oversize", [])


def test_a_cursor_without_end_and_one_that_comes_twice():
    def page(cursor):
        def answer(call: Call) -> None:
            number = call.message["id"]
            call.answer({"tools": [tool(f"t{number}")], "nextCursor": cursor(number)})

        return answer

    few = ProbePolicy(start_s=2, list_s=5, max_pages=20)
    assert meet(good(tools_list=page(str)), limits=few)[0].error_kind == "oversize"
    assert meet(good(tools_list=page(lambda _: "x")))[0].error_kind == "protocol_error"


def test_a_protocol_of_the_future_is_refused():
    found, _ = meet(good(initialize=lambda call: call.answer(welcome("2999-01-01"))))
    assert found.error_kind == "protocol_error"


def test_a_storm_of_requests_is_bounded():
    """Each request of a server is answered by a POST of ours: it must not make us its hammer."""

    def storm(call: Call) -> None:
        call.events()
        for number in range(1000):
            call.event({"jsonrpc": "2.0", "id": number, "method": "ping"})
        call.event(reply(call.message, {"tools": [tool("a")]}))

    found, here = meet(good(tools_list=storm), limits=ProbePolicy(start_s=2, list_s=5))
    assert found.initiated <= 1000
    assert len(here.calls) <= 220
    assert found.error_kind in (None, "timeout_list", "timeout_start")


def test_a_stream_that_ends_at_once_is_not_asked_for_ever():
    """`retry: 0` would have the SDK's client ask again without a pause."""

    def begin(call: Call) -> None:
        call.answer(welcome(), Mcp_Session_Id="s-1")

    def ends(call: Call) -> None:
        call.events()
        call.write(b"retry: 0\ndata:\nid: 1\n\n")

    found, here = meet(good(initialize=begin, GET=ends, tools_list=silence))
    assert found.error_kind == "timeout_list"
    assert [call.method for call in here.calls].count("GET") <= MAX_STREAMS
    found, here = meet(good(tools_list=ends))
    assert [call.method for call in here.calls].count("GET") <= MAX_STREAMS


# --- headers


HEADERS = {
    "a control character": "s\x01",
    "a space": "s 1",
    "a tab": "s\t1",
    "no ASCII": "s\xe9",
    "nothing": "",
    "a kilobyte": "s" * 1024,
}


@pytest.mark.parametrize("name", HEADERS)
def test_a_session_id_that_is_none_is_not_sent_back(name):
    def begin(call: Call) -> None:
        data = json.dumps(reply(call.message, welcome())).encode()
        head = f"HTTP/1.1 200 OK\r\nMcp-Session-Id: {HEADERS[name]}\r\nConnection: close\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
        call.write(head.encode("latin-1") + data)

    found, here = meet(good(initialize=begin))
    assert found.error_kind == "protocol_error"
    assert len(here.calls) == 1


def test_an_event_id_that_would_inject_a_header_is_not_sent_back():
    def breaks(call: Call) -> None:
        call.events()
        call.write("id: a\x01é b\ndata:\n\n".encode())

    found, here = meet(good(tools_list=breaks))
    assert found.error_kind == "protocol_error"
    assert all("last-event-id" not in call.headers for call in here.calls)


@pytest.mark.parametrize(
    "head",
    [
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
    ],
)
def test_what_is_no_http_is_classified(head):
    found, _ = meet(lambda call: call.write(head))
    assert found.error_kind in ("protocol_error", "remote_down")


def test_cookies_of_one_probe_are_not_kept_for_another():
    def begin(call: Call) -> None:
        call.answer(welcome(), Set_Cookie="who=me; Path=/")

    assert meet(good(initialize=begin))[1].calls[-1].headers.get("cookie") == "who=me"
    assert "cookie" not in meet(good(initialize=begin))[1].calls[0].headers


def test_a_hint_holds_no_control_characters():
    words = "\x1b[31mred\x1b[0m \u202e\x07\r\nnext"
    found, _ = meet(lambda call: call.say(words, status=400))
    assert found.error_kind == "protocol_error"
    assert all(char.isprintable() for char in str(found.hint))


# --- SSE


@pytest.mark.parametrize(
    "endpoint",
    [
        "http://127.0.0.1:1/steal",
        "https://evil.example/steal",
        "//evil.example/steal",
        "file:///etc/passwd",
        "http://[bad",
        "/" + "x" * 3000,
    ],
)
def test_an_endpoint_elsewhere_is_refused_and_nothing_sent_there(endpoint):
    """The SDK raises within its reader, which then waits for ever."""
    found, here = meet(old(endpoint=endpoint), "sse", headers={"Authorization": "Bearer tok-en"})
    assert found.error_kind == "protocol_error"
    assert "elsewhere" in str(found.hint)
    assert [call.method for call in here.calls] == ["GET"]


def test_a_second_endpoint_is_noise():
    first = old()

    def twice(call: Call) -> None:
        if call.method == "GET":
            call.events()
            call.event("/messages?sessionId=1", event="endpoint")
            call.event("http://127.0.0.1:1/steal", event="endpoint")
            waiting.append(call)
            call.for_ever()
        elif call.asks == "initialize":
            call.say(status=202)
            waiting[-1].event(reply(call.message, welcome()))
        elif call.asks == "tools/list":
            call.say(status=202)
            waiting[-1].event(reply(call.message, {"tools": [tool("a")]}))
        else:
            first(call)

    waiting: list[Call] = []
    found, _ = meet(twice, "sse")
    assert [one["name"] for one in found.tools] == ["a"]


def test_a_stream_that_ends_before_the_answer_is_classified():
    def ends(call: Call) -> None:
        if call.method == "GET":
            call.events()
            call.event("/messages", event="endpoint")
        else:
            call.say(status=202)

    assert meet(ends, "sse")[0].error_kind == "protocol_error"

    def at_once(call: Call) -> None:
        call.events()

    assert meet(at_once, "sse")[0].error_kind == "protocol_error"


def test_the_answer_to_a_post_may_be_endless_and_is_not_read():
    behind = old()

    def chatty(call: Call) -> None:
        if call.method == "POST" and call.asks.startswith("notifications/"):
            call.head(200, Content_Type="text/html")
            endless(call)
        else:
            behind(call)

    assert meet(chatty, "sse")[0].status == "ok"


def test_a_401_without_end_is_read_no_further():
    def closed(call: Call) -> None:
        call.head(401, WWW_Authenticate='Bearer resource_metadata="http://10.0.0.1/"')
        endless(call)

    found, here = meet(closed)
    assert (found.error_kind, len(here.calls)) == ("remote_auth", 1)
