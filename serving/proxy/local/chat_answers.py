"""A local model's answer as a chat completion, whole or as the events of a stream."""

import json
import time
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from serving.proxy.local.model import LocalAnswer

Json = dict[str, Any]


def write_completion(answer: LocalAnswer, label: str) -> Json:
    """The body of a whole answer."""
    calls = [
        {"id": f"call_{uuid.uuid4().hex[:24]}", "type": "function", "function": write_function(one)}
        for one in answer.calls
    ]
    message: Json = {"role": "assistant", "content": None if calls else answer.text}
    if calls:
        message["tool_calls"] = calls
    finish = "length" if answer.cut else "tool_calls" if calls else "stop"
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
    spent = {"prompt_tokens": answer.prompt_tokens, "completion_tokens": answer.completion_tokens}
    return {
        "id": f"chatcmpl-{uuid.uuid4().hex}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": label,
        "choices": [choice],
        "usage": {**spent, "total_tokens": sum(spent.values())},
    }


def write_function(call: Any) -> Json:
    """{name, arguments as text}: what is no object stays the text it is, for the ladder."""
    given = call["arguments"]
    text = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
    return {"name": str(call["name"]), "arguments": text}


def write_chat_events(whole: Mapping[str, Any], *, usage: bool = False) -> Iterator[bytes]:
    """A whole completion as a stream: a chunk for the text, one for each call, the end. usage: as
    `stream_options.include_usage` asks for it."""
    [choice] = whole["choices"]
    message = choice["message"]
    more = {key: whole[key] for key in whole.keys() - {"choices", "usage", "object"}}
    field = {"toolmill": more.pop("toolmill")} if "toolmill" in more else {}

    def make_chunk(delta: Json, finish: str | None = None, **extra: Any) -> bytes:
        one = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return _write_event({**more, "object": "chat.completion.chunk", "choices": [one], **extra})

    yield make_chunk({"role": "assistant", "content": message["content"] or ""})
    for at, call in enumerate(message.get("tool_calls", ())):
        yield make_chunk({"tool_calls": [{"index": at, **call}]})
    yield make_chunk({}, choice["finish_reason"], **field)
    if usage:
        last = {**more, "object": "chat.completion.chunk", "choices": [], "usage": whole["usage"]}
        yield _write_event(last)
    yield b"data: [DONE]\n\n"


def _write_event(data: Json) -> bytes:
    return b"data: " + json.dumps(data, ensure_ascii=False).encode() + b"\n\n"
