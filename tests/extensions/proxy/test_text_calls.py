"""Calls that a model writes into the text of its answer, in the forms of open models."""

import json
from typing import Any

import httpx2
import pytest
from anthropic import Anthropic

from tests.extensions.proxy.upstream_script import (
    Running,
    make_chunk,
    make_completion,
    make_message,
    make_response,
    stream_message,
    stream_turn,
)
from tests.serving.repair.test_dialects import CALL, FORMS, LONG_ROME, NOW, OTHER, ROME, TOOLS
from tests.support.cases import cases

CHAT: Any = [
    {"type": "function", "function": {"name": one["name"], "parameters": one["inputSchema"]}}
    for one in TOOLS
]
RESPONSES: Any = [{"type": "function", **one["function"], "strict": False} for one in CHAT]
MESSAGES: Any = [{"name": one["name"], "input_schema": one["inputSchema"]} for one in TOOLS]
ASK: Any = [{"role": "user", "content": "weather?"}]
HERMES = f"I look.\n<tool_call>\n{CALL}\n</tool_call>"
NOT_ANNOUNCED = {  # the text holds words, and calls without a mark
    *("Hermes, closed alone", "Cohere", "words, then code", "prose")
}
# Words that stay: what stands before calls, thoughts, an observation that the model made up.
LEFT = {
    "Hermes": "I look.",
    "Hermes, closed alone behind a thought": "<think>a</think> <think>b</think>",
    "Hermes, waves in a line before": "About ~~~5:",
    "Hermes, a fence shown in a fence": "So:\n~~~\n```\n~~~\nThen",
    "Seed": "<seed:think>Hm.</seed:think>",
    "Mistral, ids": '[THINK]Hm {"name": "now"}[/THINK]',
    "Harmony": '<|channel|>analysis<|message|>{"city": "Oslo"}?<|end|>',
    "Cohere R7B": "<|START_THINKING|>Hm.<|END_THINKING|>",
    "ReAct": "Thought: I look.\nObservation: 5 C",
    "a thought before": f"<think>{OTHER}?</think>",
    "the end of a thought before": f"<tool_call>{OTHER}</tool_call>?</think>",
    "a fence in the end of a thought": "a\n```\n</think>",
    "a tick in a thought before": "<think>a `</think>",
    "a thought without an end": "<think>I look.",
}
UNTOUCHED = {
    "words": "It rains in Rome <b>today</b>: 5 < 6, [1] and to=me, ``x``.",
    "a tool of nobody": HERMES.replace("get_weather", "delete_all"),
    "one of several": f"<tool_call>{CALL}</tool_call><tool_call>"
    f"{CALL.replace('get_weather', 'delete_all')}</tool_call>",
    "a name that is similar": HERMES.replace("get_weather", "get_wether"),
    "a call that is shown": f"Write `<tool_call>{CALL}</tool_call>` to call it.",
    "a call that is shown in two ticks": f"Write ``<tool_call>{CALL}</tool_call>`` to call it.",
    "ReAct that is shown": "Write:\n```\nAction: now\nAction Input: {}\n```\nto call it.",
    "a call that broke off": HERMES[:40],
    "JSON of an answer": '{"name": "get_weather", "rating": 5}',
    "JSON that names a tool and does not fit": '{"name": "get_weather", "arguments": {}}',
    "code in words": "I would call get_weather(city='Rome') here.",
    "Python": "```python\nimport functools\n>>> now()\n```",
}


def answer_chat(text: str, finish: str = "stop") -> bytes:
    answer = json.loads(make_completion(finish=finish))
    answer["choices"][0]["message"] = {"role": "assistant", "content": text}
    return json.dumps(answer).encode()


def stream_text(text: str, size: int, finish: str = "stop") -> list[bytes]:
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    chunks = [make_chunk({"content": piece}) for piece in pieces]
    first = make_chunk({"role": "assistant", "content": ""})
    return [first, *chunks, make_chunk({}, finish), b"data: [DONE]\n\n"]


def ask_chat(running: Running, **more: Any) -> bytes:
    body = {"model": "m", "messages": ASK, "tools": CHAT, **more}
    return httpx2.post(f"{running.url}/v1/chat/completions", json=body, trust_env=False).content


@pytest.mark.parametrize("size", [0, 1, 7, 5000])  # of a piece; 0: the answer is whole
@pytest.mark.parametrize("form", [form for form in FORMS if form not in NOT_ANNOUNCED])
def test_calls_in_the_text_of_a_chat_answer_become_calls(running, client, form, size):
    text, calls = FORMS[form]
    running.script.body = answer_chat(text)
    running.script.parts = stream_text(text, size) if size else None
    if size:
        with client.chat.completions.stream(model="m", messages=ASK, tools=CHAT) as stream:
            answer = stream.get_final_completion()
    else:
        answer = client.chat.completions.create(model="m", messages=ASK, tools=CHAT)
        told = answer.model_extra["toolmill"]["calls"]
        assert {one["repaired"][0] for one in told} == {"took the call out of the text"}
    [choice] = answer.choices
    got = [call.function for call in choice.message.tool_calls or ()]
    assert [(one.name, json.loads(one.arguments)) for one in got] == calls
    assert choice.finish_reason == "tool_calls"
    assert (choice.message.content or "").strip() == LEFT.get(form, "")


