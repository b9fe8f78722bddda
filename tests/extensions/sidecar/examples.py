"""Placed calls of the tests' training set."""

from typing import Any

from extensions.sidecar.revision_data import PlacedCall, place_calls


def place(rows: list[dict[str, Any]], pool: dict[str, Any], n: int = 6) -> list[PlacedCall]:
    return place_calls(rows[:n], pool, candidates=4)


def talk(row: dict[str, Any], *messages: dict[str, Any], **changed: Any) -> dict[str, Any]:
    """The row as a conversation."""
    return {**row, "messages": list(messages), **changed}


def call_message(name: str, arguments: Any, **more: Any) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    calls = [{"id": "call_1", "type": "function", "function": function}]
    return {"role": "assistant", "content": None, "tool_calls": calls, **more}
