"""Over streamable HTTP: tokens, allow-lists, limits, hosts, and a new index underneath."""

import json
import signal
import socket
from hashlib import sha256
from typing import Any
from urllib.parse import urlsplit

import anyio
import httpx2
import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import ResourceListChangedNotification, ToolListChangedNotification

from assets.servers.calls.log import CallLog
from serving.meta.policy import ClientToken, HttpSettings, MetaPolicy, TokenError
from serving.meta.server import IndexChanges
from serving.meta.transports import CannotServe, run_http
from tests.serving import meta_server
from tests.serving.meta_server import ERAS, ROWS, http_client, over_http, publish, read_text, row
from tests.support.cases import cases
from tests.support.paths import ROOT
from tests.support.python_process import find_python

SECRET, OTHER = "alice-secret-alice-secret", "bob-secret-bob-secret-bob"
INITIALIZE: dict[str, Any] = {
    "jsonrpc": "2.0", "id": 1, "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {},
               "clientInfo": {"name": "t", "version": "1"}},
}  # fmt: skip
HEADERS = {"Accept": "application/json, text/event-stream"}
READ = {"tool_id": "npm:files::read_file", "arguments": {"path": "/etc/motd"}}
WRITE = {"tool_id": "npm:files::write_file", "arguments": {"path": "/tmp/x", "text": "hello"}}


def token(secret: str, name: str, **more) -> ClientToken:
    return ClientToken(name, sha256(secret.encode()).hexdigest(), **more)


ALICE = token(SECRET, "alice")
BOB = token(OTHER, "bob", allow=("pypi:clock::*",), consent="always")


@pytest.mark.parametrize("mode", ERAS)
async def test_list_find_describe_call_report_and_read(meta, mode):
    asked: list[str] = []
    async with (
        over_http(meta, tokens=(ALICE,)) as url,
        http_client(
            url, SECRET, mode, elicitation_callback=meta_server.answering("accept", asked)
        ) as client,
    ):
        assert len((await client.list_tools()).tools) == 4
        result = await client.call_tool("find_tools", {"query": "write one text file", "k": 1})
        described = await client.call_tool("describe_tool", {"tool_id": WRITE["tool_id"]})
        called = await client.call_tool("call_tool", WRITE)
        report = {"call_id": called.structured_content["call_id"], "outcome": "worked"}
        reported = await client.call_tool("report_outcome", report)
        prompt = await client.get_prompt("find-tools")
    assert "npm:files::write_file" in read_text(result)
    assert described.structured_content["consent"]["needed"] is True
    assert (called.structured_content["status"], len(asked)) == ("ok", 1)
    assert (meta.caller.files["/tmp/x"], reported.structured_content["recorded"]) == ("hello", True)
    assert "<tool_assistant>" in prompt.messages[0].content.text
    assert {line["token"] for line in meta.recorded} == {"alice"}


@cases("sent", None, "Bearer wrong-wrong-wrong-wrong", "Bearer", "Basic YTpi", f"bearer{SECRET}")
async def test_without_a_known_token_the_door_is_shut(meta, sent):
    headers = {**HEADERS, **({"Authorization": sent} if sent else {})}
    async with over_http(meta, tokens=(ALICE,)) as url, httpx2.AsyncClient() as http:
        answer = await http.post(url, json=INITIALIZE, headers=headers)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Bearer ")
    assert "wrong-wrong" not in answer.text


async def test_no_token_is_ever_logged(meta, caplog):
    caplog.set_level("DEBUG")
    wrong = {**HEADERS, "Authorization": f"Bearer {OTHER}"}
    async with over_http(meta, tokens=(ALICE,)) as url, httpx2.AsyncClient() as http:
        await http.post(url, json=INITIALIZE, headers=wrong)
        async with http_client(url, SECRET) as client:
            await client.call_tool("call_tool", READ)
            await client.call_tool("find_tools", {"query": ""})
    assert "toolmill" in caplog.text or "StreamableHTTP" in caplog.text
    assert SECRET not in caplog.text
    assert OTHER not in caplog.text


