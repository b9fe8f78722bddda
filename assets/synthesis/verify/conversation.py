"""A row's columns as the rules read them: who said what, which calls were made, what came back."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from assets.synthesis.common.tables import Golden, read_goldens
from warehouse.json_types import Json, Row


class Unreadable(ValueError):
    """A column that does not hold what it should."""

    def __init__(self, column: str, found: str) -> None:
        super().__init__(f"{column}: {found}")
        self.column = column


@dataclass(frozen=True)
class Conversation:
    """What a row says. `messages`: (role, text) of all that is spoken; `made`: (tool, arguments) of
    each call in them; `results`: tool messages."""

    messages: list[tuple[str, str]]
    made: list[tuple[str, Json]]
    results: list[str]
    calls: list[Golden]
    offered: list[str]
    text: str  # all that the user says

    @property
    def user(self) -> list[str]:
        return [text for role, text in self.messages if role == "user"]


def read_conversation(row: Row) -> Conversation:
    """Reads a row. Raises Unreadable naming the column."""
    messages: list[tuple[str, str]] = []
    made: list[tuple[str, Json]] = []
    results: list[str] = []
    for message in _read_list(row, "messages"):
        if not isinstance(message, Mapping):
            raise Unreadable("messages", "a message is no object")
        role, content = str(message.get("role")), message.get("content")
        text = content if isinstance(content, str) else ""
        if role == "tool":
            results.append(text)
        elif text:
            messages.append((role, text))
        made += [_read_made_call(call) for call in message.get("tool_calls") or []]
    spoken = [text for role, text in messages if role == "user"]
    text = "\n".join(spoken) or str(row.get("instruction") or "")
    offered = [str(digest) for digest in _read_list(row, "offered")]
    return Conversation(messages, made, results, _read_calls(row), offered, text)


def is_question(text: str) -> bool:
    """Whether a text asks something."""
    return any(mark in text for mark in "?？؟")


def _read_list(row: Row, column: str) -> list[Json]:
    value = row.get(column)
    try:
        found = json.loads(value) if isinstance(value, str) and value else value or []
    except (ValueError, RecursionError) as error:
        raise Unreadable(column, f"not JSON ({str(error)[:60]})") from error
    if not isinstance(found, list):
        raise Unreadable(column, f"expected a list, found {type(found).__name__}")
    return found


def _read_calls(row: Row) -> list[Golden]:
    found = _read_list(row, "calls")
    try:
        calls = read_goldens({"calls": json.dumps(found)})
    except (TypeError, ValueError, AttributeError, RecursionError) as error:
        raise Unreadable("calls", f"not a list of calls ({str(error)[:60]})") from error
    for golden in calls:
        if not isinstance(golden.arguments, dict):
            raise Unreadable("calls", f"arguments are {type(golden.arguments).__name__}")
    return calls


def _read_made_call(call: Json) -> tuple[str, Json]:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        raise Unreadable("messages", "a tool call without a function")
    written = function.get("arguments")
    try:
        arguments = json.loads(written) if isinstance(written, str) else written
    except (ValueError, RecursionError) as error:
        raise Unreadable("messages", "a call's arguments are not JSON") from error
    return str(function.get("name")), arguments
