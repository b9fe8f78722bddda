"""A local model's requests and answers in the forms of OpenAI's two APIs."""

import json
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from extensions.proxy.calls import make_call_id
from extensions.proxy.exchange import write_event
from serving.repair.tools import read_tool
from warehouse.json_types import JsonObject

_ROLES = {"developer": "system", "function": "tool"}
_TURNS = ("system", "user", "assistant", "tool")


@dataclass(frozen=True)
class LocalRequest:
    """One question. messages: {role, content: text}, those of the assistant with `tool_calls` in
    OpenAI's shape whose arguments are objects. contracts: {name, description, inputSchema} of the
    tools offered. most_tokens: of the answer, None: as the model has it. must_call: one of the
    tools has to be called."""

    messages: Sequence[Mapping[str, Any]]
    contracts: Sequence[Mapping[str, Any]]
    most_tokens: int | None = None
    must_call: bool = False


@dataclass(frozen=True)
class LocalAnswer:
    """text: where there are no calls. calls: {name, arguments} each; arguments as the model wrote
    them, an object or text. cut: the answer ended at its limit."""

    text: str
    calls: Sequence[Mapping[str, Any]] = ()
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cut: bool = False


class CannotAnswer(RuntimeError):
    """The model gives no answer to this request: why, and what to change."""


class BadRequest(ValueError):
    """A request that a local model cannot be asked, in one line."""


def read_chat_request(body: JsonObject) -> LocalRequest:
    """A request of `/v1/chat/completions`. Raises BadRequest."""
    given = body.get("messages")
    if not isinstance(given, list):
        raise BadRequest("`messages` is no list")
    if body.get("n") not in (None, 1):
        raise BadRequest(f"n {body['n']!r:.20}: a local model gives one choice; ask n=1")
    messages = [_read_message(item) for item in given if isinstance(item, Mapping)]
    most = body.get("max_completion_tokens") or body.get("max_tokens")
    return _make_request(messages, body, most)


def read_responses_request(body: JsonObject) -> LocalRequest:
    """A request of `/v1/responses`. Raises BadRequest."""
    if body.get("previous_response_id") or body.get("conversation"):
        raise BadRequest("a local model keeps no answers; send the whole conversation as `input`")
    messages = []
    if isinstance(body.get("instructions"), str):
        messages.append({"role": "system", "content": body["instructions"]})
    given = body.get("input")
    if isinstance(given, str):
        messages.append({"role": "user", "content": given})
    elif isinstance(given, list):
        messages += _read_items(given)
    else:
        raise BadRequest("`input` is neither text nor a list")
    return _make_request(messages, body, body.get("max_output_tokens"))


def _make_request(messages: list[dict[str, Any]], body: JsonObject, most: Any) -> LocalRequest:
    if not messages or messages[-1]["role"] not in ("user", "tool"):
        raise BadRequest("the last message is of neither the user nor a tool")
    if most is not None and not (type(most) is int and most > 0):
        raise BadRequest(f"the limit of tokens is {most!r:.20}; expected a whole number above 0")
    choice, wanted = body.get("tool_choice"), _read_wanted(body)
    contracts = list(_iterate_contracts(body))
    must_call = choice == "required" or wanted is not None
    if must_call and not contracts:
        named = "" if wanted is None else f" {wanted!r:.80}"
        raise BadRequest(f"`tool_choice` asks for a call, and no function{named} is offered")
    return LocalRequest(messages, contracts, most, must_call=must_call)


def _read_wanted(body: JsonObject) -> str | None:
    """The function that `tool_choice` names, in the form of either API."""
    choice = body.get("tool_choice")
    function = choice.get("function", choice) if isinstance(choice, Mapping) else None
    name = function.get("name") if isinstance(function, Mapping) else None
    return name if isinstance(name, str) else None


def _iterate_contracts(body: JsonObject) -> Iterator[Mapping[str, Any]]:
    """The functions that may be called: none where `tool_choice` is "none", one where it names
    one."""
    choice, wanted = body.get("tool_choice"), _read_wanted(body)
    tools = body.get("tools")
    for tool in tools if isinstance(tools, list) and choice != "none" else []:
        read = read_tool(tool) if isinstance(tool, Mapping) else None
        if read is not None and tool.get("type") == "function" and wanted in (None, read.name):
            yield read.contract


