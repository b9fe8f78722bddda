"""`tools: "auto"`: the router picks the tools of each turn."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from extensions.proxy.app import ProxyParts
from extensions.proxy.auto_tools import ToolChooser
from tests.extensions.proxy.upstream_script import (
    CHAT_TOOLS,
    Running,
    make_completion,
    make_response,
    run_proxied,
    stream_chat,
)
from tests.serving.meta_server import publish, served
from tests.support.cases import cases
from warehouse.llm.chat import write_wire_name

GET_TIME = write_wire_name("pypi:clock::get_time")
SEND = write_wire_name("pypi:mail::send_email")
TIME: Any = [{"role": "user", "content": "Tell the hour in a city"}]


@pytest.fixture(scope="module")
def running(index: Path) -> Iterator[Running]:
    with run_proxied(parts=ProxyParts(ToolChooser(served(index), k=2))) as one:
        one.script.body = make_completion()
        yield one


def post(running: Running, path: str = "chat/completions", **body: Any) -> httpx2.Response:
    body = {"model": "m", "tools": "auto", **body}
    return httpx2.post(f"{running.url}/v1/{path}", json=body, trust_env=False)


def read_sent(running: Running) -> dict[str, Any]:
    return json.loads(running.script.seen[-1][2])


def test_a_call_of_a_tool_that_was_picked_in_each_api_and_a_stream(running, client):
    running.script.parts, call = None, "{'city': 'paris'}"
    running.script.body = make_completion(call, name=GET_TIME)
    tools: Any = "auto"
    answer = client.chat.completions.create(model="m", messages=TIME, tools=tools)
    sent = read_sent(running)["tools"]
    assert sent[0]["function"]["name"] == GET_TIME
    assert len(sent) <= 2
    [made] = answer.choices[0].message.tool_calls or ()
    assert made.type == "function"
    assert json.loads(made.function.arguments) == {"city": "Paris"}
    told: Any = (answer.model_extra or {})["toolmill"]
    assert (told["tools"][GET_TIME], told["repaired"]) == ("pypi:clock::get_time", 1)
    running.script.parts, running.script.body = None, json.dumps(make_response()).encode()
    answer = post(running, "responses", input="Tell the hour in a city").json()
    [first, *_] = read_sent(running)["tools"]
    assert (first["type"], first["name"], first["strict"]) == ("function", GET_TIME, False)
    assert first["parameters"]["required"] == ["city"]
    assert answer["toolmill"]["tools"][GET_TIME] == "pypi:clock::get_time"
    running.script.parts = stream_chat('{"city": "Oslo"}', name=GET_TIME)
    content = post(running, messages=TIME, stream=True).content.decode()
    last = json.loads(content.split("data: ")[-2])
    assert last["toolmill"]["tools"][GET_TIME] == "pypi:clock::get_time"
    running.script.parts = None


def test_own_tools_stay_and_a_tool_that_was_called_is_offered_again(running):
    call = {"id": "c", "type": "function", "function": {"name": SEND, "arguments": "{}"}}
    messages = [
        {"role": "user", "content": "Send an email to somebody"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "sent"},
        *TIME,
    ]
    post(running, messages=messages, tools=[*CHAT_TOOLS, "auto"], tool_choice="required")
    sent = read_sent(running)
    names = [one["function"]["name"] for one in sent["tools"]]
    assert (names[0], sent["tool_choice"]) == ("weather", "required")
    assert {GET_TIME, SEND} < set(names)
    post(running, messages=TIME)
    assert SEND not in [one["function"]["name"] for one in read_sent(running)["tools"]]


@cases(
    "body, code",
    ({"messages": []}, "no_tools_chosen"),
    ({"messages": [{"role": "user", "content": " "}]}, "no_tools_chosen"),
    ({"messages": "x" * 3, "tools": ["auto"]}, None),
    ({"input": [{"role": "user", "content": [{"text": 1}]}]}, "no_tools_chosen"),
)
def test_a_request_without_words_is_refused(running, body, code):
    assert post(running, **body).json().get("error", {}).get("code") == code


def test_without_an_index_the_fix_is_told_and_what_is_blocked_is_not_offered(tmp_path):
    with run_proxied() as running:
        answer = post(running, messages=TIME)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "no_index")
        assert "--index" in answer.json()["error"]["message"]
        assert not running.script.seen
    publish(tmp_path)
    blocked = {"digests": [], "tools": ["pypi:clock::get_time", "pypi:mail::send_email"]}
    (tmp_path / "router" / "BLOCKED.json").write_text(json.dumps(blocked))
    item = {"type": "function_call", "call_id": "c", "name": SEND, "arguments": "{}"}
    chosen = ToolChooser(served(tmp_path), k=100).choose_tools(
        {"input": [item, {"role": "user", "content": "Tell the hour"}], "tools": "auto"}
    )
    assert chosen.tool_ids
    assert not {GET_TIME, SEND} & set(chosen.tool_ids)
