"""Untrusted remote servers: redirects, headers and event streams that mislead are refused."""

import json

import pytest

from tests.hostile.cases import probe_script, write_endlessly
from tests.support.cases import cases
from tests.support.http_mcp import (
    Call,
    make_good_script,
    make_reply,
    make_sse_script,
    make_tool,
    make_welcome,
)
from tests.support.network import guard_loopback

# --- redirects


def test_a_redirect_to_a_private_address_is_denied_before_anything_is_sent():
    connector, inner = guard_loopback("10.9.8.7")
    target = "http://metadata.example/latest"
    found, here = probe_script(
        lambda call: call.say(status=307, Location=target), connector=connector
    )
    assert (found.error_kind, len(here.calls), inner.dialled) == ("policy_denied", 1, [])
    assert "10.9.8.7" in str(found.hint)


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
        data = json.dumps(make_reply(call.message, make_welcome())).encode()
        head = f"HTTP/1.1 200 OK\r\nMcp-Session-Id: {HEADERS[name]}\r\nConnection: close\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
        call.write(head.encode("latin-1") + data)

    found, here = probe_script(make_good_script(initialize=begin))
    assert found.error_kind == "protocol_error"
    assert len(here.calls) == 1


def test_an_event_id_that_would_inject_a_header_is_not_sent_back():
    def breaks(call: Call) -> None:
        call.events()
        call.write("id: a\x01é b\ndata:\n\n".encode())

    found, here = probe_script(make_good_script(tools_list=breaks))
    assert found.error_kind == "protocol_error"
    assert all("last-event-id" not in call.headers for call in here.calls)


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


def test_cookies_of_one_probe_are_not_kept_for_another():
    def begin(call: Call) -> None:
        call.answer(make_welcome(), Set_Cookie="who=me; Path=/")

    calls = [probe_script(make_good_script(initialize=begin))[1].calls for _ in range(2)]
    assert calls[0][-1].headers.get("cookie") == "who=me"
    assert "cookie" not in calls[1][0].headers


def test_a_hint_holds_no_control_characters():
    words = "\x1b[31mred\x1b[0m \u202e\x07\r\nnext"
    found, _ = probe_script(lambda call: call.say(words, status=400))
    assert found.error_kind == "protocol_error"
    assert all(char.isprintable() for char in str(found.hint))


# --- SSE


@cases(
    "endpoint",
    *("http://127.0.0.1:1/steal", "https://evil.example/steal", "//evil.example/steal"),
    *("file:///etc/passwd", "http://[bad", "/" + "x" * 3000),
)
def test_an_endpoint_elsewhere_is_refused_and_nothing_sent_there(endpoint):
    """The SDK raises within its reader, which then waits for ever."""
    headers = {"Authorization": "Bearer tok-en"}
    found, here = probe_script(make_sse_script(endpoint=endpoint), "sse", headers=headers)
    assert (found.error_kind, "elsewhere" in str(found.hint)) == ("protocol_error", True)
    assert [call.method for call in here.calls] == ["GET"]


def test_a_second_endpoint_is_noise():
    first = make_sse_script()

    def twice(call: Call) -> None:
        if call.method == "GET":
            call.events()
            call.event("/messages?sessionId=1", event="endpoint")
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


def test_a_stream_that_ends_before_the_answer_is_classified():
    def ends(call: Call) -> None:
        if call.method == "GET":
            call.events()
            call.event("/messages", event="endpoint")
        else:
            call.say(status=202)

    for script in (ends, lambda call: call.events()):
        assert probe_script(script, "sse")[0].error_kind == "protocol_error"


def test_the_answer_to_a_post_may_be_endless_and_is_not_read():
    behind = make_sse_script()

    def chatty(call: Call) -> None:
        if call.method == "POST" and call.asks.startswith("notifications/"):
            call.head(200, Content_Type="text/html")
            write_endlessly(call)
        else:
            behind(call)

    assert probe_script(chatty, "sse")[0].status == "ok"


def test_a_401_without_end_is_read_no_further():
    def closed(call: Call) -> None:
        call.head(401, WWW_Authenticate='Bearer resource_metadata="http://10.0.0.1/"')
        write_endlessly(call)

    found, here = probe_script(closed)
    assert (found.error_kind, len(here.calls)) == ("remote_auth", 1)
