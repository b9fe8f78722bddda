"""The tools that a call may be meant for: contracts in any shape, and which one a name means."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from assets.contracts.repair.names import find_nearest, find_same_name, fold_name
from assets.contracts.repair.problems import Problem
from assets.synthesis.prompts import read_prompt

_SCHEMAS = ("inputSchema", "input_schema", "parameters")
_CLIENTS = {"functions", "function", "tools", "tool", "mcp", "defaultapi", "api", "namespace"}
_TOKENS = re.compile(r"<\|[^|<>]{0,40}\|>")
_AFFIXES = ("tool", "function", "call")  # that models put before or behind a name
NEAREST = "the nearest by spelling"
_NEAREST = 3  # names that an answer about an unknown one lists


@dataclass(frozen=True)
class ToolCandidate:
    """contract: {name, description, inputSchema}. server: whose it is, if its list says so."""

    name: str
    contract: Mapping[str, Any]
    server: str | None = None


@dataclass(frozen=True)
class RepairToolset:
    candidates: tuple[ToolCandidate, ...]

    @cached_property
    def by_name(self) -> dict[str, list[ToolCandidate]]:
        result: dict[str, list[ToolCandidate]] = {}
        for candidate in self.candidates:
            result.setdefault(candidate.name, []).append(candidate)
        return result

    @cached_property
    def by_ending(self) -> dict[str, list[str]]:
        """Folded last part of a name -> the names that end with it."""
        result: dict[str, list[str]] = {}
        for name in self.by_name:
            result.setdefault(fold_name(split_name(name)[-1]), []).append(name)
        return result

    def find_named(self, name: str) -> tuple[list[ToolCandidate], str]:
        """(the candidates that a name means, how it was found: "" for the very name)."""
        if name in self.by_name:
            return self.by_name[name], ""
        if not name and len(self.by_name) == 1:
            [only] = self.by_name
            return self.by_name[only], "it is the only tool"
        if not name:
            return [], ""
        pieces = [_strip_marks(piece) for piece in _TOKENS.split(name)]
        bare = next((piece for piece in pieces if piece in self.by_name), pieces[0])
        if bare != name and bare in self.by_name:
            return self.by_name[bare], "without the marks around it"
        if (same := find_same_name(bare, self.by_name)) is not None:
            return self.by_name[same], "the same but for case and separators"
        name = bare
        for ending in dict.fromkeys((split_name(name)[-1], name)):
            if ending in self.by_name:
                return self.by_name[ending], "without what stands before it"
            for affix in _AFFIXES:
                inner = ending.removeprefix(f"{affix}_").removesuffix(f"_{affix}")
                if inner in self.by_name:
                    return self.by_name[inner], f"without {affix!r}"
            if ending.startswith(("mcp_", "mcp-")):  # the server's name stands between
                tails = [known for known in self.by_name if ending.endswith(f"_{known}")]
                if len(tails) == 1:
                    return self.by_name[tails[0]], "without what stands before it"
            meant = self.by_ending.get(fold_name(ending), [])
            if len(meant) == 1 and _is_ending(name, meant[0]):
                return self.by_name[meant[0]], "the only one that ends so"
        if (near := find_nearest(name, self.by_name)) is not None:
            return self.by_name[near], NEAREST
        return [], ""

    def list_similar(self, name: str) -> list[str]:
        """The names that share most words with one that is unknown."""
        words = set(re.findall(r"[a-z0-9]+", name.lower().replace("_", " ")))
        scored = [
            (-len(words & set(re.findall(r"[a-z0-9]+", item.lower().replace("_", " ")))), item)
            for item in self.by_name
        ]
        return [one for score, one in sorted(scored)[:_NEAREST] if score < 0]


def read_toolset(tools: "RepairToolset | Iterable[Any]") -> RepairToolset:
    """The tools of a request: OpenAI (Chat or Responses), Anthropic, MCP, rows of ours. What is
    no tool is left out; a tool without a schema takes no arguments."""
    if isinstance(tools, RepairToolset):
        return tools
    return RepairToolset(tuple(one for tool in tools if (one := read_tool(tool)) is not None))


def read_tool(tool: Any) -> ToolCandidate | None:
    if isinstance(tool, ToolCandidate):
        return tool
    if not isinstance(tool, Mapping):
        return None
    server = next((tool[k] for k in ("server_id", "server") if isinstance(tool.get(k), str)), None)
    for key in ("function", "contract"):
        if isinstance(tool.get(key), Mapping):
            tool = tool[key]
    name = tool.get("name")
    if not isinstance(name, str) or not name:
        return None
    schema = next((tool[key] for key in _SCHEMAS if isinstance(tool.get(key), Mapping)), None)
    contract = {
        "name": name,
        "description": str(tool.get("description") or ""),
        "inputSchema": schema if schema is not None else {"type": "object", "properties": {}},
    }
    return ToolCandidate(name, contract, server)


def _is_ending(name: str, other: str) -> bool:
    """Whether one of two names ends with all parts of the other, what clients put before every
    name aside: `notes.delete` and `files.delete` are tools of two servers."""
    ours, theirs = ([fold_name(part) for part in split_name(item)] for item in (name, other))
    while len(ours) > 1 and ours[0] in _CLIENTS:
        ours = ours[1:]
    shared = min(len(ours), len(theirs))
    return ours[-shared:] == theirs[-shared:]


def _strip_marks(name: str) -> str:
    """A name without the marks of models: `functions.x:0`, quotes, `x()`, template tokens."""
    bare = name.strip(" \t\n`'\"*<>[]{}:,.")
    bare = bare.removesuffix("()")
    head, colon, number = bare.rpartition(":")
    return head if colon and number.isdigit() else bare


def split_name(name: str) -> Sequence[str]:
    """The parts of a name that a client put together: `mcp__files__read`, `functions.read`."""
    return [part for part in re.split(r"__+|::|[./:]", name) if part] or [name]


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
    """Rewrites a draft; None, or an exception, leaves it. The result is refused if it does not fit,
    invents required values, confirms more, or lacks a guard of the draft."""

    def __call__(self, request: RevisionRequest) -> ProposedCall | None: ...


_FOLDER = Path(__file__).parent / "prompts"


def make_revision_messages(request: RevisionRequest) -> list[dict[str, str]]:
    """A request's chat messages; others' words stand in JSON lines, which no text can end."""
    return read_prompt("revise", _FOLDER).make_messages(
        conversation="\n".join(map(_write_message, request.conversation)) or "none",
        draft=_write_json({"name": request.name, "arguments": request.arguments}),
        problems="\n".join(map(_write_json, _list_problems(request))) or "nothing that shows",
    )


def write_problem(problem: Problem) -> str:
    if "message" in problem:
        return str(problem["message"])
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
    if isinstance(content, Sequence) and not isinstance(content, str):
        parts = [item.get("text") for item in content if isinstance(item, Mapping)]
        return "\n".join(part for part in parts if isinstance(part, str))
    return str(content or "")


def _write_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
