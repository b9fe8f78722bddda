"""A training row as text: the tools, the request, and the answer that the model must write."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from training.prompts.templates import (
    BadTemplate,
    apply_template,
    cut_completion,
    render_prompt_text,
)
from warehouse.json_types import Contract

Call = Mapping[str, Any]
Message = Mapping[str, Any]
Example = tuple[str, Sequence[Call]]
Tools = Sequence[Mapping[str, Any]]
SYSTEM = "Choose one tool and write its call as JSON."
NO_CALL = "None of these tools can do that."  # the answer where no call is right


def render_tool_schema(contract: Contract) -> dict[str, Any]:
    """The contract as an OpenAI-style function."""
    body = {
        "description": contract.get("description", ""),
        "parameters": contract.get("inputSchema", {"type": "object", "properties": {}}),
    }
    return {"type": "function", "function": {"name": contract["name"], **body}}


def render_wire_tool(contract: Contract, names: Mapping[str, str]) -> dict[str, Any]:
    """The contract as an endpoint takes it; `names`: tool -> its name on the wire."""
    made = render_tool_schema(contract)
    return {**made, "function": {**made["function"], "name": names[str(contract["name"])]}}


def render_conversation(
    tokenizer: Any,
    tools: Tools,
    instruction: str,
    calls: Sequence[Call] | None = None,
    *,
    examples: Sequence[Example] = (),
) -> tuple[str, str]:
    """(prompt, completion) through the tokenizer's own chat template.

    `tools`: from `render_tool_schema`. `calls`: the right ones ({name, arguments}); [] where none
    is right, and the completion says NO_CALL; None leaves the completion empty. `examples`:
    (instruction, calls) that are shown before the request, as earlier turns.
    Raises BadTemplate.
    """
    asked = [*_open_conversation(examples), {"role": "user", "content": instruction}]
    prompt = render_prompt_text(tokenizer, asked, tools)
    if calls is None:
        return prompt, ""
    return prompt, _render_completion(tokenizer, prompt, asked, build_call_message(calls), tools)


def render_turns(
    tokenizer: Any, tools: Tools, messages: Sequence[Message], *, examples: Sequence[Example] = ()
) -> list[tuple[str, str]]:
    """(prompt, completion) of every turn of the model's in a conversation, each as it is asked for.

    `messages`: OpenAI's, with `arguments` as objects. A turn of `weight` 0 is context and none of
    them. Where the model does not have the last word, the last completion is empty.
    Raises BadTemplate.
    """
    asked = _open_conversation(examples)
    made = []
    for message in messages:
        turn = {name: held for name, held in message.items() if name != "weight"}
        turn["content"] = turn.get("content") or ""  # many templates fail on a null content
        if is_learnt(message):
            prompt = render_prompt_text(tokenizer, asked, tools)
            made.append((prompt, _render_completion(tokenizer, prompt, asked, turn, tools)))
        asked.append(turn)
    if asked[-1]["role"] != "assistant":
        made.append((render_prompt_text(tokenizer, asked, tools), ""))
    return made


def is_learnt(message: Message) -> bool:
    """Whether a message is a turn of the model's that is right: a call that was wrong on purpose
    has `weight` 0."""
    return message["role"] == "assistant" and message.get("weight") != 0


def render_answer(
    tokenizer: Any,
    messages: Sequence[Message],
    calls: Sequence[Call],
    tools: Tools,
    words: str = NO_CALL,
) -> str:
    """What the model must write after `messages`: the calls, or `words` where there is none.
    Raises BadTemplate."""
    asked = [dict(message) for message in messages]
    prompt = render_prompt_text(tokenizer, asked, tools)
    answer = build_call_message(calls, words)
    return _render_completion(tokenizer, prompt, asked, answer, tools)


def _open_conversation(examples: Sequence[Example]) -> list[dict[str, Any]]:
    asked: list[dict[str, Any]] = [{"role": "system", "content": SYSTEM}]
    for text, right in examples:
        asked += [{"role": "user", "content": text}, build_call_message(right)]
    return asked


def _render_completion(
    tokenizer: Any,
    prompt: str,
    asked: Sequence[dict[str, Any]],
    message: dict[str, Any],
    tools: Tools,
) -> str:
    """What the model must write after `prompt`, which asks for `message` after `asked`."""
    calls = [call["function"] for call in message.get("tool_calls") or ()]
    try:
        whole = apply_template(tokenizer, [*asked, message], tools)
        completion = cut_completion(tokenizer, prompt, whole)
        if len(calls) < 2 or all(call["name"] in completion for call in calls):
            return completion
    except BadTemplate:
        if len(calls) < 2:
            raise
    # Llama-3.1's template refuses a message of several calls and gpt-oss's writes the first alone:
    # there they are one JSON list.
    listed = {"role": "assistant", "content": json.dumps(_copy_calls(calls), ensure_ascii=False)}
    whole = apply_template(tokenizer, [*asked, listed], tools)
    return cut_completion(tokenizer, prompt, whole)


def build_call_message(calls: Sequence[Call], words: str = NO_CALL) -> dict[str, Any]:
    """The answer as a message: the calls, or `words` where there is none."""
    if not calls:
        return {"role": "assistant", "content": words}
    listed = [{"type": "function", "function": call} for call in _copy_calls(calls)]
    return {"role": "assistant", "content": "", "tool_calls": listed}


def _copy_calls(calls: Sequence[Call]) -> list[dict[str, Any]]:
    return [{"name": call["name"], "arguments": dict(call["arguments"])} for call in calls]
