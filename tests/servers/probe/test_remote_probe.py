"""Remote servers that behave: every form of the transports lists its tools."""

import logging
import time

from assets.servers.probe.remote_probe import probe_remote
from assets.servers.probe.remote_transport import RemotePolicy
from assets.servers.probe.session import ProbePolicy
from tests.support import http_mcp
from tests.support.cases import cases
from tests.support.http_mcp import Call, make_good_script, make_tool, serve_script, served

LIMITS = ProbePolicy(start_s=4, list_s=4, extras_s=2)
POLICY = RemotePolicy(allow_loopback=True, wall_s=40)


def ask(url, transport="auto", limits=LIMITS, policy=POLICY, **more):
    return probe_remote(url, transport=transport, limits=limits, policy=policy, **more)


def ask_script(script, *args, **more):
    """What a probe finds at a server of this script."""
    with serve_script(script) as here:
        return ask(here.url, *args, **more)


def names(result):
    return [tool["name"] for tool in result.tools]


def sdk_server():
    from mcp.server import MCPServer

    server = MCPServer("acme", version="7")

    @server.tool()
    def add(a: int, b: int) -> int:
        """Adds two numbers."""
        return a + b

    @server.tool()
    def shout(text: str) -> str:
        """Says it louder."""
        return text.upper()

    @server.prompt()
    def greet(name: str) -> str:
        """Greets someone."""
        return f"Hello {name}"

    @server.resource("acme://readme")
    def readme() -> str:
        """What it is."""
        return "acme"

    return server


@cases("kind", "event streams", "JSON answers", "stateless", "SSE")
@cases("transport", "named", "auto")
def test_the_sdks_server_is_listed_whole(kind, transport):
    server = sdk_server()
    how = {"json_response": kind == "JSON answers", "stateless_http": kind == "stateless"}
    app = server.sse_app() if kind == "SSE" else server.streamable_http_app(**how)
    path, name = ("/sse", "sse") if kind == "SSE" else ("/mcp", "http")
    with served(app) as url:
        found = ask(url + path, name if transport == "named" else "auto")
    assert (found.status, names(found)) == ("ok", ["add", "shout"]), found.hint
    assert found.server_info["name"] == "acme"
    assert [prompt["name"] for prompt in found.prompts] == ["greet"]
    assert [resource["uri"] for resource in found.resources] == ["acme://readme"]
    assert found.protocol
    assert (found.peak_mb, found.missed) == (0.0, [])
    assert found.tools[0]["inputSchema"]["properties"]["a"]["type"] == "integer"


def test_session_id_version_and_headers_go_with_each_request_and_the_session_is_ended():
    with serve_script(make_good_script(initialize=http_mcp.begin_session)) as here:
        found = ask(here.url, headers={"Authorization": "Bearer tok-en-42", "X-Team": "blue"})
    assert found.status == "ok"
    first, *rest = here.calls
    assert "mcp-session-id" not in first.headers
    assert {call.headers["mcp-session-id"] for call in rest} == {"s-1"}
    assert {call.headers["mcp-protocol-version"] for call in rest} == {http_mcp.VERSION}
    assert {call.headers["authorization"] for call in here.calls} == {"Bearer tok-en-42"}
    assert {call.headers["x-team"] for call in here.calls} == {"blue"}
    assert here.calls[-1].method == "DELETE"
    asked = [call.asks for call in here.calls if call.method == "POST"]
    assert asked == ["initialize", "notifications/initialized", "tools/list"]


def test_the_client_says_who_asks_lists_again_in_one_session_and_deletes_none():
    with serve_script(make_good_script()) as here:
        ask(here.url, limits=ProbePolicy(start_s=4, list_s=4, client_name="someone-else"))
    assert here.calls[0].message["params"]["clientInfo"]["name"] == "someone-else"
    assert here.calls[0].headers["accept-encoding"] == "gzip"
    assert "DELETE" not in [call.method for call in here.calls]
    with served(sdk_server().streamable_http_app()) as url:
        found = ask(f"{url}/mcp", limits=ProbePolicy(start_s=4, list_s=4, lists=3))
    assert len(found.later) == 2
    assert found.later[0] == found.later[1] == found.tools


def test_a_list_with_one_bad_schema_is_kept_raw_and_all_pages_are_read():
    odd = [make_tool("a"), {"name": 7, "inputSchema": "nonsense", "extra": {"x": None}}, "no tool"]
    found = ask_script(make_good_script(odd))
    assert found.tools == odd[:2]  # what is no object is no tool

    def page(call: Call) -> None:
        cursor = (call.message.get("params") or {}).get("cursor")
        pages = {None: ("a", "1"), "1": ("b", "2"), "2": ("c", None)}
        name, more = pages[cursor]
        call.answer({"tools": [make_tool(name)], **({"nextCursor": more} if more else {})})

    found = ask_script(make_good_script(tools_list=page))
    assert (names(found), found.pages) == (["a", "b", "c"], 3)


