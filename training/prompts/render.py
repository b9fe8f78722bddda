"""A training row as text: the tools, the request, and the answer that the model must write."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from assets.contracts.canonical import iterate_parameters, tool_text
from training.prompts.templates import (
    FIX,
    BadTemplate,
    apply_template,
    cut_completion,
    get_tokenizer_label,
    render_prompt_text,
    with_pad_token,
)
from training.prompts.word_index import split_index_words

__all__ = [
    "BLOCK",
    "NO_CALL",
    "SYSTEM",
    "TURNS",
    "BadTemplate",
    "Parts",
    "Rendered",
    "check_tokenizer",
    "fit_prompt",
    "get_prompt_parts",
    "render_conversation",
    "render_tool_schema",
]

Contract = Mapping[str, Any]
Call = Mapping[str, Any]
Example = tuple[str, Sequence[Call]]
SYSTEM = "Choose one tool and write its call as JSON."
NO_CALL = "None of these tools can do that."  # the answer where no call is right
TURNS, BLOCK = "turns", "block"  # examples as earlier turns, or as a block of the system message
_TYPES = ("string", "integer", "number", "boolean", "array", "object")


@dataclass(frozen=True)
class Parts:
    """What is rendered of a row. `calls` None: nothing is answered yet. `gold`: names of the tools
    that are never dropped."""

    instruction: str
    calls: Sequence[Call] | None
    gold: frozenset[str] = field(default_factory=frozenset)
    answer: str | None = None


@dataclass(frozen=True)
class Rendered:
    """A prompt that fits, its completion, the names of the tools that it shows and of those that
    had to go, how many examples are left, and its length with the completion."""

    prompt: str
    completion: str
    shown: tuple[str, ...]
    dropped: tuple[str, ...]
    examples: int
    tokens: int


def check_tokenizer(tokenizer: Any) -> None:
    """Raises BadTemplate unless the tokenizer can show tools, write calls and none, and pad (a
    missing pad token becomes the end-of-text token)."""
    schema = {"type": "object", "properties": {"probe_word": {"type": "string"}}}
    tool = render_tool_schema(
        {"name": "probe_tool", "description": "A probe.", "inputSchema": schema}
    )
    call = {"name": "probe_tool", "arguments": {"probe_word": "probe_value"}}
    prompt, completion = render_conversation(tokenizer, [tool], "probe_request", [call])
    if "probe_request" not in prompt:
        raise BadTemplate(
            f"{get_tokenizer_label(tokenizer)}: its chat template shows no user message;{FIX}"
        )
    if "probe_tool" not in completion or "probe_value" not in completion:
        raise BadTemplate(
            f"{get_tokenizer_label(tokenizer)}: its chat template leaves the tool call out;{FIX}"
        )
    if NO_CALL not in render_conversation(tokenizer, [tool], "probe_request", [])[1]:
        raise BadTemplate(
            f"{get_tokenizer_label(tokenizer)}: its chat template leaves words out;{FIX}"
        )
    with_pad_token(tokenizer)


def render_tool_schema(contract: Contract, words: int | None = None) -> dict[str, Any]:
    """The contract as an OpenAI-style function; `words` cuts the descriptions (tiny contexts)."""
    described = contract.get("description", "")
    if words is None:
        schema = contract.get("inputSchema", {"type": "object", "properties": {}})
        body = {"description": described, "parameters": schema}
    else:
        short = {
            name: {"type": _get_json_type(schema)} for name, schema in iterate_parameters(contract)
        }
        required = contract.get("inputSchema", {}).get("required") or []
        needed = {name: kind for name, kind in short.items() if name in required}
        cut = " ".join(described.split()[:words])
        body = {"description": cut, "parameters": {"type": "object", "properties": needed}}
    return {"type": "function", "function": {"name": contract["name"], **body}}


def render_conversation(
    tokenizer: Any,
    tools: Sequence[Mapping[str, Any]],
    instruction: str,
    calls: Sequence[Call] | Call | None = None,
    *,
    answer: str | None = None,
    examples: Sequence[Example] = (),
    examples_as: str = TURNS,
) -> tuple[str, str]:
    """(prompt, completion) through the tokenizer's own chat template.

    `tools`: from `tool_schema`. `calls`: the right ones ({name, arguments}); [] where none is
    right, and the completion says `answer` or NO_CALL; None leaves the completion empty.
    `examples`: (instruction, calls) that are shown before the request.
    Raises BadTemplate.
    """
    asked = _build_request_messages(instruction, examples, examples_as)
    prompt = render_prompt_text(tokenizer, asked, tools)
    if calls is None and answer is None:
        return prompt, ""
    listed = [calls] if isinstance(calls, Mapping) else list(calls or ())
    try:
        whole = apply_template(tokenizer, [*asked, _build_call_message(listed, answer)], tools)
        completion = cut_completion(tokenizer, prompt, whole)
        if all(call["name"] in completion for call in listed) or len(listed) < 2:
            return prompt, completion
    except BadTemplate:
        if len(listed) < 2:
            raise
    # Llama-3.1's template refuses a message of several calls and gpt-oss's writes the first alone:
    # there they are one JSON list.
    whole = apply_template(tokenizer, [*asked, _build_call_message((), _as_text(listed))], tools)
    return prompt, cut_completion(tokenizer, prompt, whole)


def get_prompt_parts(row: Mapping[str, Any]) -> Parts:
    """What is rendered of a training-set row."""
    calls = _read_row_calls(row)
    names = frozenset(call["name"] for call in calls)
    return Parts(row["instruction"], calls, names)


def fit_prompt(
    tokenizer: Any,
    row_or_parts: Mapping[str, Any] | Parts,
    tools: Sequence[Contract],
    limit: int,
    *,
    words: int | None = None,
    examples: Sequence[Example] = (),
    examples_as: str = TURNS,
) -> Rendered | None:
    """The row with as many of `tools` (contracts) as `limit` tokens hold, completion included.

    What is too much goes whole: distractors, the easiest first (those that share the fewest words
    with the right tools, or with the request where no call is right), then examples, the last
    first. None where even the right tools alone do not fit. Raises BadTemplate.
    """
    parts = row_or_parts if isinstance(row_or_parts, Parts) else get_prompt_parts(row_or_parts)
    order = _rank_by_ease(parts, tools)

    def made(gone: int, shown: int) -> Rendered:
        out = set(order[:gone])
        kept = [tool for at, tool in enumerate(tools) if at not in out]
        texts = render_conversation(
            tokenizer,
            [render_tool_schema(tool, words) for tool in kept],
            parts.instruction,
            parts.calls,
            answer=parts.answer,
            examples=examples[:shown],
            examples_as=examples_as,
        )
        length = sum(len(ids) for ids in _tokenise_texts(tokenizer, texts))
        names = tuple(tool["name"] for tool in kept)
        gone_names = tuple(tools[at]["name"] for at in sorted(out))
        return Rendered(*texts, names, gone_names, shown, length)

    steps = [(gone, len(examples)) for gone in range(len(order) + 1)]
    steps += [(len(order), shown) for shown in range(len(examples) - 1, -1, -1)]
    return _find_first_fitting(steps, lambda step: made(*step), limit)


def _find_first_fitting(
    steps: Sequence[tuple[int, int]], made: Callable[[tuple[int, int]], Rendered], limit: int
) -> Rendered | None:
    """The first step that fits; each is shorter than the one before, so halves are searched. The
    first is tried by itself: nearly every row fits as it is."""
    best = made(steps[0])
    if best.tokens <= limit:
        return best
    low, high, best = 1, len(steps), None
    while low < high:
        middle = (low + high) // 2
        tried = made(steps[middle])
        if tried.tokens <= limit:
            best, high = tried, middle
        else:
            low = middle + 1
    return best


def _rank_by_ease(parts: Parts, tools: Sequence[Contract]) -> list[int]:
    """Places of the tools that may go, the easiest to tell from the right ones first."""
    texts = [split_index_words(tool_text(tool)) for tool in tools]
    right = [text for tool, text in zip(tools, texts, strict=True) if tool["name"] in parts.gold]
    like = set().union(*right) if right else split_index_words(parts.instruction)
    free = [at for at, tool in enumerate(tools) if tool["name"] not in parts.gold]
    shared = {at: len(texts[at] & like) / (len(texts[at] | like) or 1) for at in free}
    return sorted(free, key=lambda at: (shared[at], tools[at]["name"]))


def _build_request_messages(
    instruction: str, examples: Sequence[Example], examples_as: str
) -> list[dict[str, Any]]:
    if examples_as not in (TURNS, BLOCK):
        raise ValueError(f"examples as {examples_as!r}: expected {TURNS!r} or {BLOCK!r}")
    system, turns = SYSTEM, []
    for asked, calls in examples:
        if examples_as == BLOCK:
            system += f"\n\nAn earlier request: {asked}\nIts answer: {_as_text(calls)}"
        else:
            turns += [{"role": "user", "content": asked}, _build_call_message(calls, None)]
    last = {"role": "user", "content": instruction}
    return [{"role": "system", "content": system}, *turns, last]


def _build_call_message(calls: Sequence[Call], answer: str | None) -> dict[str, Any]:
    if not calls:
        return {"role": "assistant", "content": NO_CALL if answer is None else answer}
    told = [{"name": call["name"], "arguments": dict(call["arguments"])} for call in calls]
    listed = [{"type": "function", "function": one} for one in told]
    return {"role": "assistant", "content": "", "tool_calls": listed}


def _as_text(calls: Sequence[Call]) -> str:
    listed = [{"name": call["name"], "arguments": dict(call["arguments"])} for call in calls]
    if not listed:
        return NO_CALL
    return json.dumps(listed if len(listed) > 1 else listed[0], ensure_ascii=False)


def _read_row_calls(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    held = row.get("calls")
    if held is None:  # a row that says no more than its own call
        own = row.get("arguments")
        return [] if own is None else [{"name": row["tool"], "arguments": json.loads(own)}]
    listed = json.loads(held) if isinstance(held, str) else held
    return [{"name": call["name"], "arguments": call["arguments"]} for call in listed]


def _tokenise_texts(tokenizer: Any, texts: Sequence[str]) -> list[list[int]]:
    return [tokenizer(text, add_special_tokens=False)["input_ids"] for text in texts]


def _get_json_type(schema: Any) -> str:
    kind = schema.get("type") if isinstance(schema, Mapping) else None
    kind = next((k for k in kind if k != "null"), None) if isinstance(kind, list) else kind
    return kind if kind in _TYPES else "string"
