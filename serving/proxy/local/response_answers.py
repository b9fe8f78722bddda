"""An answer in the form of the Responses API, whole or as the events of a stream."""

import json
import time
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from serving.proxy.local.chat_answers import write_function
from serving.proxy.local.model import LocalAnswer

Json = Mapping[str, Any]


def write_response(answer: LocalAnswer, label: str, body: Json) -> dict[str, Any]:
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


def _write_call_item(call: Any) -> Json:
    named, name = write_function(call), uuid.uuid4().hex[:24]
    ids = {"id": f"fc_{name}", "call_id": f"call_{name}"}
    return {"type": "function_call", **ids, **named, "status": "completed"}


def _write_message_item(text: str) -> Json:
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    head = {"type": "message", "id": f"msg_{uuid.uuid4().hex[:24]}", "role": "assistant"}
    return {**head, "status": "completed", "content": [part]}


def write_response_events(whole: Json) -> Iterator[bytes]:
    """A whole answer as a stream: each item added, its text or arguments, done."""
    begun: dict[str, Any] = {**whole, "status": "in_progress", "output": [], "usage": None}
    begun.pop("toolmill", None)
    last = {"completed": "completed", "incomplete": "incomplete"}.get(whole["status"], "failed")
    events: list[Json] = [{"type": f"response.{kind}", "response": begun}
                          for kind in ("created", "in_progress")]  # fmt: skip
    for at, item in enumerate(whole["output"]):
        events += list_item_events(at, item)
    events.append({"type": f"response.{last}", "response": whole})
    for number, event in enumerate(events):
        data = json.dumps({**event, "sequence_number": number}, ensure_ascii=False)
        yield f"event: {event['type']}\ndata: {data}\n\n".encode()


def list_item_events(at: int, item: Json) -> Iterator[Json]:
    """The events of one item of an answer, at this place of its output."""
    of = {"output_index": at, "item_id": item.get("id")}
    bare = {**item, "status": "in_progress"} if "status" in item else dict(item)
    if item["type"] == "function_call":
        bare["arguments"] = ""
    elif item["type"] == "message":
        bare["content"] = []
    yield {"type": "response.output_item.added", "output_index": at, "item": bare}
    if item["type"] == "function_call":
        kind, text = "response.function_call_arguments", item["arguments"]
        yield {"type": f"{kind}.delta", **of, "delta": text}
        yield {"type": f"{kind}.done", **of, "name": item["name"], "arguments": text}
    elif item["type"] == "message":
        for place, part in enumerate(item["content"]):
            yield from _list_part_events({**of, "content_index": place}, part)
    yield {"type": "response.output_item.done", "output_index": at, "item": item}


def _list_part_events(of: Json, part: Json) -> Iterator[Json]:
    if part.get("type") != "output_text":
        return
    empty = {**part, "text": "", "annotations": []}
    yield {"type": "response.content_part.added", **of, "part": empty}
    text = {"logprobs": [], "delta": part["text"]}
    yield {"type": "response.output_text.delta", **of, **text}
    yield {"type": "response.output_text.done", **of, "logprobs": [], "text": part["text"]}
    yield {"type": "response.content_part.done", **of, "part": part}
