"""A completion, read as it will be when it is served: by the same reader, after the JSON fixer."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from extensions.sidecar.prompt import read_revision
from serving.repair.drafts import DEEPEST, measure_depth
from training.prompts.parse_calls import MAX_CHARS

# One call as templates write it: JSON alone, in tags, or after a mark as [TOOL_CALLS].
_WRAPPED = re.compile(
    r"(?:<(\w{1,40})>|\[[A-Z_]{1,40}\])?\s*([\[{].*[\]}])\s*(?:</\1>)?", re.DOTALL
)
_THOUGHT = re.compile(r"\A\s*<(think\w*)>\s*</\1>\s*")
_ARGUMENTS = ("arguments", "parameters")


@dataclass(frozen=True)
class ReadAnswer:
    """name, arguments: of the call, name None where it is none. question: "" where it asks
    nothing. strict: whether the text is a call that any JSON reader takes."""

    name: str | None = None
    arguments: Any = None
    question: str = ""
    strict: bool = False


def read_answer(text: str, contracts: Iterable[Mapping[str, Any]]) -> ReadAnswer:
    """What a completion says; of a long one the first MAX_CHARS. What is nested deeper than the
    ladder takes, and what is neither call nor question, is neither. Never raises."""
    text = text[:MAX_CHARS]
    proposed = read_revision(text, contracts)
    if proposed is None:
        return ReadAnswer()
    if proposed.question:
        return ReadAnswer(question=proposed.question)
    if measure_depth(proposed.arguments) > DEEPEST:
        return ReadAnswer()
    return ReadAnswer(proposed.name, proposed.arguments, strict=_is_strict(text))


def _is_strict(text: str) -> bool:
    """One JSON object {name, arguments} (or a list of it), and nothing that is not its wrapper."""
    found = _WRAPPED.fullmatch(_THOUGHT.sub("", text).strip())
    if found is None:
        return False
    try:
        value = json.loads(found[2], parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return False
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return False
    return any(isinstance(value.get(name), dict) for name in _ARGUMENTS)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")
