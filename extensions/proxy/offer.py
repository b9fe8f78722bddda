"""What one request offers and says: its functions, and the words of its user."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from extensions.proxy.events import list_dicts
from serving.repair.tools import Toolset, read_toolset
from warehouse.json_types import JsonObject


class ToolsRefused(ValueError):
    """The tools of a request cannot be used, in one line."""


@dataclass(frozen=True)
class Offer:
    """What a request offers and says. toolset: its functions with parameters. unjudged: names of
    those without. user_messages: no others are evidence of a value, for texts of third parties
    stand in them. chosen: name -> tool id of what the router picked."""

    toolset: Toolset
    unjudged: frozenset[str] = frozenset()
    user_messages: list[Mapping[str, Any]] = field(default_factory=list)
    chosen: Mapping[str, str] = field(default_factory=dict)

    def extend(self, tools: Iterable[Any], tool_ids: Mapping[str, str]) -> "Offer":
        """The same with functions that were found for it, name -> tool id of those of the index."""
        judged, unjudged = _sort_functions(tools)
        known, new = {name: [*of] for name, of in self.toolset.by_name.items()}, []
        for candidate in read_toolset(judged).candidates:
            same = known.setdefault(candidate.name, [])
            if candidate not in same:
                same.append(candidate)
                new.append(candidate)
        return replace(
            self,
            toolset=Toolset((*self.toolset.candidates, *new)),
            unjudged=self.unjudged | unjudged,
            chosen={**self.chosen, **tool_ids},
        )

    def has(self, name: str) -> bool:
        """Whether a function of this very name is offered."""
        return name in self.toolset.by_name or name in self.unjudged


def read_offer(body: JsonObject, most: int, *, empty: bool = False) -> Offer | None:
    """The functions of a request of any API, and what its user says; None without functions, unless
    `empty`. Those in namespaces, and those that earlier tool searches of the conversation
    found, are offered too. Raises ToolsRefused for more than `most` tools."""
    tools = body.get("tools")
    if not isinstance(tools, list):
        return None
    listed = [*_list_flat(tools)]
    if len(listed) > most:
        raise ToolsRefused(f"the request has {len(listed)} tools, allowed are {most}; send fewer")
    offer = Offer(Toolset(()), user_messages=list_user_messages(body)).extend(listed, {})
    if earlier := [*islice(_list_found(body), most)]:
        offer = offer.extend(earlier, {})
    found = offer.toolset.candidates or offer.unjudged
    return offer if found or empty else None


def _list_found(body: JsonObject) -> Iterator[Any]:
    for item in list_dicts(body, "input"):
        if item.get("type") == "tool_search_output":
            yield from _list_flat(item.get("tools"))


def _list_flat(tools: Any) -> Iterator[Any]:
    """Tools, in the place of a namespace those that it holds."""
    for tool in tools if isinstance(tools, list) else []:
        if isinstance(tool, Mapping) and tool.get("type") == "namespace":
            inner = tool.get("tools")
            yield from inner if isinstance(inner, list) else []
        else:
            yield tool


def _sort_functions(tools: Iterable[Any]) -> tuple[list[Any], frozenset[str]]:
    """(functions with parameters, names of those without, and of tools that Anthropic defines)."""
    judged, unjudged = [], set[str]()
    for tool in tools:
        if not isinstance(tool, Mapping):
            continue
        kind, inner = tool.get("type") or "custom", tool.get("function", tool)
        if not isinstance(inner, Mapping) or not isinstance(inner.get("name"), str):
            continue
        if kind == "custom" and "input_schema" not in tool:  # OpenAI's, which takes any text
            continue
        schema = {"function": "parameters", "custom": "input_schema"}.get(str(kind))
        if isinstance(inner.get(schema), Mapping):
            judged.append(tool)
        else:
            unjudged.add(inner["name"])
    return judged, frozenset(unjudged)


def list_user_messages(body: JsonObject) -> list[Mapping[str, Any]]:
    """The user's messages, of `messages` (chat, Messages) or `input` (Responses); without
    the results of tools that stand in Anthropic's too."""
    given = body.get("messages", body.get("input"))
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    listed = given if isinstance(given, list) else []
    said = [one for one in listed if isinstance(one, Mapping) and one.get("role") == "user"]
    return [{**one, "content": _drop_results(one.get("content"))} for one in said]


def _drop_results(content: Any) -> Any:
    if not isinstance(content, list):
        return content
    return [one for one in content if not (isinstance(one, Mapping) and _is_result(one))]


def _is_result(part: Mapping[str, Any]) -> bool:
    return str(part.get("type")).endswith("_result")
