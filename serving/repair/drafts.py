"""A draft call in any shape that models and clients write: which tool, which arguments.

Arguments as text become a JSON value, in the order of what loses least: JSON -> text in text, code
fence -> raw line breaks -> NaN -> several values -> cut off -> Python literals, comments, commas ->
json-repair, whose values must all be in the text.
"""

import ast
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from warehouse.llm.json_answers import find_fenced, find_json, repair_json
from warehouse.patterns import compile_pattern

_NAMES = ("name", "tool_name", "tool", "function_name", "function", "recipient_name")
_ARGUMENTS = ("arguments", "input", "parameters", "args", "params", "tool_input", "kwargs")
_IDS = ("call_id", "id", "tool_call_id")
_MOST = 200  # drafts of one answer
_TAG = compile_pattern(r"(?s)<tool_call>(.*?)(?:</tool_call>|$)")
_PYTHON = compile_pattern(r"\s*[A-Za-z_][\w.\-:/]*\s*\(")
LONGEST = 4_000_000  # characters of a draft; its arguments have their own limit
DEEPEST = 60  # levels of nesting


@dataclass(frozen=True)
class DraftCall:
    """One call as it was written. name: "" where none was given. arguments: text, or a JSON
    value."""

    name: str
    arguments: Any
    id: str | None = None


def read_drafts(value: Any) -> list[DraftCall]:
    """Every call in a draft: OpenAI (`tool_calls`, `function_call`, Responses), Anthropic
    (`tool_use`), MCP (`tools/call`), `{name, arguments}`, a list of these, or text that holds
    them as JSON or as `name(parameter=value)`. [] where no call is in it. Never raises."""
    try:
        return list(_iterate_drafts(value, 0))[:_MOST]
    except (RecursionError, ValueError, MemoryError):
        return []


def _iterate_drafts(value: Any, depth: int) -> Iterator[DraftCall]:
    if depth > 6:
        return
    if isinstance(value, DraftCall):
        yield value
    elif isinstance(value, str):
        yield from _read_text(value[:LONGEST], depth)
    elif isinstance(value, list | tuple):
        for item in value[:_MOST]:
            if isinstance(item, DraftCall | Mapping):
                yield from _iterate_drafts(item, depth + 1)
    elif isinstance(value, Mapping):
        yield from _read_object(value, depth)


def _read_object(value: Mapping[str, Any], depth: int) -> Iterator[DraftCall]:
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
    key_of_arguments = next((key for key in _ARGUMENTS if key in value), None)
    if name is not None or key_of_arguments is not None:
        yield DraftCall(name or "", value[key_of_arguments] if key_of_arguments else {}, call_id)


def _read_text(text: str, depth: int) -> Iterator[DraftCall]:
    pieces = _TAG.findall(text) or find_fenced(text) or [text]
    for part in pieces[:_MOST]:
        drafts = list(_read_part(part, depth))
        yield from drafts


def _read_part(part: str, depth: int) -> Iterator[DraftCall]:
    whole = part.strip()
    try:
        yield from _iterate_drafts(json.loads(whole), depth + 1)
        return
    except (ValueError, RecursionError):
        pass
    if _PYTHON.match(whole):
        yield from _read_python(whole)
        return
    values = [item.value for item, _ in zip(find_json(whole), range(_MOST), strict=False)
            if not item.in_broken]  # fmt: skip
    calls = [draft for value in values for draft in _iterate_drafts(value, depth + 1)]
    if not calls and whole[:1] in ("{", "["):
        repaired = repair_json(whole) if len(whole) <= 100_000 else []
        calls = [draft for value in repaired for draft in _iterate_drafts(value, depth + 1)]
    yield from calls


def _read_python(text: str) -> Iterator[DraftCall]:
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
            arguments = {
                str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords
            }
        except (ValueError, TypeError, RecursionError, MemoryError):
            return
        yield DraftCall(ast.unparse(call.func), arguments)


def measure_depth(value: Any, most: int = DEEPEST) -> int:
    """Levels of nesting, counted to `most` + 1."""
    level, depth = [value], 0
    while level and depth <= most:
        inner: list[Any] = []
        for one in level:
            if isinstance(one, Mapping):
                inner += one.values()
            elif isinstance(one, list):
                inner += one
        level, depth = [item for item in inner if isinstance(item, Mapping | list)], depth + 1
    return depth


def is_writable(value: Any) -> bool:
    """Whether JSON has a way to write it: it has none for `1e999`, once that is read."""
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        return False
    return True
