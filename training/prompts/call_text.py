"""How a tokenizer's chat template writes a call: what stands before the name, between name and
arguments, and after them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from assets.contracts.repair.json_text import load_first
from serving.repair.drafts import read_drafts
from training.prompts.render import NO_CALL, render_conversation, render_tool_schema, render_turns
from training.prompts.templates import FIX, BadTemplate, get_tokenizer_label, with_pad_token
from warehouse.llm.roles import drop_thinking

_NAME, _ARGUMENT = "zq_probe_tool", "zq_probe_argument"
_ARGUMENTS = re.compile(rf'\{{\s*"{_ARGUMENT}"\s*:\s*1\s*\}}')
_TOOL = {
    "name": _NAME,
    "description": "A probe.",
    "inputSchema": {"type": "object", "properties": {_ARGUMENT: {"type": "integer"}}},
}


@dataclass(frozen=True)
class CallForm:
    """A call is `before` + name + `between` + arguments as JSON + `after`."""

    before: str
    between: str
    after: str


def find_call_form(tokenizer: Any) -> CallForm:
    """The form that the template gives one call. Raises BadTemplate where it writes arguments in
    another way than as one JSON object behind the name."""
    call = {"name": _NAME, "arguments": {_ARGUMENT: 1}}
    tools = [render_tool_schema(_TOOL)]
    _, written = render_conversation(tokenizer, tools, "probe", [call])
    match = _ARGUMENTS.search(written)
    at = written.find(_NAME)
    if match is None or not 0 < at < match.start():
        raise BadTemplate(
            f"{get_tokenizer_label(tokenizer)}: its chat template does not write a call as a name"
            " and its arguments as one JSON object, so that no grammar can be made of it; evaluate"
            " the model without `constrained:`"
        )
    after = written[match.end() :]
    for token in tokenizer.all_special_tokens:  # the end of the turn is no part of the call
        after = after.split(token)[0]
    return CallForm(written[:at], written[at + len(_NAME) : match.start()], after.rstrip())


Kind = Literal["call", "prose", "invalid_json", "no_call"]

# A call of a real contract has some hundred characters; what is longer is read to here.
MAX_CHARS = 100_000
MAX_CALLS = 64
_OPENED, _CLOSED = "<think>", "</think>"
_FUNCTIONS = re.compile(r"functions[.:]([^:]{1,128})(?::\d{1,6})?")  # Kimi's and Harmony's names
_NONE = re.compile(  # a list without calls
    r"(?:^|[\s`>\]])\[\s{0,9}\](?:$|[\s`<.])"
    r'|"(?:(?:tool_|function_)?calls?|function)"\s{0,9}:\s{0,9}(?:\[\s{0,9}\]|\{\s{0,9}\}|null)'
)


@dataclass(frozen=True)
class ParsedCalls:
    """The calls in a text, `{name, arguments}` each in order, and what the text is.

    kind: call; no_call (nothing, an empty list of calls, or the taught words for it); invalid_json
    (an answer was begun that cannot be read: broken JSON, a thought without an end); prose.
    `arguments` is what was written, an object unless the model wrote something else.
    """

    calls: list[dict[str, Any]]
    kind: Kind


def parse_calls(text: str) -> ParsedCalls:
    """All calls in a model's text. Never raises."""
    answer = _strip_thought(text[:MAX_CHARS]).strip()
    if not answer and text.strip():
        return ParsedCalls([], "invalid_json")  # nothing but a thought without an end
    if not answer or answer.rstrip(".") == NO_CALL.rstrip("."):
        return ParsedCalls([], "no_call")
    drafts = read_drafts(answer, strict=True)
    read = [normalise_call(draft.name, draft.arguments) for draft in drafts if not draft.fault]
    if calls := [call for call in read if call]:
        return ParsedCalls(calls[:MAX_CALLS], "call")
    if not any(draft.fault for draft in drafts) and _NONE.search(answer):
        return ParsedCalls([], "no_call")
    return ParsedCalls([], "invalid_json" if drafts or _is_call_begun(answer) else "prose")


def normalise_call(name: Any, arguments: Any) -> dict[str, Any] | None:
    """{name, arguments} as a scorer takes it: arguments written as a JSON text are read, none are
    an empty object. None without a usable name."""
    if not isinstance(name, str) or not name.strip():
        return None
    if isinstance(arguments, str):
        parsed = load_first(arguments, 0)[0] if arguments.strip() else {}
        arguments = parsed if isinstance(parsed, Mapping) else arguments
    named = _FUNCTIONS.fullmatch(name.strip())
    return {
        "name": named[1] if named else name.strip(),
        "arguments": {} if arguments is None else arguments,
    }


def _strip_thought(text: str) -> str:
    """The text without thought, unless all of it is JSON (whose strings may hold such marks)."""
    end = load_first(text, 0)[1]
    if end is not None and not text[end:].strip():
        return text
    closed = text.find(_CLOSED)
    if closed >= 0 and not 0 <= text.find(_OPENED) < closed:
        text = text[closed + len(_CLOSED) :]  # the prompt had opened it
    text = drop_thinking(text)
    unclosed = text.find(_OPENED)
    return text if unclosed < 0 else text[:unclosed]


def _is_call_begun(answer: str) -> bool:
    bare = answer.lstrip("`").removeprefix("json").lstrip()
    return bare.startswith(("{", "[")) or "<tool_call>" in answer or '"name"' in answer


_SCHEMA = {"type": "object", "properties": {"probe_word": {"type": "string"}}}
_TOOL_CHECK = {"name": "probe_tool", "description": "A probe.", "inputSchema": _SCHEMA}
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
    such a model would score 0 however good it is."""
    _, text = _render_probe(tokenizer, [_CALL])
    for special in tokenizer.all_special_tokens:  # as decoding leaves them out
        text = text.replace(special, "")
    if parse_calls(text).calls != [_CALL]:
        raise BadTemplate(
            f"{get_tokenizer_label(tokenizer)}: its chat template writes a call as"
            f" {text.strip()[:80]!r}, which cannot be read; expected a base that writes calls as"
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
        prompt, _ = render_turns(tokenizer, [render_tool_schema(_TOOL_CHECK)], asked)[-1]
    except BadTemplate:
        return False
    return "probe_result" in prompt


def _render_probe(tokenizer: Any, calls: list[dict[str, Any]]) -> tuple[str, str]:
    return render_conversation(tokenizer, [render_tool_schema(_TOOL_CHECK)], "probe_request", calls)