def test_an_answer_in_a_list_or_in_the_middle_of_an_event_stream_is_taken():
    def stream(call: Call) -> None:
        call.events()
        call.write(b": a comment\n\n")
        call.event({"jsonrpc": "2.0", "method": "notifications/progress", "params": {}})
        call.event(http_mcp.make_reply(call.message, {"tools": [make_tool("a")]}), event_id="7")
        call.for_ever()  # the stream stays open after the answer

    found = ask_script(make_good_script(tools_list=stream))
    assert (found.status, names(found)) == ("ok", ["a"])
    # Servers of the protocol 2025-03-26 may answer so.

    def batch(call: Call) -> None:
        note = {"jsonrpc": "2.0", "method": "notifications/message", "params": {}}
        call.json([note, http_mcp.make_reply(call.message, {"tools": [make_tool("a")]})])

    assert names(ask_script(make_good_script(tools_list=batch))) == ["a"]


def test_a_stream_that_breaks_off_or_a_session_that_ends_is_taken_up():
    def breaks(call: Call) -> None:
        call.events()
        call.event("", event_id="half-way")

    def resume(call: Call) -> None:
        if call.headers.get("last-event-id") != "half-way":
            call.say(status=405)
            return
        asked = next(one for one in here.calls if one.asks == "tools/list")
        call.events()
        call.event(http_mcp.make_reply(asked.message, {"tools": [make_tool("late")]}))

    with serve_script(make_good_script(tools_list=breaks, GET=resume)) as here:
        assert names(ask(here.url)) == ["late"]
    ended = []

    def forgetful(call: Call) -> None:
        if call.asks == "initialize":
            call.answer(http_mcp.make_welcome(), Mcp_Session_Id=f"s-{len(ended)}")
        elif call.asks == "tools/list" and not ended:
            ended.append(call)
            call.json({"error": "session not found"}, status=404)
        else:
            make_good_script()(call)

    with serve_script(forgetful) as here:
        found = ask(here.url)
    assert (names(found), here.asked.count("initialize")) == (["a", "b"], 2)


def test_requests_of_the_server_are_declined_and_the_tools_listed():
    methods = ("sampling/createMessage", "elicitation/create", "roots/list", "ping")

    def stream(call: Call) -> None:
        call.events()
        for number, method in enumerate(methods):
            params = {"messages": [], "maxTokens": 1, "message": "?", "requestedSchema": {}}
            asks = {"jsonrpc": "2.0", "id": f"s{number}", "method": method, "params": params}
            call.event(asks)
        call.for_ever()

    def wait(call: Call) -> None:
        """The list comes when all four are answered."""
        while len(answers()) < len(methods):
            time.sleep(0.01)
        call.answer({"tools": [make_tool("a")]})

    def answers() -> list[dict]:
        messages = [call.message for call in here.calls if call.method == "POST"]
        return [message for message in messages if "method" not in message]

    script = make_good_script(GET=stream, tools_list=wait, initialize=http_mcp.begin_session)
    with serve_script(script) as here:
        found = ask(here.url)
        by_id = {answer["id"]: answer for answer in answers()}
    assert names(found) == ["a"]
    assert all("error" in by_id[f"s{number}"] for number in range(3))
    assert (by_id["s3"]["result"], found.initiated) == ({}, 4)


@cases("status", 400, 404, 405, 406, 415)
def test_auto_tries_sse_where_the_post_is_refused(status):
    def older(call: Call) -> None:
        if call.method == "POST" and call.path == "/mcp":
            call.say("Method not allowed", status=status)
        else:
            behind(call)

    behind = http_mcp.make_sse_script()
    found = ask_script(older)
    assert (found.status, names(found)) == ("ok", ["a", "b"]), found.hint


def test_no_named_transport_is_left_and_large_lists_come_over_sse_too():
    with serve_script(lambda call: call.say("no", status=401)) as here:
        assert ask(here.url).error_kind == "remote_auth"
    assert here.asked == ["initialize"]
    with serve_script(http_mcp.make_sse_script()) as here:
        assert ask(here.url, "http").error_kind == "protocol_error"
        assert "GET" not in [call.method for call in here.calls]
        assert names(ask(here.url, "sse")) == ["a", "b"]
    # The SDK's client takes no event of more than 1 MiB.
    many = [make_tool(f"t{n}", description="x" * 4000) for n in range(600)]
    assert len(ask_script(http_mcp.make_sse_script(many), "sse").tools) == 600


def test_what_is_secret_comes_back_in_no_result_and_no_log_where_others_still_log(caplog):
    caplog.set_level(logging.DEBUG)
    token = "tok-en-4242424242"

    def echo(call: Call) -> None:
        call.answer({"tools": [make_tool(f"a-{token}", description=call.headers["authorization"])]})

    def confess(call: Call) -> None:
        call.json({"error": f"the token {token} is no good"}, status=400)

    headers = {"Authorization": f"Bearer {token}", "X-Slug": "a"}
    with serve_script(make_good_script(tools_list=echo)) as here:
        found = ask(here.url, headers=headers)
    with serve_script(make_good_script(tools_list=confess)) as here:
        refused = ask(here.url + "?api_key=" + token, headers=headers)
    assert found.tools[0]["name"] == "a-[secret Authorization]"
    assert (found.tools[0]["description"], refused.status) == ("[secret Authorization]", "failed")
    assert token not in f"{found} {refused}"
    # What the event loop's own selector says is no concern of ours.
    assert [record for record in caplog.records if token in record.getMessage()] == []
    ask_script(make_good_script())
    logging.getLogger("mcp.client.sse").warning("somebody else")
    assert "somebody else" in caplog.text
