"""Untrusted remote servers: messages that break the protocol have their kind."""

import pytest

from assets.servers.probe.remote_transport import MAX_STREAMS
from assets.servers.probe.session import ProbePolicy
from tests.hostile.cases import keep_silent, probe_script
from tests.support.cases import cases
from tests.support.http_mcp import Call, make_good_script, make_reply, make_tool, make_welcome


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


@cases("form", raw, stream_of)
@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_answer_is_a_protocol_error(name, form):
    found, _ = probe_script(make_good_script(tools_list=form(BROKEN[name])))
    assert (found.error_kind, found.tools) == ("protocol_error", []), found.hint


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_handshake_is_a_protocol_error(name):
    found, _ = probe_script(make_good_script(initialize=raw(BROKEN[name])))
    assert found.error_kind == "protocol_error"


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


def test_keys_that_differ_in_case_are_kept_as_they_came():
    odd = {"name": "a", "Name": "b", "inputSchema": {}, "inputschema": {"x": 1}}
    assert probe_script(make_good_script([odd]))[0].tools == [odd]


def test_lone_surrogates_do_not_stop_a_probe():
    found, _ = probe_script(make_good_script([make_tool("a", description="\ud800 \udfff")]))
    assert found.status == "ok"

    def begin(call: Call) -> None:
        call.answer({**make_welcome(), "instructions": "\ud800"})

    assert probe_script(make_good_script(initialize=begin))[0].status == "ok"


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


def test_a_protocol_of_the_future_and_an_id_of_text_are_faults_that_are_named():
    begin = make_good_script(initialize=lambda call: call.answer(make_welcome("2999-01-01")))
    found = probe_script(begin)[0]
    assert (found.status, any("2999-01-01" in fault for fault in found.faults)) == ("ok", True)
    text = probe_script(make_good_script(tools_list=raw(LISTED.replace("ID", '"ID"'))))[0]
    assert (text.status, any("id" in fault for fault in text.faults)) == ("ok", True)


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

    def begin(call: Call) -> None:
        call.answer(make_welcome(), Mcp_Session_Id="s-1")

    def ends(call: Call) -> None:
        call.events()
        call.write(b"retry: 0\ndata:\nid: 1\n\n")

    quick = ProbePolicy(start_s=20, list_s=1)
    found, here = probe_script(
        make_good_script(initialize=begin, GET=ends, tools_list=keep_silent), limits=quick
    )
    assert found.error_kind == "timeout_list"
    assert [call.method for call in here.calls].count("GET") <= MAX_STREAMS
    found, here = probe_script(make_good_script(tools_list=ends), limits=quick)
    assert [call.method for call in here.calls].count("GET") <= MAX_STREAMS
