"""The tools that a marketplace shows of a server, kept as it shows them, within bounds.

They are claims: no launch has confirmed one of them. What a launch, a model or a training row may
be made of is decided in `assets/contracts`.
"""

import json
from collections.abc import Mapping
from typing import Any

# Every member of the protocol that says what a tool is; marketplaces add icons, scores, ids.
FIELDS = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")
_OTHERWISE = {"inputSchema": "input_schema", "outputSchema": "output_schema"}
MOST_TOOLS = 500  # of one server
_LONGEST = 200_000  # characters of one tool
_MOST = 2_000_000  # characters of all


def dump_tools(shown: Any) -> str | None:
    """The tools of a record as a JSON list, None where it shows none.

    `shown` is a list of objects or of names. An entry without a name, one that JSON cannot hold
    and one that is too long are left out, as is whatever comes after the list is full.
    """
    kept: list[str] = []
    left = _MOST
    for entry in shown if isinstance(shown, list) else ():
        text = _dump_tool(entry)
        if text is None:
            continue
        left -= len(text)
        if left < 0 or len(kept) == MOST_TOOLS:
            break
        kept.append(text)
    return f"[{','.join(kept)}]" if kept else None


def load_tools(text: bytes | str) -> list[dict[str, Any]]:
    """The tools of `dump_tools`; what is none of them, or too much, is left out."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return []
    tools = found if isinstance(found, list) else []
    return [tool for tool in tools[:MOST_TOOLS] if isinstance(tool, dict)]


def _dump_tool(entry: Any) -> str | None:
    tool = {"name": entry} if isinstance(entry, str) else entry
    if not isinstance(tool, Mapping):
        return None
    name = tool.get("name")
    if not isinstance(name, str) or not name.strip():
        return None
    kept = {key: tool.get(key, tool.get(_OTHERWISE.get(key, key))) for key in FIELDS}
    try:
        text = json.dumps(
            {key: value for key, value in kept.items() if value is not None}, allow_nan=False
        )
    except (ValueError, TypeError, RecursionError):
        return None
    return text if len(text) <= _LONGEST else None
