"""Answers of a scripted upstream whose model searches for tools, in the form of both APIs."""

import json
from typing import Any

from tests.extensions.proxy.samples import make_item, make_response

SEARCH_TOOL: Any = {
    "type": "tool_search",
    "execution": "client",
    "description": "find tools",
    "parameters": {"type": "object", "properties": {"tool": {"type": "string"}}},
}


def make_search(arguments: Any, at: int = 0) -> dict[str, Any]:
    head = {"type": "tool_search_call", "id": f"ts{at}", "call_id": f"s{at}"}
    return {**head, "execution": "client", "arguments": arguments, "status": "completed"}


def make_turn(*items: Any, at: int = 0) -> dict[str, Any]:
    usage = {"input_tokens": 10, "output_tokens": 2, "total_tokens": 12}
    usage |= {"input_tokens_details": {"cached_tokens": 1}}
    usage |= {"output_tokens_details": {"reasoning_tokens": 0}}
    return {**make_response(), "id": f"r{at}", "output": list(items), "usage": usage}


def write_turn(*items: Any, at: int = 0) -> bytes:
    return json.dumps(make_turn(*items, at=at)).encode()


def stream_turn(*items: Any, at: int = 0) -> list[bytes]:
    """Each item added and done, the arguments of a call in one piece."""
    whole = make_turn(*items, at=at)
    begun = {**whole, "output": [], "status": "in_progress"}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
    ]
    for place, item in enumerate(items):
        of, calls = {"output_index": place}, item["type"] == "function_call"
        bare = {**item, "arguments": ""} if calls else item
        events.append({"type": "response.output_item.added", **of, "item": bare})
        if calls:
            kind, ids = "response.function_call_arguments", {**of, "item_id": item["id"]}
            events.append({"type": f"{kind}.delta", **ids, "delta": item["arguments"]})
            done = {"name": item["name"], "arguments": item["arguments"]}
            events.append({"type": f"{kind}.done", **ids, **done})
        events.append({"type": "response.output_item.done", **of, "item": item})
    events.append({"type": "response.completed", "response": whole})
    return [
        f"event: {one['type']}\ndata: {json.dumps({**one, 'sequence_number': n})}\n\n".encode()
        for n, one in enumerate(events)
    ]


def make_call(name: str, arguments: str, at: int = 5) -> dict[str, Any]:
    return make_item(arguments, at, name=name)


def make_message(*blocks: Any, stop: str = "tool_use") -> dict[str, Any]:
    return {
        "id": "msg",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": list(blocks),
        "stop_reason": stop,
        "stop_sequence": None,
        "usage": {"input_tokens": 7, "output_tokens": 3},
    }


def make_use(name: str, given: Any, at: int = 0) -> dict[str, Any]:
    return {"type": "tool_use", "id": f"tu{at}", "name": name, "input": given}


def stream_message(*blocks: Any, stop: str = "tool_use") -> list[bytes]:
    message = make_message(*blocks, stop=stop)
    start = {**message, "content": [], "stop_reason": None}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": start}, {"type": "ping"}]
    for at, block in enumerate(blocks):
        empty = {**block, **({"input": {}} if "input" in block else {"text": ""})}
        events.append({"type": "content_block_start", "index": at, "content_block": empty})
        text = json.dumps(block["input"]) if "input" in block else block["text"]
        for piece in (text[:4], text[4:]):
            delta = (
                {"type": "input_json_delta", "partial_json": piece}
                if "input" in block
                else {"type": "text_delta", "text": piece}
            )
            events.append({"type": "content_block_delta", "index": at, "delta": delta})
        events.append({"type": "content_block_stop", "index": at})
    end = {"stop_reason": stop, "stop_sequence": None}
    events.append({"type": "message_delta", "delta": end, "usage": {"output_tokens": 3}})
    events.append({"type": "message_stop"})
    return [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events]
