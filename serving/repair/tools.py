"""The tools that a call may be meant for: contracts in any shape, and which one a name means."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from assets.contracts.repair.names import find_nearest, find_same_name, fold_name

_SCHEMAS = ("inputSchema", "input_schema", "parameters")
_CLIENTS = {"functions", "function", "tools", "tool", "mcp", "defaultapi", "api", "namespace"}
_NEAREST = 3  # names that an answer about an unknown one lists


@dataclass(frozen=True)
class ToolCandidate:
    """A tool that may be called. contract: {name, description, inputSchema}. server: whose it is,
    None where its list does not say."""

    name: str
    contract: Mapping[str, Any]
    server: str | None = None


@dataclass(frozen=True)
class RepairToolset:
    """The candidates of one request, in their order."""

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
        if (same := find_same_name(name, self.by_name)) is not None:
            return self.by_name[same], "the same but for case and separators"
        part = split_name(name)[-1]
        for ending in dict.fromkeys((part, name)):
            if ending in self.by_name:
                return self.by_name[ending], "without what stands before it"
            meant = self.by_ending.get(fold_name(ending), [])
            if len(meant) == 1 and _is_ending(name, meant[0]):
                return self.by_name[meant[0]], "the only one that ends so"
        if (near := find_nearest(name, self.by_name)) is not None:
            return self.by_name[near], "the nearest by spelling"
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
    """One tool; None for what is none."""
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


def split_name(name: str) -> Sequence[str]:
    """The parts of a name that a client put together: `mcp__files__read`, `functions.read`."""
    return [part for part in re.split(r"__+|::|[./:]", name) if part] or [name]
