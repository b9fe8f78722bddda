"""The deferred tools of one request: what its own client can run, and searches among them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from assets.contracts.canonical import tool_text
from assets.vectors.lexical import BM25
from serving.repair.tools import read_tool
from warehouse.json_types import JsonObject

_READ = 8_000  # characters of a tool that are searched
NAMESPACE = "namespace"


@dataclass(frozen=True)
class DeferredTool:
    """definition: as the request declares it. holder: the namespace it stands in, without its
    tools."""

    name: str
    definition: Mapping[str, Any]
    holder: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class OwnTools:
    """The tools of a request that wait with `defer_loading`, searched by their words."""

    tools: tuple[DeferredTool, ...] = field(default=())

    def find_tools(self, words: str, most: int) -> list[DeferredTool]:
        """Best first, those that share a word with the question."""
        scores = self._words.score(words)
        places = np.argsort(-scores, kind="stable")[:most].tolist()
        return [self.tools[place] for place in places if scores[place] > 0]

    @cached_property
    def _words(self) -> BM25:
        return BM25.build([_write_text(tool) for tool in self.tools], stemmed=True)


def read_own_tools(body: JsonObject) -> OwnTools:
    """The deferred tools of a request of either API, those in namespaces among them."""
    return OwnTools(
        tuple(tool for tool in list_tools(body) if tool.definition.get("defer_loading"))
    )


def list_tools(body: JsonObject) -> Iterator[DeferredTool]:
    """Every tool with a name, also out of namespaces."""
    tools = body.get("tools")
    for tool in tools if isinstance(tools, list) else []:
        if not isinstance(tool, Mapping):
            continue
        inner = tool.get("tools") if tool.get("type") == NAMESPACE else None
        if isinstance(inner, list):
            holder = {key: value for key, value in tool.items() if key != "tools"}
            found = [one for one in inner if isinstance(one, Mapping)]
        else:
            holder, found = None, [tool]
        for one in found:
            if isinstance(one.get("name"), str):
                yield DeferredTool(one["name"], one, holder)


def write_definitions(found: list[DeferredTool]) -> list[dict[str, Any]]:
    """Definitions as an answer of OpenAI's holds them: each namespace once, with what was found of
    it."""
    made: list[dict[str, Any]] = []
    holders: dict[str, dict[str, Any]] = {}
    for one in found:
        if one.holder is None:
            made.append(dict(one.definition))
            continue
        name = str(one.holder.get("name"))
        if name not in holders:
            holders[name] = {**one.holder, "tools": []}
            made.append(holders[name])
        holders[name]["tools"].append(dict(one.definition))
    return made


def _write_text(one: DeferredTool) -> str:
    read = read_tool(one.definition)
    text = tool_text(read.contract) if read else one.name
    return f"{(one.holder or {}).get('name', '')}\n{one.name}\n{text}"[:_READ]