async def test_each_token_sees_its_own_tools_policy_and_sessions(meta):
    async with over_http(meta, tokens=(ALICE, BOB)) as url:
        async with http_client(url, OTHER) as bob:
            result = await bob.call_tool("find_tools", {"query": "read one text file", "k": 50})
            refused = await bob.call_tool("call_tool", READ)
            index = await bob.read_resource("toolmill://index")
        async with http_client(url, SECRET) as alice:
            called = await alice.call_tool("call_tool", READ)
    hits = result.structured_content["answers"][0]["hits"]
    assert [hit["tool_id"] for hit in hits] == ["pypi:clock::get_time"]
    assert refused.structured_content["error"]["kind"] == "not_here"
    assert '"tools": 1' in index.contents[0].text
    assert called.structured_content["status"] == "ok"
    async with over_http(meta, tokens=(ALICE, BOB)) as url, httpx2.AsyncClient() as http:
        mine = {**HEADERS, "Authorization": f"Bearer {SECRET}"}
        opened = await http.post(url, json=INITIALIZE, headers=mine)
        theirs = {**HEADERS, "Authorization": f"Bearer {OTHER}"}
        theirs["Mcp-Session-Id"] = opened.headers["mcp-session-id"]
        listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
        answer = await http.post(url, json=listing, headers=theirs)
    assert answer.status_code == 404


@cases("header, status", ({"Host": "evil.example"}, 421), ({"Origin": "http://evil.example"}, 403))
async def test_a_page_that_points_its_name_here_is_refused(meta, header, status):
    async with over_http(meta) as url, httpx2.AsyncClient() as http:
        answer = await http.post(url, json=INITIALIZE, headers={**HEADERS, **header})
    assert answer.status_code == status


async def test_a_host_that_was_named_is_accepted_besides_loopback_and_no_sign_in_offered(meta):
    named = {"hosts": ("mill.example",), "origins": ("https://mill.example",)}
    headers = {**HEADERS, "Host": "mill.example", "Origin": "https://mill.example"}
    async with over_http(meta, **named) as url, httpx2.AsyncClient() as http:
        ours = await http.post(url, json=INITIALIZE, headers=headers)
        loopback = await http.post(url, json=INITIALIZE, headers=HEADERS)
    assert (ours.status_code, loopback.status_code) == (200, 200)
    async with over_http(meta, tokens=(ALICE,)) as url, httpx2.AsyncClient() as http:
        for path in ("oauth-protected-resource", "oauth-authorization-server"):
            answer = await http.get(url.replace("/mcp", f"/.well-known/{path}"))
            assert answer.status_code == 404


@pytest.mark.parametrize("mode", ERAS)
async def test_beyond_its_requests_a_token_is_told_when_to_come_again(meta, mode):
    few = token(SECRET, "few", requests_per_minute=6)
    async with over_http(meta, tokens=(few, BOB)) as url, http_client(url, SECRET, mode) as client:
        find = ("find_tools", {"query": "a file"})
        results = [await client.session.call_tool(*find) for _ in range(8)]
        with pytest.raises(Exception, match=r"come again in \d+ s"):
            await client.get_prompt("find-tools")
        async with http_client(url, OTHER, mode) as other:
            free = await other.call_tool("find_tools", {"query": "the hour in a city"})
    assert (results[0].is_error, results[-1].is_error) == (False, True)
    error = results[-1].structured_content["error"]
    assert error["kind"] == "too_many_requests"
    assert 0 < error["retry_after_s"] <= 60
    assert "6" in read_text(results[-1])
    assert not free.is_error


async def test_a_token_runs_no_more_calls_at_a_time_than_it_may(meta):
    one = token(SECRET, "one", concurrent=1)
    async with (
        over_http(meta, tokens=(one,)) as url,
        http_client(url, SECRET) as client,
        anyio.create_task_group() as group,
    ):
        group.start_soon(client.call_tool, "call_tool", {"tool_id": "npm:odd::slow"})
        await meta_server.wait_until(lambda: meta.caller.called)
        second = await client.call_tool("call_tool", READ)
        group.cancel_scope.cancel()
    assert second.is_error
    assert "1 calls running" in read_text(second)


