"""Reading calls out of model text: tolerant of form, and whatever the text is, an outcome.

A call that stands inside a thought is no call: thought is taken out first, and a thought that was
never closed is a thought to the end.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from training.prompts import render
from warehouse.llm.reasoning import without_thinking

Kind = Literal["call", "prose", "invalid_json", "no_call"]

# A call of a real contract has some hundred characters; what is longer is read to here.
MAX_CHARS = 100_000
MAX_CALLS = 64
# What is read in vain before the rest is let be: every `{` of a broken text is a start, and each
# may be read to the end; 100,000 of them took 4.8 s.
_MOST_IN_VAIN, _VAIN_START = 20 * MAX_CHARS, 1000
_OPENED, _CLOSED = "<think>", "</think>"
_WRAPPERS = ("tool_calls", "tool_call", "function_call", "function", "calls", "call")
_BARE = {"name", "id", "type"}


@dataclass(frozen=True)
class Parsed:
    """The calls in a text, `{name, arguments}` each in order, and what the text is.

    kind: call; no_call (nothing, an empty list of calls, or the taught words for it); invalid_json
    (an answer was begun that cannot be read: broken JSON, a thought without an end); prose.
    `arguments` is what was written, an object unless the model wrote something else.
    """

    calls: list[dict[str, Any]]
    kind: Kind


def check_read_back(tokenizer: Any) -> None:
    """Raises BadTemplate where calls as this tokenizer's template writes them cannot be read here:
    such a model would score 0 however good it is. Of 44 templates that TRL ships some ten (Gemma4,
    GLM, gpt-oss …) have a form of their own."""
    call = {"name": "probe_tool", "arguments": {"probe_word": "probe_value"}}
    schema = {"type": "object", "properties": {"probe_word": {"type": "string"}}}
    tool = render.tool_schema({"name": "probe_tool", "inputSchema": schema})
    _, completion = render.render(tokenizer, [tool], "probe_request", [call])
    said = completion
    for special in tokenizer.all_special_tokens:  # as decoding leaves them out
        said = said.replace(special, "")
    if parse_calls(said).calls != [call]:
        raise render.BadTemplate(
            f"{tokenizer.name_or_path}: its chat template writes a call as {said.strip()[:80]!r},"
            " which is no JSON call; expected a base that writes calls as Qwen2.5, Qwen3, Hermes or"
            " Llama-3.1 do, or set chat_template in its tokenizer_config.json"
        )


def parse_calls(text: str) -> Parsed:
    """All calls in a model's text. Never raises."""
    said = _spoken(text[:MAX_CHARS]).strip()
    if not said and text.strip():
        return Parsed([], "invalid_json")  # nothing but a thought without an end
    if _means_no_call(said):
        return Parsed([], "no_call")
    calls: list[dict[str, Any]] = []
    empty_list = within_broken = False
    at = in_vain = 0
    while len(calls) < MAX_CALLS and in_vain < _MOST_IN_VAIN:
        at = _next_start(said, at)
        if at < 0:
            break
        found, end, stopped = _decoded(said, at)
        if end is None:
            in_vain += _VAIN_START + stopped - at
            # What follows may be an argument of the call that broke off: {"name": "x"} is one.
            within_broken = within_broken or bool(_OBJECT.match(said, at))
            at += 1
            continue
        read = _calls_in(found, 0, bare=not within_broken)
        calls += read
        empty_list = empty_list or (not within_broken and _is_empty(found))
        at = end
    if calls:
        return Parsed(calls[:MAX_CALLS], "call")
    if empty_list:
        return Parsed([], "no_call")
    return Parsed([], "invalid_json" if _was_begun(said) else "prose")


def call_of(name: Any, arguments: Any) -> dict[str, Any] | None:
    """{name, arguments} as a scorer takes it: arguments written as a JSON text are read, none are
    an empty object. None without a usable name."""
    if not isinstance(name, str) or not name.strip():
        return None
    if isinstance(arguments, str):
        held = _decoded(arguments.strip(), 0)[0] if arguments.strip() else {}
        arguments = held if isinstance(held, Mapping) else arguments
    return {"name": name.strip(), "arguments": {} if arguments is None else arguments}


def _spoken(text: str) -> str:
    """The text without thought, unless all of it is JSON (whose strings may hold such marks)."""
    if _decoded(text.strip(), 0)[1] == len(text.strip()) > 0:
        return text
    closed = text.find(_CLOSED)
    if closed >= 0 and not 0 <= text.find(_OPENED) < closed:
        text = text[closed + len(_CLOSED) :]  # the prompt had opened it
    text = without_thinking(text)
    unclosed = text.find(_OPENED)
    return text if unclosed < 0 else text[:unclosed]


def _means_no_call(said: str) -> bool:
    taught = getattr(render, "NO_CALL", None)
    return not said or (isinstance(taught, str) and said.rstrip(".") == taught.strip().rstrip("."))


def _next_start(said: str, at: int) -> int:
    places = [place for mark in "{[" if (place := said.find(mark, at)) >= 0]
    return min(places, default=-1)


def _decoded(said: str, at: int) -> tuple[Any, int | None, int]:
    """(value, where it ends, how far was read); (None, None, …) where no JSON value begins."""
    try:
        value, end = _DECODER.raw_decode(said, at)
        return value, end, end
    except json.JSONDecodeError as error:
        return None, None, max(error.pos, at)
    except (ValueError, RecursionError):
        return None, None, len(said)


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse)
_OBJECT = re.compile(r'\{\s*"')


def _calls_in(found: Any, depth: int, *, bare: bool = True) -> list[dict[str, Any]]:
    """The calls a JSON value is, or holds in one of the wrappers that models use; `bare`: a name
    alone is one too."""
    if depth > 4:
        return []
    if isinstance(found, list):
        held = found[:MAX_CALLS]
        return [call for item in held for call in _calls_in(item, depth + 1, bare=bare)]
    if not isinstance(found, dict):
        return []
    if isinstance(found.get("name"), str):
        given = next((found[key] for key in ("arguments", "parameters") if key in found), None)
        # A tool's definition repeated is no call: it has a description beside its parameters.
        whole = "arguments" in found or ("parameters" in found and "description" not in found)
        whole = whole or (bare and found.keys() <= _BARE)
        call = call_of(found["name"], given) if whole else None
        return [call] if call else []
    return [
        call
        for key in _WRAPPERS
        if key in found
        for call in _calls_in(found[key], depth + 1, bare=bare)
    ][:MAX_CALLS]


def _is_empty(found: Any) -> bool:
    """An explicit "no calls": `[]`, or a wrapper that holds none."""
    return found == [] or (
        isinstance(found, dict) and any(key in found and not found[key] for key in _WRAPPERS)
    )


def _was_begun(said: str) -> bool:
    bare = said.lstrip("`").removeprefix("json").lstrip()
    return bare.startswith(("{", "[")) or "<tool_call>" in said or '"name"' in said