def _read_message(message: Mapping[str, Any]) -> dict[str, Any]:
    role = str(message.get("role"))
    role = _ROLES.get(role, role)
    if role not in _TURNS:
        raise BadRequest(f"a message of role {role[:40]!r}; expected one of {', '.join(_TURNS)}")
    made: dict[str, Any] = {"role": role, "content": read_content(message.get("content"))}
    calls = message.get("tool_calls")
    given = calls if isinstance(calls, list) else []
    functions = [item.get("function") for item in given if isinstance(item, Mapping)]
    listed = [_write_call(function) for function in functions if isinstance(function, Mapping)]
    return {**made, "tool_calls": listed} if listed else made


def _read_items(items: list[Any]) -> Iterator[dict[str, Any]]:
    for item in items:
        kind = item.get("type", "message") if isinstance(item, Mapping) else None
        if kind == "message":
            yield _read_message(item)
        elif kind == "function_call":
            yield {"role": "assistant", "content": "", "tool_calls": [_write_call(item)]}
        elif kind == "function_call_output":
            yield {"role": "tool", "content": read_content(item.get("output"))}


def read_content(content: Any) -> str:
    """The text of a message; of a list of parts, those that have text."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = [part.get("text") for part in parts if isinstance(part, Mapping)]
    return "\n".join(text for text in texts if isinstance(text, str))


def _write_call(function: Mapping[str, Any]) -> dict[str, Any]:
    given = function.get("arguments")
    try:
        read = json.loads(given) if isinstance(given, str) else given
    except (ValueError, RecursionError):
        read = {}
    arguments = read if isinstance(read, Mapping) else {}
    named = {"name": str(function.get("name") or ""), "arguments": dict(arguments)}
    return {"type": "function", "function": named}


_ADDED, _DONE = "response.output_item.added", "response.output_item.done"


def write_completion(answer: LocalAnswer, label: str) -> dict[str, Any]:
    """The body of a whole answer."""
    calls = [
        {"id": make_call_id(), "type": "function", "function": write_function(call)}
        for call in answer.calls
    ]
    message: dict[str, Any] = {"role": "assistant", "content": None if calls else answer.text}
    if calls:
        message["tool_calls"] = calls
    finish = "length" if answer.cut else "tool_calls" if calls else "stop"
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
    spent = {"prompt_tokens": answer.prompt_tokens, "completion_tokens": answer.completion_tokens}
    return {
        "id": f"chatcmpl-{uuid.uuid4().hex}",
        "created": int(time.time()),
        "model": label,
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
    [choice] = whole["choices"]
    message, field = choice["message"], {}
    head = {key: whole[key] for key in whole.keys() - {"choices", "usage", "object"}}
    if "toolmill" in head:
        field = {"toolmill": head.pop("toolmill")}
    head["object"] = "chat.completion.chunk"
    deltas: list[JsonObject] = [{"role": "assistant", "content": message["content"] or ""}]
    calls = enumerate(message.get("tool_calls", ()))
    deltas += [{"tool_calls": [{"index": at, **call}]} for at, call in calls]
    chunk = {"index": 0, "logprobs": None, "finish_reason": None}
    for delta in deltas:
        yield write_event({**head, "choices": [{**chunk, "delta": delta}]})
    last = {**chunk, "delta": {}, "finish_reason": choice["finish_reason"]}
    yield write_event({**head, "choices": [last], **field})
    if usage:
        yield write_event({**head, "choices": [], "usage": whole["usage"]})
    yield b"data: [DONE]\n\n"


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
    begun = {**whole, "status": "in_progress", "output": [], "usage": None}
    begun.pop("toolmill", None)
    kinds = ("response.created", "response.in_progress")
    events: list[JsonObject] = [{"type": kind, "response": begun} for kind in kinds]
    for at, item in enumerate(whole["output"]):
        events += list_item_events(at, item)
    events.append({"type": f"response.{whole['status']}", "response": whole})
    for number, event in enumerate(events):
        yield write_event({**event, "sequence_number": number})


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