async def test_a_body_beyond_the_limit_or_nested_deep_is_an_error_not_a_crash(meta):
    deep = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":' + b"[" * 100_000
    large = {**INITIALIZE, "params": {"filler": "x" * 200_000}}
    headers = {**HEADERS, "Content-Type": "application/json"}
    async with over_http(meta, max_body=150_000) as url, httpx2.AsyncClient() as http:
        sent = (deep, json.dumps(large).encode())
        codes = [(await http.post(url, content=of, headers=headers)).status_code for of in sent]
        async with http_client(url) as client:
            result = await client.call_tool("find_tools", {"query": "read one text file"})
    assert (codes, result.is_error) == ([400, 413], False)


async def test_sessions_are_told_of_a_new_index(meta):
    received: list[type] = []

    async def hear(message) -> None:
        received.append(type(message))

    async with (
        over_http(meta) as url,
        http_client(url, None, "legacy", message_handler=hear) as client,
    ):
        listing = (await client.list_tools()).tools[0].description
        await anyio.sleep(0.3)  # until the client's own stream of notifications is open
        publish(meta.place, [*ROWS, row("npm:new", "brand_new", "Paint a picture")], "r2")
        expected = {ToolListChangedNotification, ResourceListChangedNotification}
        await meta_server.wait_until(lambda: expected <= set(received))
        now = (await client.list_tools()).tools[0].description
        capabilities = client.server_capabilities
    assert "10 tools" in listing
    assert "11 tools" in now
    assert capabilities.tools.list_changed
    assert capabilities.resources.list_changed


async def test_a_session_that_has_ended_is_told_nothing(meta, monkeypatch):
    changes = IndexChanges()
    monkeypatch.setattr("serving.meta.server.IndexChanges", lambda: changes)
    async with over_http(meta) as url:
        async with http_client(url, None, "legacy") as client:
            await client.list_tools()
            assert len(changes.sessions) == 1
        await meta_server.wait_until(lambda: not changes.sessions)
        await changes.announce()


async def test_listeners_are_told_of_a_new_index(meta):
    from mcp.server.subscriptions import ResourcesListChanged, ToolsListChanged

    received: set[type] = set()
    async with over_http(meta) as url, http_client(url) as client:
        listening = client.listen(tools_list_changed=True, resources_list_changed=True)
        async with listening as events:
            publish(meta.place, ROWS[:3], "r2")
            with anyio.fail_after(60):
                async for event in events:
                    received.add(type(event))
                    if received >= {ToolsListChanged, ResourcesListChanged}:
                        break
    assert received == {ToolsListChanged, ResourcesListChanged}


async def test_no_query_is_lost_and_no_answer_mixed_while_new_indexes_are_published(meta):
    odd = [row("npm:odd", f"tool_{i}", "Read one text file") for i in range(4)]
    even = [row("npm:even", f"tool_{i}", "Read one text file") for i in range(4)]
    versions = {publish(meta.place, odd, "odd"): "npm:odd"}
    versions[publish(meta.place, even, "even")] = "npm:even"
    answers, stop = [], anyio.Event()

    async def ask(url: str) -> None:
        async with http_client(url) as client:
            while not stop.is_set():
                result = await client.call_tool("find_tools", {"query": "read a file", "k": 3})
                answers.append(result)

    async with over_http(meta) as url, anyio.create_task_group() as group:
        for _ in range(4):
            group.start_soon(ask, url)
        for turn in range(6):
            publish(meta.place, *((odd, "odd") if turn % 2 else (even, "even")))
            await anyio.sleep(0.3)
        stop.set()
    assert not any(answer.is_error for answer in answers)
    observed = set()
    for found in answers:
        facts = found.structured_content
        observed.add(facts["index"])
        for hit in facts["answers"][0]["hits"]:
            assert hit["tool_id"].startswith(versions[facts["index"]])
    assert observed == set(versions)


def test_beyond_loopback_tokens_are_needed_and_an_address_that_is_taken_is_told(tmp_path):
    with pytest.raises(TokenError, match=r"tokens file.*127\.0\.0\.1"):
        HttpSettings(host="0.0.0.0")
    assert HttpSettings(host="0.0.0.0", tokens=(ALICE,)).port
    with socket.create_server(("127.0.0.1", 0)) as taken:
        settings = HttpSettings(port=taken.getsockname()[1])
        with pytest.raises(CannotServe, match="choose another port"):
            run_http(meta_server.served(tmp_path), None, MetaPolicy(), CallLog(tmp_path), settings)


async def test_the_process_serves_until_it_is_told_to_end_and_closes_what_it_runs(tmp_path):
    publish(tmp_path)
    command = [find_python(), "-m", "tests.serving.meta_process", str(tmp_path), "ask", "http"]
    async with await anyio.open_process(command, cwd=ROOT) as process:
        await meta_server.wait_until(lambda: (tmp_path / "address").exists())
        async with http_client((tmp_path / "address").read_text()) as client:
            called = await client.call_tool("call_tool", READ)
        process.send_signal(signal.SIGTERM)
        with anyio.fail_after(60):
            await process.wait()
    assert called.structured_content["status"] == "ok"
    assert (tmp_path / "closed").read_text() == "True"


@pytest.mark.parametrize("mode", ERAS)
async def test_progress_of_a_call_is_handed_on_and_a_start_is_told(meta, mode, monkeypatch):
    monkeypatch.setattr("serving.meta.consent.HEARTBEAT_S", 0.1)
    told: list[tuple[float, float | None]] = []

    async def note(done: float, total: float | None, _: str | None) -> None:
        told.append((done, total))

    slow = row("npm:odd", "patient", "Take time", annotations=meta_server.READS)
    publish(meta.place, [*ROWS, slow])
    call = {"tool_id": "npm:odd::patient"}
    async with over_http(meta, tokens=(ALICE,)) as url, http_client(url, SECRET, mode) as client:
        result = await client.call_tool("call_tool", call, progress_callback=note)
        unasked = await client.call_tool("call_tool", call)
    assert result.structured_content["text"] == unasked.structured_content["text"] == "done"
    numbers = [done for done, _ in told]
    assert numbers == sorted({*numbers})
    assert (1, 4) in told
    assert told[-1] == (4, 4)
    assert len([done for done in numbers if done < 0.001]) >= 2


async def test_a_cancelled_call_is_answered_and_ends(meta):
    """As of 2025-11-25; since then a client closes the stream."""
    legacy = {**HEADERS, "Authorization": f"Bearer {SECRET}"}
    params = {"name": "call_tool", "arguments": {"tool_id": "npm:odd::slow"}}
    call = {"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": params}
    cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5}}
    async with over_http(meta, tokens=(ALICE,)) as url, httpx2.AsyncClient(timeout=60) as http:
        opened = await http.post(url, json=INITIALIZE, headers=legacy)
        legacy |= {"Mcp-Session-Id": opened.headers["mcp-session-id"]}
        answers = []

        async def send_call() -> None:
            answers.append(await http.post(url, json=call, headers=legacy))

        async with anyio.create_task_group() as group:
            group.start_soon(send_call)
            await meta_server.wait_until(lambda: meta.caller.called)
            assert (await http.post(url, json=cancel, headers=legacy)).status_code == 202
    assert '"code":-32800' in answers[0].text
    assert [line["status"] for line in meta.recorded] == ["cancelled"]


