"""A row's conversation as chat endpoints write it."""

import json
from collections.abc import Sequence

from assets.synthesis.common.tables import Golden
from warehouse.json_types import Json, JsonObject, Row


def make_golden(row: Row, arguments: dict[str, Json], borrowed: Sequence[str] = ()) -> Golden:
    return Golden(row["server_id"], row["tool"], row["contract_digest"], arguments, tuple(borrowed))


def make_user_message(text: str) -> dict[str, Json]:
    return {"role": "user", "content": text}


def make_assistant_message(text: str) -> dict[str, Json]:
    return {"role": "assistant", "content": text}


def make_call_message(first: int, calls: Sequence[tuple[str, JsonObject]]) -> dict[str, Json]:
    """The assistant's message with calls as chat endpoints write them, numbered from `first`."""
    made = [
        {
            "id": f"call_{number}",
            "type": "function",
            "function": {"name": tool, "arguments": json.dumps(arguments, ensure_ascii=False)},
        }
        for number, (tool, arguments) in enumerate(calls, first)
    ]
    return {"role": "assistant", "content": None, "tool_calls": made}


def make_result_message(number: int, text: str) -> dict[str, Json]:
    return {"role": "tool", "tool_call_id": f"call_{number}", "content": text}
