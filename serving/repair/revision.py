"""The rung `revise`: a model that rewrites a draft, and the prompt of every such model."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from assets.contracts.repair.problems import Problem
from assets.synthesis.prompts import read_prompt
from serving.repair.tools import ToolCandidate

MESSAGE = "message"  # the key of a problem that is words alone


@dataclass(frozen=True)
class RevisionRequest:
    """What a model is given. conversation: messages {role, content}. candidates: the tools that the
    draft may be meant for, likeliest first. name, arguments: the draft after the rungs before.
    problems: what validation says of it, [] where the tool itself is unknown."""

    conversation: Sequence[Mapping[str, Any]]
    candidates: Sequence[ToolCandidate]
    name: str
    arguments: Any
    problems: Sequence[Problem]


@dataclass(frozen=True)
class ProposedCall:
    """A rewritten call, or a question in place of one: what the user should say first."""

    name: str
    arguments: Any
    question: str | None = None


class ReviseCall(Protocol):
    """Rewrites a draft; None leaves it. What it returns is checked like any draft: a call that
    does not fit, whose required values neither conversation, draft nor contract holds, that
    confirms what the draft does not or lacks what guards it, is refused. An exception counts as
    None."""

    def __call__(self, request: RevisionRequest) -> ProposedCall | None: ...


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
    calls = [item.get("function", item) for item in message.get("tool_calls") or ()]
    if calls:
        written["calls"] = [
            {"name": call.get("name"), "arguments": call.get("arguments")} for call in calls
        ]
    return _write_json(written)


def _read_content(content: Any) -> str:
    """The text of a message's content; of parts those that are text."""
    if isinstance(content, Sequence) and not isinstance(content, str):
        parts = [item.get("text") for item in content if isinstance(item, Mapping)]
        return "\n".join(part for part in parts if isinstance(part, str))
    return str(content or "")


def _write_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