@pytest.mark.parametrize("mode", ERAS)
async def test_an_unknown_tool_or_resource_is_an_error_of_the_protocol_that_names_it(meta, mode):
    async with over_http(meta, tokens=(ALICE,)) as url, http_client(url, SECRET, mode) as client:
        message = "unknown tool 'nothing'; expected one of find_tools"
        with pytest.raises(MCPError, match=message) as tool:
            await client.session.call_tool("nothing", {})
        with pytest.raises(MCPError, match="names no resource") as resource:
            await client.read_resource("toolmill://nothing")
        assert (await client.list_resource_templates()).resource_templates == []
    assert tool.value.error.code == -32602
    assert resource.value.error.data == {"uri": "toolmill://nothing"}


async def test_blanks_around_a_header_do_not_count(meta):
    version = "2026-07-28"
    about = {"protocolVersion": version, "clientInfo": INITIALIZE["params"]["clientInfo"]}
    about = {f"io.modelcontextprotocol/{name}": value
             for name, value in (about | {"clientCapabilities": {}}).items()}  # fmt: skip
    params = {"name": "find_tools", "arguments": {"query": "a file"}, "_meta": about}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    content = json.dumps(body).encode()
    async with over_http(meta) as url:
        address, (reader, writer) = urlsplit(url), await meta_server.connect(url)
        lines = [
            *(f"POST {address.path} HTTP/1.1", f"Host: {address.netloc}", "Connection: close"),
            *("Accept: application/json, text/event-stream", "Content-Type: application/json"),
            *(f"MCP-Protocol-Version: {version}", "Mcp-Method:  tools/call \t"),
            *("Mcp-Name: \t find_tools  ", f"Content-Length: {len(content)}", "", ""),
        ]
        writer.write("\r\n".join(lines).encode() + content)
        with anyio.fail_after(60):
            answer = await reader.read()
        writer.close()
    assert answer.startswith(b"HTTP/1.1 200"), answer
