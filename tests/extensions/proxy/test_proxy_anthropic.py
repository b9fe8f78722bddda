"""Calls of Anthropic's Messages API under the real `anthropic` SDK, before a scripted upstream."""

import json
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from anthropic import Anthropic, APIStatusError

from extensions.proxy.answer_calls import MessageStream
from extensions.proxy.calls import CallRepair, read_offer
from extensions.proxy.exchange import EventReader
from tests.extensions.proxy.upstream_script import (
    BROKEN,
    PARAMETERS,
    VALID,
    Running,
    make_message,
    make_use,
    run_proxied,
)

WEATHER: Any = {"name": "weather", "description": "tell it", "input_schema": PARAMETERS}
BASH: Any = {"type": "bash_20250124", "name": "bash"}
TOOLS: Any = [WEATHER, BASH]
ASK: Any = [{"role": "user", "content": "weather?"}]
FIXED = {"city": "Bonn", "days": 2}
LOOK = {"type": "text", "text": "Look"}


def write_event(kind: str, **data: Any) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **data})}\n\n".encode()


def stream_uses(*texts: str, name: str = "weather", stop: str = "tool_use") -> list[bytes]:
    """Text, then each call in pieces of five characters, an empty one first."""
    start = {**make_message(), "stop_reason": None}
    parts = [write_event("message_start", message=start)]
    parts.append(write_event("content_block_start", index=0, content_block={**LOOK, "text": ""}))
    delta = {"type": "text_delta", "text": "Look"}
    parts.append(write_event("content_block_delta", index=0, delta=delta))
    parts.append(write_event("content_block_stop", index=0))
    for at, text in enumerate(texts, 1):
        block = make_use(name, {}, at)
        parts.append(write_event("content_block_start", index=at, content_block=block))
        for piece in ("", *(text[i : i + 5] for i in range(0, len(text), 5))):
            delta = {"type": "input_json_delta", "partial_json": piece}
            parts.append(write_event("content_block_delta", index=at, delta=delta))
        parts += [write_event("ping"), write_event("content_block_stop", index=at)]
    end = {"stop_reason": stop, "stop_sequence": None}
    parts.append(write_event("message_delta", delta=end, usage={"output_tokens": 3}))
    return [*parts, write_event("message_stop")]


@pytest.fixture(scope="module")
def client(running: Running) -> Iterator[Anthropic]:
    with Anthropic(base_url=running.url, api_key="sk-a", max_retries=0) as one:
        yield one


def test_calls_of_a_whole_answer_and_of_a_stream_and_an_error_where_it_breaks(running, client):
    use = make_use("weather", {"city": "Bonn", "days": "2"})
    body = json.dumps(make_message(LOOK, use, make_use("bash", {"command": "ls"}, 1))).encode()
    running.script.parts, running.script.body = None, body
    asked: Any = {"model": "m", "max_tokens": 9, "messages": ASK, "tools": TOOLS}
    raw = client.messages.with_raw_response.create(**asked)
    answer = raw.parse()
    _, call, other = answer.content
    assert call.type == other.type == "tool_use"
    assert (call.input, other.input) == (FIXED, {"command": "ls"})
    assert raw.headers["x-toolmill-repaired"] == "1"
    told: Any = (answer.model_extra or {})["toolmill"]
    assert [(one["call"], one["tool"]) for one in told["calls"]] == [("tu0", "weather")]
    path, headers, _ = running.script.seen[-1]
    assert (path, headers["authorization"]) == ("/v1/messages", "Bearer sk-a")
    running.script.parts = stream_uses(BROKEN, VALID)
    with client.messages.stream(**asked) as stream:
        texts = {1: "", 2: ""}
        for event in stream:
            if event.type == "content_block_delta" and event.delta.type == "input_json_delta":
                texts[event.index] += event.delta.partial_json
        answer = stream.get_final_message()
    assert (json.loads(texts[1]), texts[2]) == (FIXED, VALID)
    assert [one.input for one in answer.content if one.type == "tool_use"] == [FIXED, FIXED]
    assert [one.text for one in answer.content if one.type == "text"] == ["Look"]
    running.script.parts, running.script.broken = stream_uses(VALID)[:-4], True
    try:
        broken = pytest.raises(APIStatusError, match="upstream_broken")
        with client.messages.stream(**asked) as stream, broken:
            stream.until_done()
    finally:
        running.script.broken = False


def post(running: Running, **more: Any) -> httpx2.Response:
    body = {"model": "m", "max_tokens": 9, "messages": ASK, "tools": TOOLS, **more}
    return httpx2.post(f"{running.url}/v1/messages", json=body, timeout=60, trust_env=False)


def test_a_result_of_a_tool_is_no_evidence_of_a_value(running):
    body = json.dumps(make_message(make_use("weather", {"days": 2}))).encode()
    running.script.parts, running.script.body = None, body

    def ask(*content: Any) -> Any:
        [use] = post(running, messages=[{"role": "user", "content": content}]).json()["content"]
        return use["input"]

    said = {"type": "text", "text": "the city: Bonn"}
    assert ask(said) == FIXED
    result = {"type": "tool_result", "tool_use_id": "t", "content": [said], "text": "city: Bonn"}
    assert ask(result, {"type": "text", "text": "?"}) == {"days": 2}


