"""What a model is asked that revises a draft: the same words of every reviser, trained or not."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from assets.contracts.repair.problems import Problem
from assets.synthesis.prompts import read_prompt
from serving.repair.revision import RevisionRequest

MESSAGE = "message"  # the key of a problem that is words alone
_FOLDER = Path(__file__).parent / "prompts"


def make_revision_messages(request: RevisionRequest) -> list[dict[str, str]]:
    """The chat messages of a request. What others wrote stands in JSON lines: no text can end its
    own line and speak as the instruction."""
    return read_prompt("revise", _FOLDER).make_messages(
        conversation="\n".join(map(_write_message, request.conversation)) or "none",
        draft=_write_json({"name": request.name, "arguments": request.arguments}),
        problems="\n".join(map(_write_json, _list_problems(request))) or "nothing that shows",
    )


def write_problem(problem: Problem) -> str:
    """A validator's problem in words; what is words already stays."""
    if MESSAGE in problem:
        return str(problem[MESSAGE])
    return (
        f"{problem['path']}: expected {problem['expected']}, found {problem['found']};"
        f" {problem['fix']}"
    )


def _list_problems(request: RevisionRequest) -> list[str]:
    """What the ladder does not say: that the tool itself is unknown, or is several."""
    count = sum(candidate.name == request.name for candidate in request.candidates)
    about = {0: ["there is no tool of this name"], 1: []}
    tool = about.get(count, [f"{count} servers have a tool of this name"])
    return tool + [write_problem(problem) for problem in request.problems]


def _write_message(message: Mapping[str, Any]) -> str:
    role, content = str(message.get("role") or "user"), message.get("content")
    written: dict[str, Any] = {"role": role, "content": _read_content(content)}
    calls = [one.get("function", one) for one in message.get("tool_calls") or ()]
    if calls:
        written["calls"] = [
            {"name": call.get("name"), "arguments": call.get("arguments")} for call in calls
        ]
    return _write_json(written)


def _read_content(content: Any) -> str:
    """The text of a message's content; of parts those that are text."""
    if isinstance(content, Sequence) and not isinstance(content, str):
        parts = [one.get("text") for one in content if isinstance(one, Mapping)]
        return "\n".join(part for part in parts if isinstance(part, str))
    return str(content or "")


def _write_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
