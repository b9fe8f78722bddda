"""A scripted upstream with answers in the form of three APIs, and the proxy before it."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import uvicorn
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from extensions.proxy.app import ProxyApp
from extensions.proxy.upstream import ProxySettings, make_listening
from serving.meta.transports import make_config

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


def make_item(arguments: str, at: int = 0, name: str = "weather") -> dict[str, Any]:
    call = {"type": "function_call", "id": f"f{at}", "call_id": f"c{at}", "name": name}
    return {**call, "arguments": arguments, "status": "completed"}


def make_call(name: str, arguments: str, at: int = 5) -> dict[str, Any]:
    return make_item(arguments, at, name)


def make_response(*calls: str, name: str = "weather") -> dict[str, Any]:
    head = {"id": "r", "object": "response", "created_at": 1, "model": "m", "status": "completed"}
    tools = {"tools": [], "parallel_tool_calls": True, "tool_choice": "auto"}
    output = [make_item(text, at, name) for at, text in enumerate(calls)]
    return {**head, **tools, "output": output}


def stream_response(*calls: str, name: str = "weather") -> list[bytes]:
    """Each call in pieces of five characters."""
    return stream_turn(*make_response(*calls, name=name)["output"], size=5)


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


def stream_turn(*items: Any, at: int = 0, size: int = 10_000) -> list[bytes]:
    """Each item added and done, the arguments of a call in pieces of so many characters."""
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
            text = item["arguments"]
            pieces = [text[start : start + size] for start in range(0, len(text), size)]
            events += [{"type": f"{kind}.delta", **ids, "delta": piece} for piece in pieces]
            done = {"name": item["name"], "arguments": text}
            events.append({"type": f"{kind}.done", **ids, **done})
        events.append({"type": "response.output_item.done", **of, "item": item})
    events.append({"type": "response.completed", "response": whole})
    return [
        f"event: {one['type']}\ndata: {json.dumps({**one, 'sequence_number': n})}\n\n".encode()
        for n, one in enumerate(events)
    ]


def make_message(*blocks: Any, stop: str = "tool_use") -> dict[str, Any]:
    head = {"id": "msg", "type": "message", "role": "assistant", "model": "m"}
    usage = {"input_tokens": 7, "output_tokens": 3}
    end = {"stop_reason": stop, "stop_sequence": None, "usage": usage}
    return {**head, "content": list(blocks), **end}


def make_use(name: str, given: Any, at: int = 0) -> dict[str, Any]:
    return {"type": "tool_use", "id": f"tu{at}", "name": name, "input": given}


def stream_message(*blocks: Any, stop: str = "tool_use") -> list[bytes]:
    start = {**make_message(*blocks, stop=stop), "content": [], "stop_reason": None}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": start}, {"type": "ping"}]
    for at, block in enumerate(blocks):
        empty = {**block, **({"input": {}} if "input" in block else {"text": ""})}
        events.append({"type": "content_block_start", "index": at, "content_block": empty})
        text = json.dumps(block["input"]) if "input" in block else block["text"]
        kind, key = ("input_json", "partial_json") if "input" in block else ("text", "text")
        for piece in (text[:4], text[4:]):
            delta = {"type": f"{kind}_delta", key: piece}
            events.append({"type": "content_block_delta", "index": at, "delta": delta})
        events.append({"type": "content_block_stop", "index": at})
    end = {"stop_reason": stop, "stop_sequence": None}
    events.append({"type": "message_delta", "delta": end, "usage": {"output_tokens": 3}})
    events.append({"type": "message_stop"})
    return [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events]


@dataclass
class Script:
    """What the upstream answers next, and what it was sent. parts: of a stream. broken: the
    connection ends before the stream does. turns: answers one after the other, each a body, the
    parts of a stream or a status; the last one stays."""

    status: int = 200
    body: bytes = b"{}"
    parts: list[bytes] | None = None
    headers: dict[str, str] = field(default_factory=dict)
    delay_s: float = 0.0
    broken: bool = False
    turns: list[Any] = field(default_factory=list)
    seen: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        request = Request(scope, receive)
        self.seen.append((request.url.path, dict(request.headers), await request.body()))
        if self.turns:
            self._take_turn(self.turns.pop(0) if len(self.turns) > 1 else self.turns[0])
        await anyio.sleep(self.delay_s)
        if self.parts is None:
            kind = {"content-type": "application/json", **self.headers}
            answer = Response(self.body, self.status, kind)
        else:
            answer = StreamingResponse(self._iterate(), media_type="text/event-stream")
        await answer(scope, receive, send)

    def _take_turn(self, turn: Any) -> None:
        self.status = turn if isinstance(turn, int) else 200
        self.parts = turn if isinstance(turn, list) else None
        self.body = turn if isinstance(turn, bytes) else b'{"error": {"message": "no"}}'

    async def _iterate(self) -> Any:
        for part in self.parts or []:
            yield part
        if self.broken:
            raise ConnectionResetError


@contextmanager
def run_server(app: Any, settings: Any = None) -> Iterator[int]:
    listening = socket.create_server(("127.0.0.1", 0))
    plain = uvicorn.Config(app, log_config=None, log_level="critical", lifespan="off")
    server = uvicorn.Server(make_config(app, settings) if settings else plain)
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    try:
        yield listening.getsockname()[1]
    finally:
        server.should_exit = server.force_exit = True
        thread.join(60)
        listening.close()


@dataclass
class Running:
    url: str
    script: Script
    proxy: ProxyApp


@contextmanager
def run_proxied(
    *, token: str = "", max_body: int = 4_000_000, parts: Any = None, **options: Any
) -> Iterator[Running]:
    script = Script()
    with run_server(script) as port:
        settings = ProxySettings(**{"upstream": f"http://127.0.0.1:{port}", **options})
        listening = make_listening("127.0.0.1", 0, token, max_body)
        proxy = ProxyApp(settings, listening, parts)
        with run_server(proxy, listening) as own:
            yield Running(f"http://127.0.0.1:{own}", script, proxy)
