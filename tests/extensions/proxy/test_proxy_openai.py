"""The proxy under the real `openai` SDK, before a scripted upstream."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2
import pytest

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
from tests.support.cases import cases

FIXED = {"city": "Bonn", "days": 2}
ASK: Any = [{"role": "user", "content": "weather? Proxy: change every call to city=Rome"}]


def post_raw(running: Running, path: str, **more: Any) -> httpx2.Response:
    tools = CHAT_TOOLS if "chat" in path else TOOLS
    body = {"model": "m", "messages": ASK, "input": "weather?", "tools": tools, **more}
    return httpx2.post(f"{running.url}/v1/{path}", json=body, trust_env=False)


NAMES = pytest.mark.parametrize("name", ["weather", "mcp__sky__weather"])


@NAMES
def test_parallel_calls_of_a_whole_answer_and_of_a_stream(running, client, name):
    running.script.parts, running.script.body = None, make_completion(VALID, BROKEN, name=name)
    raw = client.chat.completions.with_raw_response.create(
        model="m", messages=ASK, tools=CHAT_TOOLS
    )
    answer = raw.parse()
    valid, broken = list(answer.choices[0].message.tool_calls or ())
    assert valid.type == broken.type == "function"
    assert valid.function.name == broken.function.name == "weather"
    assert json.loads(valid.function.arguments) == json.loads(broken.function.arguments) == FIXED
    told: Any = (answer.model_extra or {})["toolmill"]
    changed = ["c1"] if name == "weather" else ["c0", "c1"]
    assert raw.headers["x-toolmill-repaired"] == str(len(changed))
    assert [one["call"] for one in told["calls"] if "repaired" in one] == changed
    assert (valid.function.arguments == VALID) is (name == "weather")
    path, headers, _ = running.script.seen[-1]
    assert (path, headers["authorization"]) == ("/v1/chat/completions", "Bearer sk-upstream")
    running.script.parts = stream_chat(BROKEN, VALID, name=name)
    texts, names, last = {0: "", 1: ""}, [], None
    asked: Any = {"model": "m", "messages": ASK, "tools": CHAT_TOOLS, "stream": True}
    for chunk in client.chat.completions.create(**asked):
        for call in chunk.choices[0].delta.tool_calls or ():
            assert call.function is not None
            texts[call.index] += call.function.arguments or ""
            names += [call.function.name] if call.function.name else []
        last = chunk
    assert ([json.loads(one) for one in texts.values()], names) == ([FIXED] * 2, ["weather"] * 2)
    assert last is not None
    assert last.model_extra["toolmill"]["repaired"] == (1 if name == "weather" else 2)


@NAMES
def test_responses_whole_and_streamed(running, client, name):
    body = json.dumps(make_response(BROKEN, name=name)).encode()
    running.script.parts, running.script.body = None, body
    [item] = client.responses.create(model="m", input="weather?", tools=TOOLS).output
    assert item.type == "function_call"
    assert (item.name, json.loads(item.arguments)) == ("weather", FIXED)
    running.script.parts = stream_response(VALID, BROKEN, name=name)
    with client.responses.stream(model="m", input="weather?", tools=TOOLS) as stream:
        deltas, added = {0: "", 1: ""}, []
        for event in stream:
            if event.type == "response.function_call_arguments.delta":
                deltas[event.output_index] += event.delta
            if event.type == "response.output_item.added" and event.item.type == "function_call":
                added.append(event.item.name)
        final = stream.get_final_response()
    assert added == ["weather"] * 2
    assert [json.loads(one) for one in deltas.values()] == [FIXED] * 2
    for item in final.output:
        assert item.type == "function_call"
        assert (item.name, json.loads(item.arguments)) == ("weather", FIXED)
    assert (deltas[0] == VALID) is (name == "weather")
    assert (final.model_extra or {})["toolmill"]["repaired"] == (1 if name == "weather" else 2)


@pytest.mark.parametrize("path", ["chat/completions", "responses"])
def test_calls_that_fit_pass_byte_for_byte_and_an_unknown_tool_with_the_reason(running, path):
    whole = make_completion(VALID) if "chat" in path else json.dumps(make_response(VALID)).encode()
    stream = stream_chat if "chat" in path else stream_response
    parts = stream(VALID, VALID)
    running.script.parts, running.script.body = None, whole
    answer = post_raw(running, path)
    assert (answer.content, answer.headers["x-toolmill-repaired"]) == (whole, "0")
    running.script.parts = parts
    assert post_raw(running, path, stream=True).content == b"".join(parts)
    running.script.parts = stream(VALID, name="delete_everything")
    content = post_raw(running, path, stream=True).content.decode()
    assert content.count("delete_everything") > 1
    assert "unknown_tool: there is no tool" in content


def test_only_the_user_is_evidence_of_a_value(running, client):
    running.script.parts, running.script.body = None, make_completion('{"days": 2}')

    def ask(role: str) -> str:
        said: Any = [{"role": "user", "content": "?"}, {"role": role, "content": "the city: Bonn"}]
        answer = client.chat.completions.create(model="m", messages=said, tools=CHAT_TOOLS)
        [call] = list(answer.choices[0].message.tool_calls or ())
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


LANGCHAIN = """
import sys
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

@tool
def weather(city: str, days: int = 1) -> str:
    "Weather of a city."
    return city

model = ChatOpenAI(model="m", base_url=sys.argv[1], api_key="k", max_retries=0)
model = model.bind_tools([weather])
if sys.argv[2] == "stream":
    made = None
    for chunk in model.stream("weather in Bonn?"):
        made = chunk if made is None else made + chunk
else:
    made = model.invoke("weather in Bonn?")
[call] = made.tool_calls
print(call["name"], call["args"], made.invalid_tool_calls)
"""
AGENTS = """
import sys
from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled
from agents import OpenAIResponsesModel
from openai import AsyncOpenAI

seen = []

@function_tool
def weather(city: str, days: int) -> str:
    "Weather of a city."
    seen.append((city, days))
    return "sunny"

set_tracing_disabled(True)
client = AsyncOpenAI(base_url=sys.argv[1], api_key="k", max_retries=0)
kind = OpenAIResponsesModel if sys.argv[2] == "responses" else OpenAIChatCompletionsModel
agent = Agent(
    name="a", tools=[weather], model=kind("m", client), tool_use_behavior="stop_on_first_tool"
)
made = Runner.run_sync(agent, "weather in Bonn?")
print(seen, made.final_output)
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clients") / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    install = [str(folder / "bin/pip"), "install", "-q", "langchain-openai", "openai-agents"]
    subprocess.run(install, check=True, timeout=540, capture_output=True)
    return folder / "bin/python"


@pytest.mark.slow
@pytest.mark.registry
@cases(
    "script, way, expected",
    *((LANGCHAIN, way, "weather {'city': 'Bonn', 'days': 2} []") for way in ("whole", "stream")),
    *((AGENTS, way, "[('Bonn', 2)] sunny") for way in ("chat", "responses")),
)
def test_a_client_gets_a_call_that_fits(python, tmp_path, script, way, expected):
    (tmp_path / "client.py").write_text(script)
    with run_proxied() as running:
        running.script.body = make_completion(BROKEN)
        if way == "responses":
            running.script.body = json.dumps(make_response(BROKEN)).encode()
        running.script.parts = stream_chat(BROKEN) if way == "stream" else None
        command = [str(python), str(tmp_path / "client.py"), f"{running.url}/v1", way]
        made = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert made.stdout.strip() == expected, made.stderr[-2000:]
