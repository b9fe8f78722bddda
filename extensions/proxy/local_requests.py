"""What a local model is asked and answers, and the requests of OpenAI's two APIs in that form."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from extensions.proxy.examples_book import KnownCall
from serving.repair.tools import read_tool
from warehouse.json_types import JsonObject

_ROLES = {"developer": "system", "function": "tool"}
_TURNS = ("system", "user", "assistant", "tool")


@dataclass(frozen=True)
class LocalRequest:
    """One question. messages: {role, content: text}, those of the assistant with `tool_calls` in
    OpenAI's shape whose arguments are objects. contracts: {name, description, inputSchema} of the
    tools offered. most_tokens: of the answer, None: as the model has it. examples: accepted calls
    of like requests, the nearest last. must_call: one of the tools has to be called."""

    messages: Sequence[Mapping[str, Any]]
    contracts: Sequence[Mapping[str, Any]]
    most_tokens: int | None = None
    examples: Sequence[KnownCall] = ()
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


class LocalModel(Protocol):
    """`answer` is called in a thread, one request at a time; it returns early, with anything, once
    `is_over()` is true. `tell` gets the beginning of the answer's text piece by piece, as it is
    written; what it did not get is in the answer. Raises CannotAnswer."""

    @property
    def label(self) -> str: ...

    def answer(
        self,
        request: LocalRequest,
        is_over: Callable[[], bool],
        tell: Callable[[str], None] | None = None,
    ) -> LocalAnswer: ...


class BadRequest(ValueError):
    """A request that a local model cannot be asked, in one line."""


def read_chat_request(body: JsonObject) -> LocalRequest:
    """A request of `/v1/chat/completions`. Raises BadRequest."""
    given = body.get("messages")
    if not isinstance(given, list):
        raise BadRequest("`messages` is no list")
    _refuse_choices(body)
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


def _refuse_choices(body: JsonObject) -> None:
    if body.get("n") not in (None, 1):
        raise BadRequest(f"n {body['n']!r:.20}: a local model gives one choice; ask n=1")


def _make_request(messages: list[dict[str, Any]], body: JsonObject, most: Any) -> LocalRequest:
    if not messages or messages[-1]["role"] not in ("user", "tool"):
        raise BadRequest("the last message is of neither the user nor a tool")
    if most is not None and not (type(most) is int and most > 0):
        raise BadRequest(f"the limit of tokens is {most!r:.20}; expected a whole number above 0")
    choice, wanted = body.get("tool_choice"), _read_wanted(body)
    contracts, must_call = (
        list(_iterate_contracts(body)),
        choice == "required" or wanted is not None,
    )
    if must_call and not contracts:
        found = (
            "no function is offered" if wanted is None else f"no function {wanted!r:.80} is offered"
        )
        raise BadRequest(f"`tool_choice` asks for a call, and {found}")
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