def test_each_chunk_of_a_stream_has_one_call_and_words_before_it_pass_at_once(running):
    running.script.parts = stream_text(FORMS["Hermes, two"][0], 9)
    chunks = [line for line in ask_chat(running, stream=True).split(b"\n") if b"tool_calls" in line]
    assert [chunk.count(b'"function"') // 2 for chunk in chunks] == [1, 1, 0]
    words = "It is easy: 3 < 4, so I look. " * 5
    running.script.parts = [*stream_text(words, 9)[:-2], make_chunk({"content": "<tool_c"})]
    running.script.broken = True
    try:
        assert ask_chat(running, stream=True).startswith(b"".join(running.script.parts))
    finally:
        running.script.broken = False


@pytest.mark.parametrize("name", [*UNTOUCHED, *sorted(NOT_ANNOUNCED)])
def test_other_text_passes_byte_for_byte(running, name):
    text = UNTOUCHED.get(name) or FORMS[name][0]
    running.script.parts, running.script.body = None, answer_chat(text)
    assert ask_chat(running) == running.script.body
    for size in (1, 6, 5000):
        running.script.parts = stream_text(text, size)
        assert ask_chat(running, stream=True) == b"".join(running.script.parts)


@cases(
    "more, finish",
    ({"tools": []}, "stop"),
    ({"tool_choice": "none"}, "stop"),
    ({"response_format": {"type": "json_object"}}, "stop"),
    ({}, "length"),
)
def test_text_is_text_where_no_call_was_asked_for_or_a_limit_cut_it_off(running, more, finish):
    running.script.parts, running.script.body = None, answer_chat(HERMES, finish)
    assert ask_chat(running, **more) == running.script.body
    running.script.parts = stream_text(HERMES, 5, finish)
    assert ask_chat(running, stream=True, **more) == b"".join(running.script.parts)


def test_a_call_without_an_id_gets_one_and_a_call_that_does_not_fit_has_the_reason(running, client):
    calls = [f'{CALL[:-1]}, "id": "{name}"}}' for name in ("a1", "a1", "a 1", "")]
    text = "".join(f"<tool_call>{one}</tool_call>" for one in calls)
    running.script.parts, running.script.body = None, answer_chat(text)
    answer = client.chat.completions.create(model="m", messages=ASK, tools=CHAT)
    first, *others = [call.id for call in answer.choices[0].message.tool_calls]
    assert first == "a1"
    assert [one[:5] for one in sorted({*others})] == ["call_"] * 3
    text = HERMES.replace("city", "town")
    running.script.parts, running.script.body = None, answer_chat(text)
    answer = client.chat.completions.create(model="m", messages=ASK, tools=CHAT)
    [call] = answer.choices[0].message.tool_calls
    assert json.loads(call.function.arguments) == {"town": "Rome"}
    [told] = answer.model_extra["toolmill"]["calls"]
    assert told["left"][0].startswith("missing_value")


NOW_CALL = '{"name": "now"}'
BOTH = f"{HERMES}<tool_call>{NOW_CALL}</tool_call>"


@pytest.mark.parametrize("text", [BOTH, BOTH.removeprefix("I look.\n")])
@pytest.mark.parametrize("way", ["whole", "stream"])
def test_calls_in_the_text_of_a_message_become_blocks(running, way, text):
    block = {"type": "text", "text": text}
    running.script.body = json.dumps(make_message(block, stop="end_turn")).encode()
    running.script.parts = stream_message(block, stop="end_turn") if way == "stream" else None
    asked: Any = {"model": "m", "max_tokens": 9, "messages": ASK, "tools": MESSAGES}
    with Anthropic(base_url=running.url, api_key="k", max_retries=0) as client:
        if way == "stream":
            with client.messages.stream(**asked) as stream:
                answer = stream.get_final_message()
        else:
            answer = client.messages.create(**asked)
    got = [(one.name, one.input) for one in answer.content if one.type == "tool_use"]
    assert (got, answer.stop_reason) == ([ROME, NOW], "tool_use")
    words = [one.text.strip() for one in answer.content if one.type == "text"]
    assert words == (["I look."] if text == BOTH else [])
    assert [*got] != [LONG_ROME]


def make_text_item(text: str) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": []}
    head = {"type": "message", "id": "msg", "role": "assistant", "status": "completed"}
    return {**head, "content": [part]}


def stream_message_item(text: str) -> list[bytes]:
    whole = stream_turn(make_text_item(text))
    data = [json.loads(one.split(b"data: ")[1]) for one in whole]
    at = next(n for n, one in enumerate(data) if one["type"] == "response.output_item.added")
    data[at]["item"] = {**data[at]["item"], "content": [], "status": "in_progress"}
    of = {"output_index": 0, "item_id": "msg", "content_index": 0}
    part = {"type": "output_text", "text": "", "annotations": []}
    events: list[Any] = [{"type": "response.content_part.added", **of, "part": part}]
    pieces = [text[n : n + 4] for n in range(0, len(text), 4)]
    kind = "response.output_text"
    events += [{"type": f"{kind}.delta", **of, "delta": one, "logprobs": []} for one in pieces]
    events.append({"type": f"{kind}.done", **of, "text": text, "logprobs": []})
    events.append({"type": "response.content_part.done", **of, "part": {**part, "text": text}})
    return [
        f"event: {one['type']}\ndata: {json.dumps({**one, 'sequence_number': n})}\n\n".encode()
        for n, one in enumerate([*data[: at + 1], *events, *data[at + 1 :]])
    ]


@pytest.mark.parametrize("text", [BOTH, BOTH.removeprefix("I look.\n")])
@pytest.mark.parametrize("way", ["whole", "stream"])
def test_calls_in_the_text_of_a_response_become_items(running, client, way, text):
    whole = {**make_response(), "output": [make_text_item(text)]}
    running.script.body = json.dumps(whole).encode()
    running.script.parts = stream_message_item(text) if way == "stream" else None
    asked: Any = {"model": "m", "input": "weather?", "tools": RESPONSES}
    words = "I look." if text == BOTH else ""
    if way == "stream":
        numbers, spoken, called = [], "", []
        with client.responses.stream(**asked) as stream:
            for event in stream:
                numbers.append(event.sequence_number)
                spoken += event.delta if event.type == "response.output_text.delta" else ""
                if event.type == "response.output_item.done":
                    called.append(event.item.type)
            answer = stream.get_final_response()
        assert numbers == sorted(set(numbers))
        assert spoken.strip() == words
        assert called == [*(["message"] if words else []), "function_call", "function_call"]
    else:
        answer = client.responses.create(**asked)
    got = [one for one in answer.output if one.type == "function_call"]
    assert [(one.name, json.loads(one.arguments)) for one in got] == [ROME, NOW]
    assert answer.output_text == words


def ask_stream(running: Running, path: str, tools: Any, parts: list[bytes]) -> bytes:
    """What a client gets, whom a comment keeps waiting behind each event."""
    running.script.parts = [piece for part in parts for piece in (part, b": wait\n\n")]
    body = {"model": "m", "messages": ASK, "input": "weather?", "tools": tools, "stream": True}
    return httpx2.post(f"{running.url}/v1/{path}", json=body, trust_env=False).content


def test_comments_a_summary_without_the_message_and_a_thought_behind_the_text_cost_no_call(running):
    called = ask_stream(running, "chat/completions", CHAT, stream_text(HERMES, 5))
    assert called.count(b'"finish_reason":"tool_calls"') == 1
    parts = stream_message({"type": "text", "text": HERMES}, stop="end_turn")
    called = ask_stream(running, "messages", MESSAGES, parts)
    assert (called.count(b'"tool_use"'), b"null\n" in called) == (2, False)
    *parts, _ = stream_message_item(HERMES)
    for end, item in ({"output": []}, b"function_call"), ({}, b"<tool_call>"):
        last = json.dumps({"type": "response.completed", "response": end})
        extra = [b'data: {"x": 1}\n\n', f"data: {last}\n\n".encode()]
        called = ask_stream(running, "responses", RESPONSES, [*parts, *extra])
        assert item in called
        assert b"response.completed" in called
    blocks: Any = [{"type": "text", "text": HERMES}, {"type": "thinking", "text": "Hm."}]
    parts = stream_message(*blocks, stop="end_turn")
    assert b'"tool_use"' not in ask_stream(running, "messages", MESSAGES, parts)
    *parts, last = stream_message_item(HERMES)
    item = {"type": "reasoning", "id": "t", "summary": []}
    thought = {"type": "response.output_item.added", "output_index": 1, "item": item}
    parts = [*parts, f"data: {json.dumps(thought)}\n\n".encode(), last]
    assert b"function_call" not in ask_stream(running, "responses", RESPONSES, parts)
    end = {"choices": [{"index": 0, "delta": "x", "finish_reason": "stop"}]}
    parts = [*stream_text(HERMES, 5)[:-2], f"data: {json.dumps(end)}\n\n".encode()]
    assert b'"tool_calls"' in ask_stream(running, "chat/completions", CHAT, parts)
