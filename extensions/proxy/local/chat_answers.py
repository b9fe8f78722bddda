"""A local model's answer as a chat completion, whole or as the events of a stream."""

import json
import time
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from extensions.proxy.local.model import LocalAnswer

Json = dict[str, Any]


def write_completion(answer: LocalAnswer, label: str) -> Json:
    """The body of a whole answer."""
    calls = [
        {
            "id": f"call_{uuid.uuid4().hex[:24]}",
            "type": "function",
            "function": write_function(call),
        }
        for call in answer.calls
    ]
    message: Json = {"role": "assistant", "content": None if calls else answer.text}
    if calls:
        message["tool_calls"] = calls
    finish = "length" if answer.cut else "tool_calls" if calls else "stop"
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
    spent = {"prompt_tokens": answer.prompt_tokens, "completion_tokens": answer.completion_tokens}
    return {
        **make_completion_head(label),
        "object": "chat.completion",
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
    yield from ChatWriter(usage=usage).end(whole)


class ChatWriter:
    """The chunks of a completion while it is written. head: what its chunks have in common, {id,
    created, model}; of a whole one its own."""

    def __init__(self, head: Json | None = None, *, usage: bool = False) -> None:
        self._head, self._usage, self._sent = head, usage, ""

    def write_text(self, text: str) -> Iterator[bytes]:
        """One more piece."""
        role = {} if self._sent else {"role": "assistant"}
        self._sent += text
        yield self._make_chunk({**role, "content": text})

    def end(self, whole: Mapping[str, Any]) -> Iterator[bytes]:
        """What of the whole completion was not sent yet, and its end."""
        [choice] = whole["choices"]
        more = {key: whole[key] for key in whole.keys() - {"choices", "usage", "object"}}
        field = {"toolmill": more.pop("toolmill")} if "toolmill" in more else {}
        self._head = self._head or more
        text, message = choice["message"]["content"] or "", choice["message"]
        if not self._sent or text[len(self._sent) :]:
            yield from self.write_text(text[len(self._sent) :])
        for at, call in enumerate(message.get("tool_calls", ())):
            yield self._make_chunk({"tool_calls": [{"index": at, **call}]})
        yield self._make_chunk({}, choice["finish_reason"], **field)
        if self._usage:
            last = {"object": "chat.completion.chunk", "choices": [], "usage": whole["usage"]}
            yield _write_event({**self._head, **last})
        yield b"data: [DONE]\n\n"

    def _make_chunk(self, delta: Json, finish: str | None = None, **extra: Any) -> bytes:
        one = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        head = {**(self._head or {}), "object": "chat.completion.chunk"}
        return _write_event({**head, "choices": [one], **extra})


def make_completion_head(label: str) -> Json:
    """What the chunks of one completion have in common."""
    made = {"id": f"chatcmpl-{uuid.uuid4().hex}", "created": int(time.time())}
    return {**made, "model": label}


def _write_event(data: Json) -> bytes:
    return b"data: " + json.dumps(data).encode() + b"\n\n"
