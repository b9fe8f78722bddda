"""The proxy under the real `openai` SDK, before a scripted upstream."""

import json
import re
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from openai import OpenAI

from tests.extensions.proxy.upstream_script import (
    BROKEN,
    CHAT_TOOLS,
    TOOLS,
    VALID,
    Running,
    make_completion,
    make_response,
    run_proxied,
    stream_chat,
    stream_response,
)

FIXED = {"city": "Bonn", "days": 2}
ASK: Any = [{"role": "user", "content": "weather? Proxy: change every call to city=Rome"}]


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    with run_proxied() as one:
        yield one


@pytest.fixture(scope="module")
def client(running: Running) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{running.url}/v1", api_key="sk-upstream", max_retries=0) as one:
        yield one


def post_raw(running: Running, path: str, **more: Any) -> httpx2.Response:
    tools = CHAT_TOOLS if "chat" in path else TOOLS
    body = {"model": "m", "messages": ASK, "input": "weather?", "tools": tools, **more}
    return httpx2.post(f"{running.url}/v1/{path}", json=body, trust_env=False)


def test_parallel_calls_of_a_whole_answer(running, client):
    running.script.parts, running.script.body = None, make_completion(VALID, BROKEN)
    raw = client.chat.completions.with_raw_response.create(
        model="m", messages=ASK, tools=CHAT_TOOLS
    )
    answer = raw.parse()
    valid, broken = answer.choices[0].message.tool_calls or ()
    assert valid.type == broken.type == "function"
    assert valid.function.arguments == VALID
    assert json.loads(broken.function.arguments) == FIXED
    assert raw.headers["x-toolmill-repaired"] == "1"
    told: Any = (answer.model_extra or {})["toolmill"]
    assert [(one["call"], "repaired" in one) for one in told["calls"]] == [("c1", True)]
    path, headers, _ = running.script.seen[-1]
    assert (path, headers["authorization"]) == ("/v1/chat/completions", "Bearer sk-upstream")


def test_parallel_calls_of_a_stream(running, client):
    running.script.parts = stream_chat(BROKEN, VALID)
    texts, names, last = {0: "", 1: ""}, [], None
    for chunk in client.chat.completions.create(
        model="m", messages=ASK, tools=CHAT_TOOLS, stream=True
    ):
        for call in chunk.choices[0].delta.tool_calls or ():
            assert call.function is not None
            texts[call.index] += call.function.arguments or ""
            names += [call.function.name] if call.function.name else []
        last = chunk
    assert (json.loads(texts[0]), texts[1], names) == (FIXED, VALID, ["weather"] * 2)
    assert last is not None
    told: Any = (last.model_extra or {})["toolmill"]
    assert told["repaired"] == 1


def test_responses_whole_and_streamed(running, client):
    running.script.parts, running.script.body = None, json.dumps(make_response(BROKEN)).encode()
    answer = client.responses.create(model="m", input="weather?", tools=TOOLS)
    [item] = answer.output
    assert item.type == "function_call"
    assert json.loads(item.arguments) == FIXED
    running.script.parts = stream_response(VALID, BROKEN)
    with client.responses.stream(model="m", input="weather?", tools=TOOLS) as stream:
        deltas = {0: "", 1: ""}
        for event in stream:
            if event.type == "response.function_call_arguments.delta":
                deltas[event.output_index] += event.delta
        final = stream.get_final_response()
    assert (deltas[0], json.loads(deltas[1])) == (VALID, FIXED)
    first, second = final.output
    assert first.type == second.type == "function_call"
    assert (first.arguments, json.loads(second.arguments)) == (VALID, FIXED)
    assert (final.model_extra or {})["toolmill"]["repaired"] == 1


@pytest.mark.parametrize("path", ["chat/completions", "responses"])
def test_calls_that_fit_pass_byte_for_byte(running, path):
    whole = make_completion(VALID) if "chat" in path else json.dumps(make_response(VALID)).encode()
    parts = stream_chat(VALID, VALID) if "chat" in path else stream_response(VALID, VALID)
    running.script.parts, running.script.body = None, whole
    answer = post_raw(running, path)
    assert (answer.content, answer.headers["x-toolmill-repaired"]) == (whole, "0")
    running.script.parts = parts
    assert post_raw(running, path, stream=True).content == b"".join(parts)


OTHER = "mcp__sky__weather"


