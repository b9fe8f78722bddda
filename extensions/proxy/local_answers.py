"""A local model's answer in OpenAI's two APIs, whole or as the events of a stream."""

import json
import time
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from extensions.proxy.local_requests import LocalAnswer
from warehouse.json_types import JsonObject

_ADDED, _DONE = "response.output_item.added", "response.output_item.done"


def write_completion(answer: LocalAnswer, label: str) -> dict[str, Any]:
    """The body of a whole answer."""
    calls = [
        {
            "id": f"call_{uuid.uuid4().hex[:24]}",
            "type": "function",
            "function": write_function(call),
        }
        for call in answer.calls
    ]
    message: dict[str, Any] = {"role": "assistant", "content": None if calls else answer.text}
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


def write_function(call: Any) -> JsonObject:
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

    def __init__(self, head: JsonObject | None = None, *, usage: bool = False) -> None:
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

    def _make_chunk(self, delta: JsonObject, finish: str | None = None, **extra: Any) -> bytes:
        one = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        head = {**(self._head or {}), "object": "chat.completion.chunk"}
        return _write_event({**head, "choices": [one], **extra})


def make_completion_head(label: str) -> dict[str, Any]:
    """What the chunks of one completion have in common."""
    made = {"id": f"chatcmpl-{uuid.uuid4().hex}", "created": int(time.time())}
    return {**made, "model": label}


def _write_event(data: JsonObject) -> bytes:
    return b"data: " + json.dumps(data).encode() + b"\n\n"


def write_response(answer: LocalAnswer, label: str, body: JsonObject) -> dict[str, Any]:
    """The body of a whole answer; body: the request, of which it repeats tools and choice."""
    items = [_write_call_item(call) for call in answer.calls]
    spent = {"input_tokens": answer.prompt_tokens, "output_tokens": answer.completion_tokens}
    details = {"input_tokens_details": {"cached_tokens": 0}}
    details |= {"output_tokens_details": {"reasoning_tokens": 0}}
    return {
        "id": f"resp_{uuid.uuid4().hex}",
        "object": "response",
        "created_at": int(time.time()),
        "status": "incomplete" if answer.cut else "completed",
        "incomplete_details": {"reason": "max_output_tokens"} if answer.cut else None,
        "error": None,
        "instructions": body.get("instructions"),
        "metadata": body.get("metadata") or {},
        "model": label,
        "output": items or [_write_message_item(answer.text)],
        "parallel_tool_calls": bool(body.get("parallel_tool_calls", True)),
        "temperature": 0,
        "tool_choice": body.get("tool_choice", "auto"),
        "tools": body.get("tools") or [],
        "top_p": 1,
        "usage": {**spent, **details, "total_tokens": sum(spent.values())},
    }


def _write_call_item(call: Any) -> JsonObject:
    named, name = write_function(call), uuid.uuid4().hex[:24]
    ids = {"id": f"fc_{name}", "call_id": f"call_{name}"}
    return {"type": "function_call", **ids, **named, "status": "completed"}


def _write_message_item(text: str) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    head = {"type": "message", "id": f"msg_{uuid.uuid4().hex[:24]}", "role": "assistant"}
    return {**head, "status": "completed", "content": [part]}


def write_response_events(whole: JsonObject) -> Iterator[bytes]:
    """A whole answer as a stream: each item added, its text or arguments, done."""
    yield from ResponseWriter(whole).end(whole)


