"""Calls of servers elsewhere, on loopback: good ones, and ones that misbehave when called."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest

from assets.servers.deploy.policy import DeployPolicy
from assets.servers.secrets import SecretSources, ServerSecrets
from tests.servers.probe.test_remote_probe import ask, sdk_server
from tests.serving.calling import CONTRACT, OTHER, open_remote, read_text
from tests.support.cases import cases
from tests.support.http_mcp import (
    Call,
    make_good_script,
    make_reply,
    make_tool,
    make_welcome,
    serve_script,
    served,
)

LISTED = [make_tool("do", inputSchema=CONTRACT["inputSchema"]), {**OTHER}]
BY = {**CONTRACT, "description": "do"}


def text(words: str, **more):
    return {"content": [{"type": "text", "text": words}], **more}


def server(do, **more):
    """A server over streamable HTTP whose `tools/call` is `do`."""
    return make_good_script(LISTED, tools_call=do, **more)


def call_of(running, x=1, **more):
    return running.call(x, contract=BY, **more)


@cases("kind", "event streams", "JSON answers", "SSE")
async def test_the_sdks_server_is_called_over_each_transport(kind):
    server, as_json = sdk_server(), kind == "JSON answers"
    app = server.sse_app() if kind == "SSE" else server.streamable_http_app(json_response=as_json)
    with served(app) as address:
        url = address + ("/sse" if kind == "SSE" else "/mcp")
        listed = await asyncio.to_thread(ask, url)
        by = {tool["name"]: tool for tool in listed.tools}
        async with open_remote(url) as running:
            call = running.caller.call
            found = await asyncio.gather(
                *(call(running.server_id, "add", by["add"], {"a": n, "b": 1}) for n in range(5))
            )
            wrong = await call(running.server_id, "shout", by["shout"], {"text": 7})
    assert [(one.status, one.structured) for one in found] == [
        ("ok", {"result": n + 1}) for n in range(5)
    ]
    assert wrong.status == "invalid_arguments"


async def test_headers_and_session_go_with_a_call_and_secrets_come_back_nowhere(monkeypatch):
    monkeypatch.setenv("TOKEN", "tok-en-4242424242")

    def begin(call: Call) -> None:
        call.answer(make_welcome(), Mcp_Session_Id="s-1")

    def echo(call: Call) -> None:
        call.answer(text(call.headers["authorization"]))

    with serve_script(server(echo, initialize=begin)) as here:
        sources = {
            f"remote:{here.url}": ServerSecrets(headers={"Authorization": "Bearer env:TOKEN"})
        }
        policy = DeployPolicy(Path("/nonexistent"), secrets=SecretSources(sources, bytes(16)))
        async with open_remote(here.url, policy=policy) as running:
            found = await call_of(running)
    (sent,) = [call for call in here.calls if call.asks == "tools/call"]
    assert sent.headers["authorization"] == "Bearer tok-en-4242424242"
    assert sent.headers["mcp-session-id"] == "s-1"
    assert sent.headers["mcp-protocol-version"] == "2025-06-18"
    assert read_text(found) == "[secret Authorization]"


async def test_a_made_up_header_is_never_sent():
    with serve_script(server(lambda call: call.answer(text("x")))) as here:
        made = {"headers": (("X-Api-Key", "placeholder"),), "placeholders": ("header:X-Api-Key",)}
        async with open_remote(here.url, **made) as running:
            found = await call_of(running)
    assert found.error_kind == "needs_secret"
    assert 'headers] X-Api-Key = "env:VARIABLE"' in found.hint
    assert here.calls == []


async def test_a_session_that_the_server_forgot_is_begun_anew():
    state = {"sessions": 0, "calls": 0}

    def begin(call: Call) -> None:
        state["sessions"] += 1
        call.answer(make_welcome(), Mcp_Session_Id=f"s-{state['sessions']}")

    def do(call: Call) -> None:
        state["calls"] += 1
        if call.headers["mcp-session-id"] == "s-1" and state["calls"] > 1:
            call.json({"error": "session not found"}, status=404)
        else:
            call.answer(text(call.headers["mcp-session-id"]))

    with serve_script(server(do, initialize=begin)) as here:
        async with open_remote(here.url) as running:
            found = [read_text(await call_of(running)) for _ in range(3)]
    assert found == ["s-1", "s-2", "s-2"]


def quiet(call: Call) -> None:
    call.for_ever()


BAD = {
    "401": (lambda call: call.say("no", status=401), "remote_auth", "credentials"),
    "500": (lambda call: call.say("no", status=500), "remote_down", "server"),
    "429": (lambda call: call.say("no", status=429, Retry_After="9"), "remote_down", "server"),
    "a web page": (
        lambda call: call.say("<html>", Content_Type="text/html"),
        "protocol_error",
        "server",
    ),
    "silence": (quiet, "timeout_call", "tool"),
    "hangs up": (lambda call: call.write(b""), "remote_down", "server"),
    "another id": (
        lambda call: call.json({"jsonrpc": "2.0", "id": 999, "result": text("evil")}),
        "protocol_error",
        "server",
    ),
    "20 MB": (lambda call: call.answer(text("x" * 20_000_000)), "oversize", "server"),
    "an event stream of 20 MB": (
        lambda call: (call.events(), call.event(make_reply(call.message, text("x" * 20_000_000)))),
        "oversize",
        "server",
    ),
}


@pytest.mark.parametrize("name", BAD)
async def test_what_a_remote_server_does_in_a_call_is_an_outcome_and_the_next_works(name):
    bad, kind, blame = BAD[name]

    def do(call: Call) -> None:
        x = call.message["params"]["arguments"]["x"]
        bad(call) if x == 13 else call.answer(text("fine"))

    with serve_script(server(do)) as here:
        async with open_remote(here.url) as running:
            assert (await call_of(running)).status == "ok"
            found = await call_of(running, 13, timeout_s=1.5)
            after = await call_of(running)
    assert (found.status, found.error_kind, found.blame) == ("failed", kind, blame), found
    assert (after.status, read_text(after)) == ("ok", "fine"), after
    asked = [
        call.message["params"]["arguments"]["x"] for call in here.calls if call.asks == "tools/call"
    ]
    assert asked == [1, 13, 1]  # nothing was sent twice


async def test_an_error_of_the_protocol_with_a_bad_status_is_an_answer():
    def do(call: Call) -> None:
        error = {"code": -32602, "message": "x must be even"}
        call.json({"jsonrpc": "2.0", "id": call.message["id"], "error": error}, status=400)

    with serve_script(server(do)) as here:
        async with open_remote(here.url) as running:
            found = await call_of(running)
    assert (found.status, found.blame) == ("tool_error", "caller")
    assert read_text(found) == "x must be even"


async def test_the_settings_decide_whether_a_remote_server_is_called_at_all():
    with serve_script(server(lambda call: call.answer(text("x")))) as here:
        async with open_remote(here.url) as running:
            caller = running.caller
            caller._policy = replace(caller._policy, remote=None)
            found = await call_of(running)
    assert (found.error_kind, found.blame, here.calls) == ("policy_denied", "policy", [])


async def test_nothing_of_a_call_reaches_a_log(caplog, monkeypatch):
    caplog.set_level("DEBUG")
    secret = "tok-en-4242424242"

    def do(call: Call) -> None:
        call.say(json.dumps({"jsonrpc": "2.0", "id": 1, "result": f"{secret} no json"})[:-3])

    with serve_script(server(do)) as here:
        async with open_remote(f"{here.url}?api_key={secret}") as running:
            found = await call_of(running, timeout_s=1.0)
    assert found.status == "failed"
    assert secret not in str(found)
    records = [record for record in caplog.records if record.name != "asyncio"]
    assert [record for record in records if secret in record.getMessage()] == []
