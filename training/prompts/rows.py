"""What a row of the training set says: its right calls, and its conversation turn by turn."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from training.prompts.render import Message, is_learnt


@dataclass(frozen=True)
class Turn:
    """One answer of the model's. `before`: the conversation it answers, the request alone where it
    is (); `calls`: the right ones, [] where none is; `asks`: it is to ask back."""

    before: tuple[Message, ...]
    calls: list[dict[str, Any]]
    asks: bool = False


def read_json_list(held: Any) -> list[Any]:
    """A list, or a column that holds one as JSON; [] for none."""
    return (json.loads(held) if isinstance(held, str) else list(held or ())) or []


def read_calls(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The right calls of a row, {name, arguments} each; [] where none is right."""
    held = row.get("calls")
    if held is None:  # a row that says no more than its own call
        own = row.get("arguments")
        return [] if own is None else [{"name": row["tool"], "arguments": json.loads(own)}]
    listed = json.loads(held) if isinstance(held, str) else held
    return [{"name": call["name"], "arguments": call["arguments"]} for call in listed]


def read_messages(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The conversation of a row of several turns, or of one that is answered with a question; [] of
    any other."""
    return read_json_list(row.get("messages"))


def list_turns(row: Mapping[str, Any]) -> list[Turn]:
    """Every answer of the model's that a row teaches, in order."""
    messages = read_messages(row)
    if not messages:
        return [Turn((), read_calls(row))]
    return [
        _make_turn(messages[:at], message)
        for at, message in enumerate(messages)
        if is_learnt(message)
    ]


def list_named_tools(row: Mapping[str, Any]) -> frozenset[str]:
    """Names of the tools that a row's prompt cannot do without: those that are called, rightly or
    not, and the one that is asked about."""
    names = {call["name"] for call in read_calls(row)}
    messages = read_messages(row)
    for message in messages:
        names |= {call["name"] for call in read_message_calls(message)}
    return frozenset(names or ({row["tool"]} if messages else ()))


def read_message_calls(message: Message) -> list[dict[str, Any]]:
    """The calls of one message, {name, arguments} each."""
    return [
        {"name": call["function"]["name"], "arguments": call["function"]["arguments"]}
        for call in message.get("tool_calls") or ()
    ]


def _make_turn(before: Sequence[Message], message: Message) -> Turn:
    from assets.synthesis.verify.rules import is_question  # needs polars, settings do not

    calls = read_message_calls(message)
    # What was said before is context: nothing of it is asked for again.
    known = tuple({**one, "weight": 0} if is_learnt(one) else one for one in before)
    asks = not calls and is_question(message.get("content") or "")
    answered = any(one["role"] == "tool" for one in before)  # then it is an answer
    return Turn(known, calls, asks=asks and not answered)
