"""How a tokenizer's chat template writes a call: what stands before the name, between name and
arguments, and after them."""

import re
from dataclasses import dataclass
from typing import Any

from training.prompts.render import render_conversation, render_tool_schema
from training.prompts.templates import BadTemplate, get_tokenizer_label

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
    found = _ARGUMENTS.search(written)
    at = written.find(_NAME)
    if found is None or not 0 < at < found.start():
        raise BadTemplate(
            f"{get_tokenizer_label(tokenizer)}: its chat template does not write a call as a name"
            " and its arguments as one JSON object, so that no grammar can be made of it; evaluate"
            " the model without `constrained:`"
        )
    after = written[found.end() :]
    for token in tokenizer.all_special_tokens:  # the end of the turn is no part of the call
        after = after.split(token)[0]
    return CallForm(written[:at], written[at + len(_NAME) : found.start()], after.rstrip())
