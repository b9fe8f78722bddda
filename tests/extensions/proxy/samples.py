"""Answers of a scripted upstream, in the form of OpenAI's two APIs."""

import json
from typing import Any

PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city"],
    "additionalProperties": False,
}
CHAT_TOOLS: Any = [{"type": "function", "function": {"name": "weather", "parameters": PARAMETERS}}]
TOOLS: Any = [{"type": "function", "name": "weather", "parameters": PARAMETERS, "strict": False}]
VALID = '{"city":  "Bonn", "days": 2}'
BROKEN = "{'city': 'Bonn', 'days': '2',}"


def make_completion(*calls: str, finish: str = "tool_calls", name: str = "weather") -> bytes:
    listed = [
        {"id": f"c{at}", "type": "function", "function": {"name": name, "arguments": text}}
        for at, text in enumerate(calls)
    ]
    message = {"role": "assistant", "content": None, "tool_calls": listed}
    choice = {"index": 0, "message": message, "finish_reason": finish}
    return json.dumps(
        {"id": "x", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}
    ).encode()


def make_chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    body = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return b"data: " + json.dumps({**body, "choices": [choice]}).encode() + b"\n\n"


def make_part(at: int, arguments: str, name: str | None = None) -> bytes:
    first = {"id": f"c{at}", "type": "function"} if name else {}
    inner = {"arguments": arguments, **({"name": name} if name else {})}
    return make_chunk({"tool_calls": [{"index": at, **first, "function": inner}]})


def stream_chat(*calls: str, finish: str = "tool_calls", name: str = "weather") -> list[bytes]:
    """Text, then each call in pieces of five characters."""
    parts = [make_chunk({"role": "assistant", "content": "Look"})]
    for at, text in enumerate(calls):
        parts.append(make_part(at, "", name))
        parts += [make_part(at, text[i : i + 5]) for i in range(0, len(text), 5)]
    return [*parts, make_chunk({}, finish), b"data: [DONE]\n\n"]


def make_item(
    arguments: str, at: int = 0, status: str = "completed", name: str = "weather"
) -> dict[str, Any]:
    return {
        "type": "function_call",
        "id": f"f{at}",
        "call_id": f"c{at}",
        "name": name,
        "arguments": arguments,
        "status": status,
    }


def make_response(*calls: str, status: str = "completed", name: str = "weather") -> dict[str, Any]:
    return {
        "id": "r",
        "object": "response",
        "created_at": 1,
        "model": "m",
        "status": status,
        "output": [make_item(text, at, name=name) for at, text in enumerate(calls)],
        "tools": [],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
    }


def stream_response(*calls: str, name: str = "weather") -> list[bytes]:
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": make_response(status="in_progress")}
    ]
    for at, text in enumerate(calls):
        of = {"output_index": at, "item_id": f"f{at}"}
        kind = "response.function_call_arguments"
        item = make_item("", at, "in_progress", name)
        events.append({"type": "response.output_item.added", "output_index": at, "item": item})
        pieces = [text[i : i + 5] for i in range(0, len(text), 5)]
        events += [{"type": f"{kind}.delta", **of, "delta": piece} for piece in pieces]
        events.append({"type": f"{kind}.done", **of, "name": name, "arguments": text})
        item = make_item(text, at, name=name)
        events.append({"type": "response.output_item.done", "output_index": at, "item": item})
    events.append({"type": "response.completed", "response": make_response(*calls, name=name)})
    return [
        f"event: {one['type']}\ndata: {json.dumps({**one, 'sequence_number': at})}\n\n".encode()
        for at, one in enumerate(events)
    ]