class ResponseWriter:
    """The events of an answer while it is written. begun: the answer with nothing in it, whose id
    and time the whole one takes."""

    def __init__(self, begun: JsonObject) -> None:
        self._begun, self._number = begun, 0
        self._item: dict[str, Any] = _write_message_item("")
        self._sent = ""

    def write_text(self, text: str) -> Iterator[bytes]:
        """One more piece."""
        if not self._sent:
            yield from self._begin()
            bare = {**self._item, "status": "in_progress", "content": []}
            yield self._encode({"type": _ADDED, "output_index": 0, "item": bare})
            part = {"type": "response.content_part.added", **self._of, "content_index": 0}
            yield self._encode({**part, "part": self._item["content"][0]})
        self._sent += text
        delta = {"type": "response.output_text.delta", **self._of, "content_index": 0}
        yield self._encode({**delta, "logprobs": [], "delta": text})

    def end(self, whole: JsonObject) -> Iterator[bytes]:
        """What of the whole answer was not sent yet, and its end."""
        items = list(whole["output"])
        whole = {**whole, **{key: self._begun[key] for key in ("id", "created_at")}}
        if self._sent:
            texts = [item for item in items if item["type"] == "message"]
            rest = texts[0]["content"][0]["text"][len(self._sent) :] if texts else ""
            if rest:
                yield from self.write_text(rest)
            yield from self._end_text()
            items = [self._item, *(item for item in items if item["type"] != "message")]
            whole = {**whole, "output": items}
        else:
            yield from self._begin()
        for at, item in enumerate(items):
            if item is not self._item:
                for event in list_item_events(at, item):
                    yield self._encode(event)
        kinds = {"completed": "completed", "incomplete": "incomplete"}
        last = kinds.get(whole["status"], "failed")
        yield self._encode({"type": f"response.{last}", "response": whole})

    @property
    def _of(self) -> JsonObject:
        return {"output_index": 0, "item_id": self._item["id"]}

    def _begin(self) -> Iterator[bytes]:
        begun = {**self._begun, "status": "in_progress", "output": [], "usage": None}
        begun.pop("toolmill", None)
        for kind in ("created", "in_progress"):
            yield self._encode({"type": f"response.{kind}", "response": begun})

    def _end_text(self) -> Iterator[bytes]:
        self._item["content"][0]["text"] = self._sent
        part = self._item["content"][0]
        of = {**self._of, "content_index": 0}
        done = {"type": "response.output_text.done", **of, "logprobs": [], "text": self._sent}
        yield self._encode(done)
        yield self._encode({"type": "response.content_part.done", **of, "part": part})
        yield self._encode({"type": _DONE, "output_index": 0, "item": self._item})

    def _encode(self, event: JsonObject) -> bytes:
        number, self._number = self._number, self._number + 1
        data = json.dumps({**event, "sequence_number": number})
        return f"event: {event['type']}\ndata: {data}\n\n".encode()


def list_item_events(at: int, item: JsonObject) -> Iterator[JsonObject]:
    """The events of one item of an answer, at this place of its output."""
    of = {"output_index": at, "item_id": item.get("id")}
    bare = {**item, "status": "in_progress"} if "status" in item else dict(item)
    if item["type"] == "function_call":
        bare["arguments"] = ""
    elif item["type"] == "message":
        bare["content"] = []
    yield {"type": _ADDED, "output_index": at, "item": bare}
    if item["type"] == "function_call":
        kind, text = "response.function_call_arguments", item["arguments"]
        yield {"type": f"{kind}.delta", **of, "delta": text}
        yield {"type": f"{kind}.done", **of, "name": item["name"], "arguments": text}
    elif item["type"] == "message":
        for place, part in enumerate(item["content"]):
            yield from _list_part_events({**of, "content_index": place}, part)
    yield {"type": _DONE, "output_index": at, "item": item}


def _list_part_events(of: JsonObject, part: JsonObject) -> Iterator[JsonObject]:
    if part.get("type") != "output_text":
        return
    empty = {**part, "text": "", "annotations": []}
    yield {"type": "response.content_part.added", **of, "part": empty}
    text = {"logprobs": [], "delta": part["text"]}
    yield {"type": "response.output_text.delta", **of, **text}
    yield {"type": "response.output_text.done", **of, "logprobs": [], "text": part["text"]}
    yield {"type": "response.content_part.done", **of, "part": part}
