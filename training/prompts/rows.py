"""What a row of the training set says of its calls."""

import json
from collections.abc import Mapping
from typing import Any


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