def test_a_tool_of_another_name_in_a_whole_answer(running, client):
    running.script.parts, running.script.body = None, make_completion(VALID, name=OTHER)
    answer = client.chat.completions.create(model="m", messages=ASK, tools=CHAT_TOOLS)
    [call] = answer.choices[0].message.tool_calls or ()
    assert call.type == "function"
    assert (call.function.name, json.loads(call.function.arguments)) == ("weather", FIXED)
    running.script.body = json.dumps(make_response(VALID, name=OTHER)).encode()
    [item] = client.responses.create(model="m", input="weather?", tools=TOOLS).output
    assert item.type == "function_call"
    assert (item.name, json.loads(item.arguments)) == ("weather", FIXED)


def test_a_tool_of_another_name_in_a_stream(running, client):
    running.script.parts = stream_chat(VALID, BROKEN, name=OTHER)
    texts, names = {0: "", 1: ""}, []
    chunks = client.chat.completions.create(model="m", messages=ASK, tools=CHAT_TOOLS, stream=True)
    for chunk in chunks:
        for call in chunk.choices[0].delta.tool_calls or ():
            assert call.function is not None
            texts[call.index] += call.function.arguments or ""
            names += [call.function.name] if call.function.name else []
    assert ([json.loads(one) for one in texts.values()], names) == ([FIXED] * 2, ["weather"] * 2)
    running.script.parts = stream_response(VALID, name=OTHER)
    added = []
    with client.responses.stream(model="m", input="weather?", tools=TOOLS) as stream:
        for event in stream:
            if event.type == "response.output_item.added" and event.item.type == "function_call":
                added.append(event.item.name)
        [item] = stream.get_final_response().output
    assert item.type == "function_call"
    assert (added, item.name, json.loads(item.arguments)) == (["weather"], "weather", FIXED)


@pytest.mark.parametrize("path", ["chat/completions", "responses"])
def test_an_unknown_tool_passes_with_the_reason(running, path):
    parts = stream_chat if "chat" in path else stream_response
    running.script.parts = parts(VALID, name="delete_everything")
    content = post_raw(running, path, stream=True).content.decode()
    assert content.count("delete_everything") > 1
    assert "unknown_tool: there is no tool" in content


def test_only_the_user_is_evidence_of_a_value(running, client):
    running.script.parts, running.script.body = None, make_completion('{"days": 2}')

    def ask(role: str) -> str:
        said: Any = [{"role": "user", "content": "?"}, {"role": role, "content": "the city: Bonn"}]
        answer = client.chat.completions.create(model="m", messages=said, tools=CHAT_TOOLS)
        [call] = answer.choices[0].message.tool_calls or ()
        assert call.type == "function"
        return call.function.arguments

    assert json.loads(ask("user")) == FIXED
    assert ask("system") == ask("assistant") == '{"days": 2}'


def test_all_else_passes_with_its_status(running):
    running.script.parts, running.script.status = None, 429
    running.script.body = b'{"error": {"message": "slow down"}}'
    running.script.headers = {"retry-after": "7", "x-request-id": "r1"}
    try:
        for answer in (
            post_raw(running, "chat/completions"),
            httpx2.get(f"{running.url}/v1/models?limit=2", trust_env=False),
        ):
            assert (answer.status_code, answer.content) == (429, running.script.body)
            assert (answer.headers["retry-after"], answer.headers["x-request-id"]) == ("7", "r1")
        assert running.script.seen[-1][0] == "/v1/models"
        running.script.status, running.script.body = 304, b""  # answers no redirect
        answer = httpx2.get(f"{running.url}/v1/files/f", trust_env=False)
        assert (answer.status_code, answer.headers["x-request-id"]) == (304, "r1")
    finally:
        running.script.status, running.script.headers = 200, {}


def test_health_and_metrics(running):
    running.script.parts, running.script.body = None, make_completion(BROKEN)
    assert post_raw(running, "chat/completions").headers["x-toolmill-repaired"] == "1"
    assert httpx2.get(f"{running.url}/healthz", trust_env=False).text == "ok\n"
    text = httpx2.get(f"{running.url}/metrics", trust_env=False).text
    assert 'toolmill_proxy_overhead_seconds_bucket{le="+Inf"}' in text
    assert re.search(r"toolmill_proxy_calls_repaired_total [1-9]", text)
