"""A draft call in any shape that models and clients write: which tool, which arguments."""

import ast
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from warehouse.llm.json_text import find_fenced, find_json, repair_json

_NAMES = ("name", "tool_name", "tool", "function_name", "function", "recipient_name")
_ARGUMENTS = ("arguments", "input", "parameters", "args", "params", "tool_input", "kwargs")
_IDS = ("call_id", "id", "tool_call_id")
_MOST = 200  # drafts of one answer
_TAG = re.compile(r"<tool_call>(.*?)(?:</tool_call>|$)", re.DOTALL)
_PYTHON = re.compile(r"\s*[A-Za-z_][\w.\-:/]{0,200}\s*\(")
LONGEST = 4_000_000  # characters of a draft; its arguments have their own limit


@dataclass(frozen=True)
class Draft:
    """One call as it was written. name: "" where none was given. arguments: text, or a JSON
    value."""

    name: str
    arguments: Any
    id: str | None = None


def read_drafts(value: Any) -> list[Draft]:
    """Every call in a draft: OpenAI (`tool_calls`, `function_call`, Responses), Anthropic
    (`tool_use`), MCP (`tools/call`), `{name, arguments}`, a list of these, or text that holds
    them as JSON or as `name(parameter=value)`. [] where no call is in it. Never raises."""
    try:
        return list(_iterate_drafts(value, 0))[:_MOST]
    except (RecursionError, ValueError, MemoryError):
        return []


def _iterate_drafts(value: Any, depth: int) -> Iterator[Draft]:
    if depth > 6:
        return
    if isinstance(value, Draft):
        yield value
    elif isinstance(value, str):
        yield from _read_text(value[:LONGEST], depth)
    elif isinstance(value, list | tuple):
        for one in value[:_MOST]:
            if isinstance(one, Draft | Mapping):
                yield from _iterate_drafts(one, depth + 1)
    elif isinstance(value, Mapping):
        yield from _read_object(value, depth)


def _read_object(value: Mapping[str, Any], depth: int) -> Iterator[Draft]:
    for key in ("tool_calls", "output", "choices", "content"):
        if isinstance(value.get(key), list):
            yield from _iterate_drafts(value[key], depth + 1)
            return
    for key in ("message", "function_call", "tool_call"):
        if isinstance(value.get(key), Mapping):
            yield from _iterate_drafts(value[key], depth + 1)
            return
    call_id = next((value[key] for key in _IDS if isinstance(value.get(key), str)), None)
    if value.get("method") == "tools/call" and isinstance(value.get("params"), Mapping):
        value = value["params"]
    if isinstance(value.get("function"), Mapping):
        value = value["function"]
    name = next((value[key] for key in _NAMES if isinstance(value.get(key), str)), None)
    given = next((key for key in _ARGUMENTS if key in value), None)
    if name is not None or given is not None:
        yield Draft(name or "", value[given] if given else {}, call_id)


def _read_text(text: str, depth: int) -> Iterator[Draft]:
    parts = _TAG.findall(text) or find_fenced(text) or [text]
    for part in parts[:_MOST]:
        found = list(_read_part(part, depth))
        yield from found


def _read_part(part: str, depth: int) -> Iterator[Draft]:
    whole = part.strip()
    try:
        yield from _iterate_drafts(json.loads(whole), depth + 1)
        return
    except (ValueError, RecursionError):
        pass
    if _PYTHON.match(whole):
        yield from _read_python(whole)
        return
    held = [one.value for one, _ in zip(find_json(whole), range(_MOST), strict=False)
            if not one.in_broken]  # fmt: skip
    calls = [draft for value in held for draft in _iterate_drafts(value, depth + 1)]
    if not calls and whole[:1] in ("{", "["):
        repaired = repair_json(whole) if len(whole) <= 100_000 else []
        calls = [draft for value in repaired for draft in _iterate_drafts(value, depth + 1)]
    yield from calls


def _read_python(text: str) -> Iterator[Draft]:
    """`name(parameter=value)`, as some models write calls."""
    try:
        call = ast.parse(text[:100_000], mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return
    if (
        isinstance(call, ast.Call)
        and not call.args
        and all(keyword.arg for keyword in call.keywords)
    ):
        try:
            given = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
        except (ValueError, TypeError, RecursionError, MemoryError):
            return
        yield Draft(ast.unparse(call.func), given)
