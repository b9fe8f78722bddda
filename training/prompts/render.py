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
Example = tuple[str, Sequence[Call]]
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
    tools: Sequence[Mapping[str, Any]],
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
    asked: list[dict[str, Any]] = [{"role": "system", "content": SYSTEM}]
    for text, right in examples:
        asked += [{"role": "user", "content": text}, _build_call_message(right)]
    asked.append({"role": "user", "content": instruction})
    prompt = render_prompt_text(tokenizer, asked, tools)
    if calls is None:
        return prompt, ""
    try:
        whole = apply_template(tokenizer, [*asked, _build_call_message(calls)], tools)
        completion = cut_completion(tokenizer, prompt, whole)
        if len(calls) < 2 or all(call["name"] in completion for call in calls):
            return prompt, completion
    except BadTemplate:
        if len(calls) < 2:
            raise
    # Llama-3.1's template refuses a message of several calls and gpt-oss's writes the first alone:
    # there they are one JSON list.
    listed = {"role": "assistant", "content": json.dumps(_copy_calls(calls), ensure_ascii=False)}
    whole = apply_template(tokenizer, [*asked, listed], tools)
    return prompt, cut_completion(tokenizer, prompt, whole)


def _build_call_message(calls: Sequence[Call]) -> dict[str, Any]:
    if not calls:
        return {"role": "assistant", "content": NO_CALL}
    listed = [{"type": "function", "function": one} for one in _copy_calls(calls)]
    return {"role": "assistant", "content": "", "tool_calls": listed}


def _copy_calls(calls: Sequence[Call]) -> list[dict[str, Any]]:
    return [{"name": call["name"], "arguments": dict(call["arguments"])} for call in calls]
