"""What a tokenizer's chat template must be able to do, tried before a training starts."""

from typing import Any

from training.prompts.parse_calls import parse_calls
from training.prompts.render import (
    NO_CALL,
    render_conversation,
    render_tool_schema,
    render_turns,
)
from training.prompts.templates import FIX, BadTemplate, get_tokenizer_label, with_pad_token

_SCHEMA = {"type": "object", "properties": {"probe_word": {"type": "string"}}}
_TOOL = {"name": "probe_tool", "description": "A probe.", "inputSchema": _SCHEMA}
_CALL = {"name": "probe_tool", "arguments": {"probe_word": "probe_value"}}


def check_tokenizer(tokenizer: Any) -> None:
    """Raises BadTemplate unless the tokenizer can show tools, write calls and none, and pad (a
    missing pad token becomes the end-of-text token)."""
    prompt, completion = _render_probe(tokenizer, [_CALL])
    flaw = None
    if "probe_request" not in prompt:
        flaw = "shows no user message"
    elif "probe_tool" not in completion or "probe_value" not in completion:
        flaw = "leaves the tool call out"
    elif NO_CALL not in _render_probe(tokenizer, [])[1]:
        flaw = "leaves words out"
    if flaw:
        raise BadTemplate(f"{get_tokenizer_label(tokenizer)}: its chat template {flaw};{FIX}")
    with_pad_token(tokenizer)


def check_read_back(tokenizer: Any) -> None:
    """Raises BadTemplate where calls as this tokenizer's template writes them cannot be read here:
    such a model would score 0 however good it is. Of 44 templates that TRL ships some ten (Gemma4,
    GLM, gpt-oss …) have a form of their own."""
    _, text = _render_probe(tokenizer, [_CALL])
    for special in tokenizer.all_special_tokens:  # as decoding leaves them out
        text = text.replace(special, "")
    if parse_calls(text).calls != [_CALL]:
        raise BadTemplate(
            f"{get_tokenizer_label(tokenizer)}: its chat template writes a call as"
            f" {text.strip()[:80]!r}, which is no JSON call; expected a base that writes calls as"
            " Qwen2.5, Qwen3, Hermes or Llama-3.1 do, or set chat_template in its"
            " tokenizer_config.json"
        )


def can_show_results(tokenizer: Any) -> bool:
    """Whether the tokenizer's chat template shows what a tool answered, so that a later call can be
    made of it."""
    asked = [
        {"role": "user", "content": "probe_request"},
        {"role": "assistant", "weight": 0,
         "tool_calls": [{"id": "call_1", "type": "function", "function": _CALL}]},
        {"role": "tool", "tool_call_id": "call_1", "content": "probe_result"},
    ]  # fmt: skip
    try:
        prompt, _ = render_turns(tokenizer, [render_tool_schema(_TOOL)], asked)[-1]
    except BadTemplate:
        return False
    return "probe_result" in prompt


def _render_probe(tokenizer: Any, calls: list[dict[str, Any]]) -> tuple[str, str]:
    return render_conversation(tokenizer, [render_tool_schema(_TOOL)], "probe_request", calls)