def test_a_call_that_fits_and_a_request_without_tools_pass_byte_for_byte(running):
    parts = [use for use in stream_uses(VALID, VALID) if b"ping" not in use]  # they may overtake
    running.script.parts = parts
    assert post(running, stream=True).content == b"".join(parts)
    running.script.parts, running.script.body = None, b'{"content": [{"type": "tool_use"}]}'
    for more in ({}, {"tools": []}):
        assert post(running, **more).content == running.script.body


async def feed(parts: list[bytes], said: str = "weather?", most: int = 10_000) -> list[bytes]:
    offer = read_offer({"tools": TOOLS, "messages": [{"role": "user", "content": said}]}, 9)
    assert offer is not None
    stream, reader = MessageStream(CallRepair(offer), most), EventReader(10_000)
    sent = [await stream.feed(one) for part in parts for one in reader.take(part)]
    return [*sent, b"".join(stream.drain())]


def read_stream(sent: list[bytes]) -> tuple[list[Any], Any, list[Any]]:
    """(names, the JSON texts of the calls by index, what the end tells)."""
    events = [json.loads(one[6:]) for one in b"".join(sent).splitlines() if one[:5] == b"data:"]
    texts: dict[int, str] = {}
    for one in events:
        if one["type"] == "content_block_delta":
            part = one["delta"].get("partial_json", "")
            texts[one["index"]] = texts.get(one["index"], "") + part
    names = [event["content_block"].get("name") for event in events
             if event["type"] == "content_block_start"]  # fmt: skip
    [end] = [event for event in events if event["type"] == "message_delta"] or [{}]
    return names[1:], list(texts.values())[1:], end.get("toolmill", {}).get("calls")


async def test_another_name_or_none_is_told_and_text_passes_at_once_with_what_breaks_off():
    parts = stream_uses(BROKEN)
    sent = await feed(parts)
    assert sent[:6] == parts[:6]
    assert not any(sent[6:12])
    assert sent[12] == parts[12]  # a ping
    assert sent[-2] == parts[-1]
    parts = [use for use in stream_uses(BROKEN) if b"ping" not in use]
    for at in range(len(parts) - 1):
        assert b"".join(await feed(parts[:at])) == b"".join(parts[:at])
    assert b"".join(await feed(parts, most=300)) == b"".join(parts)
    names, [text], told = read_stream(await feed(stream_uses(VALID, name="mcp__sky__weather")))
    assert (names, json.loads(text), bool(told[0]["repaired"])) == (["weather"], FIXED, True)
    names, texts, told = read_stream(await feed(stream_uses(VALID, name="drop_all")))
    assert (names, texts) == (["drop_all"], [VALID])
    assert told[0]["left"][0].startswith("unknown_tool")


@pytest.mark.parametrize("given", [{}, {"days": "2"}])
async def test_a_call_without_events_of_arguments_gets_one(given):
    parts = stream_uses("")
    del parts[5]
    parts[4] = parts[4].replace(b'"input": {}', f'"input": {json.dumps(given)}'.encode())
    _, [text], told = read_stream(await feed(parts, "the city: Bonn"))
    assert json.loads(text) == {"city": "Bonn", **({"days": 2} if given else {})}
    assert len(told) == 1


@pytest.mark.parametrize("text", [BROKEN[:15], ""])
async def test_what_a_limit_cut_off_is_not_completed(text):
    parts = stream_uses(VALID, text, stop="max_tokens")
    _, texts, told = read_stream(await feed(parts, "the city: Bonn"))
    assert texts == [VALID, text]
    assert told == [{"call": "tu2", "tool": "weather", "left": [told[0]["left"][0]]}]
    assert told[0]["left"][0].startswith("cut_off")
    cut = json.dumps(make_message(make_use("weather", {"days": "2"}), stop="max_tokens")).encode()
    with run_proxied() as running:
        running.script.body = cut
        answer = post(running).json()
    assert answer["content"][0]["input"] == {"days": "2"}
    assert "cut_off" in answer["toolmill"]["calls"][0]["left"][0]


ODD: Any = [
    {"type": "content_block_start", "index": [], "content_block": {"type": "tool_use"}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "name": 3}},
    {"type": "content_block_start", "index": 0, "content_block": []},
    {"type": "content_block_delta", "index": {}, "delta": {"type": "input_json_delta"}},
    {"type": "content_block_stop", "index": {}, "tool_use": 1},
    {"type": "message_delta", "delta": []},
    {"type": ["message_delta"]},
]


@pytest.mark.parametrize("data", ODD)
async def test_an_odd_event_passes(data):
    raw = f"data: {json.dumps(data)}\n\n".encode()
    assert b"".join(await feed([raw])) == raw
    sent = b"".join(await feed([*stream_uses(BROKEN)[:-3], raw]))
    assert (raw if data["type"] != "message_delta" else b'"delta":[]') in sent
