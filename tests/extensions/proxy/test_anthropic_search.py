"""The custom tool `tool_search` of Anthropic's Messages API answered by the router."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from extensions.proxy.app import ProxyParts
from extensions.proxy.tool_search import LAST, ToolSearch
from tests.extensions.proxy.upstream_script import (
    PARAMETERS,
    Running,
    make_message,
    make_use,
    run_proxied,
    stream_message,
)
from tests.serving.meta_server import served
from warehouse.llm.chat import write_wire_name

GET_TIME = write_wire_name("pypi:clock::get_time")
SEARCH: Any = {"name": "tool_search", "description": "find", "input_schema": {"type": "object"}}
FORECAST: Any = {"name": "forecast", "description": "Foretell the weather"}
FORECAST |= {"input_schema": PARAMETERS, "defer_loading": True}
NOW: Any = {"name": "now", "input_schema": {"type": "object"}}
HOUR = {"tool": "tell the hour in a city"}
TEXT = {"type": "text", "text": "Let me look"}
ASKED = make_message(TEXT, make_use("tool_search", HOUR))
USED = make_message(make_use(GET_TIME, {"city": "Oslo"}, 1))


@pytest.fixture(scope="module")
def running(index: Path) -> Iterator[Running]:
    with run_proxied(parts=ProxyParts(search=ToolSearch(served(index), k=2, rounds=2))) as one:
        yield one


def post(running: Running, *turns: Any, tools: Any = (SEARCH,), **more: Any) -> httpx2.Response:
    running.script.seen.clear()
    running.script.turns = [json.dumps(turn).encode() if isinstance(turn, dict) else turn
                            for turn in turns]  # fmt: skip
    body = {"model": "m", "max_tokens": 9, "tools": list(tools),
            "messages": [{"role": "user", "content": "the hour?"}], **more}  # fmt: skip
    headers = {"x-api-key": "sk-a"}
    return httpx2.post(f"{running.url}/v1/messages", json=body, headers=headers, trust_env=False)


def list_sent(running: Running) -> list[dict[str, Any]]:
    return [json.loads(body) for _, _, body in running.script.seen]


def test_references_go_to_the_model_and_the_last_answer_to_the_client(running):
    answer = post(running, ASKED, USED, tool_choice={"type": "tool", "name": "tool_search"}).json()
    assert answer["content"] == USED["content"]
    assert answer["usage"] == {"input_tokens": 14, "output_tokens": 6}
    assert answer["toolmill"]["tools"][GET_TIME] == "pypi:clock::get_time"
    assert running.script.seen[-1][1]["x-api-key"] == "sk-a"
    second = list_sent(running)[1]
    _, said, results = second["messages"]
    assert said == {"role": "assistant", "content": ASKED["content"]}
    [result] = results["content"]
    assert (result["type"], result["tool_use_id"]) == ("tool_result", "tu0")
    assert result["content"][0] == {"type": "tool_reference", "tool_name": GET_TIME}
    declared = {one["name"]: one for one in second["tools"]}
    assert all(one["tool_name"] in declared for one in result["content"])
    assert declared[GET_TIME]["defer_loading"] is True
    assert second["tool_choice"] == {"type": "auto"}


def test_a_stream_is_the_last_answers(running):
    first, last = stream_message(*ASKED["content"]), stream_message(*USED["content"])
    content = post(running, first, last, stream=True).content.decode()
    events = [json.loads(line[6:]) for line in content.splitlines() if line.startswith("data: ")]
    kinds = [event["type"] for event in events]
    assert (kinds.count("message_start"), kinds[-1]) == (1, "message_stop")
    assert "Let me look" not in content
    text = "".join(event["delta"].get("partial_json", "") for event in events
                   if event["type"] == "content_block_delta")  # fmt: skip
    assert json.loads(text) == {"city": "Oslo"}
    [end] = [event for event in events if event["type"] == "message_delta"]
    assert end["usage"]["output_tokens"] == 6
    assert end["toolmill"]["searches"][0]["tools"][0] == GET_TIME
    assert list_sent(running)[1]["messages"][1]["content"] == ASKED["content"]


def test_deferred_tools_need_no_index_stay_loaded_and_an_unreadable_search_is_an_error(running):
    asked = make_message(make_use("tool_search", {"goal": "weather tomorrow"}))
    post(running, asked, USED, tools=[SEARCH, FORECAST])
    [result] = list_sent(running)[1]["messages"][-1]["content"]
    assert result["content"] == [{"type": "tool_reference", "tool_name": "forecast"}]
    assert list_sent(running)[1]["tools"] == [SEARCH, FORECAST]
    post(running, make_message(make_use("tool_search", {"n": 3})), USED)
    [result] = list_sent(running)[1]["messages"][-1]["content"]
    assert result["is_error"] is True
    assert "holds no words" in result["content"][0]["text"]

    def tell(name: str, at: int) -> list[dict[str, Any]]:
        result = {"type": "tool_result", "tool_use_id": f"tu{at}", "content": "9"}
        return [{"role": "assistant", "content": [make_use(name, {}, at)]},
                {"role": "user", "content": [result]}]  # fmt: skip

    done = make_message(TEXT, stop="end_turn")
    said = [{"role": "user", "content": "?"}, *tell(GET_TIME, 1), *tell("forecast", 2)]
    post(running, done, tools=[SEARCH, FORECAST], messages=said)
    [sent] = list_sent(running)
    deferred = {one["name"]: one.get("defer_loading") for one in sent["tools"]}
    assert deferred == {"tool_search": None, "forecast": False, GET_TIME: False}


@pytest.mark.parametrize("streamed", [False, True])
def test_endless_searches_end_and_a_call_beside_one_is_the_clients(running, streamed):
    turn: Any = stream_message(*ASKED["content"]) if streamed else ASKED
    answer = post(running, turn, stream=streamed)
    assert len(list_sent(running)) == 3
    assert list_sent(running)[-1]["messages"][-1]["content"][-1] == {"type": "text", "text": LAST}
    text = answer.content.decode()
    assert ("tool_search" in text, "end_turn" in text) == (False, True)
    if not streamed:
        assert answer.json()["content"] == [TEXT]
    blocks = make_use("tool_search", HOUR), make_use("now", {"zone": "UTC"}, 1)
    turn: Any = stream_message(*blocks) if streamed else make_message(*blocks)
    answer = post(running, turn, tools=[SEARCH, NOW], stream=streamed)
    assert len(list_sent(running)) == 1
    text = answer.content.decode()
    assert ("tool_search" in text, '"tu1"' in text, "end_turn" in text) == (False, True, False)
    if streamed:
        assert '"index":0' in text
        assert '"index":1' not in text


@pytest.mark.parametrize("tools", [[FORECAST], [{**SEARCH, "type": "tool_search_tool_bm25"}]])
def test_what_is_not_ours_passes_byte_for_byte(running, tools):
    done = make_message(make_use(tools[0]["name"], {"city": "Bonn"}))
    assert post(running, done, tools=tools).content == json.dumps(done).encode()
    assert post(running, ASKED, tools=tools).json()["content"] == ASKED["content"]
    assert len(list_sent(running)) == 1
    parts = stream_message(TEXT, stop="end_turn")
    held = post(running, parts, stream=True).content
    assert held == b": the answer is held\n\n" + b"".join(parts)


@pytest.mark.parametrize("streamed", [False, True])
def test_half_a_surrogate_pair_passes(running, streamed):
    asked, done = make_use("tool_search", {"tool": "hour \ud83d"}), {**TEXT, "text": "\ud83d"}
    make: Any = stream_message if streamed else make_message
    answer = post(running, make(asked), make(done), stream=streamed)
    assert (answer.status_code, "\\ud83d" in answer.content.decode()) == (200, True)
    assert b"\\ud83d" in running.script.seen[1][2]
    answer = post(running, ASKED, {**USED, "content": None})
    assert (answer.status_code, answer.json()["content"]) == (200, []), "no content is an answer"


START: Any = {"type": "message_start", "message": {"usage": [1]}}
BLOCK: Any = {"type": "content_block_start", "index": 0, "content_block": {"id": []}}
ODD: Any = [
    [START, {"type": "message_delta", "delta": {}, "usage": {"output_tokens": 1}}],
    [START, BLOCK, {"type": "content_block_delta", "index": [], "delta": {}}],
    [START, {"type": "content_block_stop", "index": {}}],
]


@pytest.mark.parametrize("events", ODD)
def test_an_odd_stream_is_handed_on(running, events):
    raw = [f"data: {json.dumps(one)}\n\n".encode() for one in [*events, {"type": "message_stop"}]]
    assert post(running, raw, stream=True).content == b"".join(raw)
    asked = stream_message(make_use("tool_search", HOUR))
    assert b"message_stop" in post(running, asked, raw, stream=True).content
