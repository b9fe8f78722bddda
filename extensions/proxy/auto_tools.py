"""`tools: "auto"`: the router picks the tools of a request, again for each turn."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from assets.vectors.encoders.embedder import embed_queries
from extensions.proxy.calls import list_user_messages
from extensions.proxy.exchange import list_dicts
from serving.discovery.functions import OfferedFunction, keep_callable, write_functions
from serving.index.model import IndexBroken, IndexMissing
from serving.ranking.query import BadQuery, ToolQuery
from serving.router import Router, ServedRouter
from warehouse.json_types import JsonObject
from warehouse.llm.chat import write_wire_name

AUTO = "auto"
_MOST_CALLED = 20  # tools of earlier calls that stay offered, the latest


class NotChosen(ValueError):
    """No tools can be picked for a request, in one line."""


@dataclass(frozen=True)
class ToolChoice:
    """body: the request with its tools. tool_ids: name on the wire -> tool id of those picked."""

    body: JsonObject
    tool_ids: dict[str, str]


def asks_for_tools(body: Any) -> bool:
    """Whether a request leaves tools to the router: `tools` is "auto", or a list with "auto"."""
    tools = body.get("tools") if isinstance(body, Mapping) else None
    return tools == AUTO or (isinstance(tools, list) and AUTO in tools)


class WireNames:
    """The tools of a served index by their names on the wire."""

    def __init__(self) -> None:
        self._places: tuple[str, dict[str, int]] = ("", {})

    def find_places(self, router: Router, names: Sequence[str]) -> Iterator[int]:
        """The places of the tools with these names, as far as they may be shown."""
        if not names:
            return
        version, places = self._places
        if version != router.index.version:
            listed = enumerate(router.index.tools)
            places = {write_wire_name(tool.tool_id): at for at, tool in listed}
            self._places = (router.index.version, places)
        for name in names:
            if name in places and router.may_answer(places[name]):
                yield places[name]


class ToolChooser:
    """Picks tools from whatever index is served. k: how many at most, beside those that were called
    before in the conversation."""

    def __init__(self, served: ServedRouter, k: int = 10) -> None:
        self._served, self._k, self._names = served, k, WireNames()

    def choose_tools(self, body: JsonObject) -> ToolChoice:
        """The request with functions in its API's shape in the place of "auto": what suits the last
        message of the user, and what was called before. Raises NotChosen."""
        try:
            router = self._served.current()
        except (IndexMissing, IndexBroken) as error:
            raise NotChosen(str(error)) from None
        words = list(_list_words(list_user_messages(body)))
        if not words:
            raise NotChosen('tools: "auto" needs a message of the user in words')
        ask = ToolQuery(query=words[-1], context=" ".join(words[:-1])[-1000:] or None, k=self._k)
        try:
            hits = keep_callable(router.find(ask).hits)
        except BadQuery as error:
            raise NotChosen(f'tools: "auto": {error}') from None
        places = self._names.find_places(router, [*_list_call_names(body)])
        called = list(dict.fromkeys(places))[-_MOST_CALLED:]
        index = router.index
        found = {hit.tool_id: index.place_of(hit.tool_id) for hit in hits}
        found |= {index.tools[place].tool_id: place for place in called}
        offered = write_functions(
            (name, index.contract(place)) for name, place in found.items() if place is not None
        )
        return _write_body(body, list(offered.values()))

    def embed_texts(self, texts: Sequence[str]) -> np.ndarray:
        """Unit vectors by the encoder of the index that is served."""
        return embed_queries(self._served.current().encoder, texts)


def _list_words(messages: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    for message in messages:
        content = message.get("content")
        parts = [{"text": content}] if isinstance(content, str) else content
        listed = parts if isinstance(parts, list) else []
        texts = [item.get("text") for item in listed if isinstance(item, Mapping)]
        if words := " ".join(text for text in texts if isinstance(text, str)).strip():
            yield words


def _list_call_names(body: JsonObject) -> Iterator[str]:
    """The names that earlier calls of the conversation give, of either API."""
    given = body.get("messages", body.get("input"))
    for message in given if isinstance(given, list) else []:
        if not isinstance(message, dict):
            continue
        calls = [item.get("function") for item in list_dicts(message, "tool_calls")]
        if message.get("type") == "function_call":
            calls.append(message)
        for call in calls:
            if isinstance(call, dict) and isinstance(call.get("name"), str):
                yield call["name"]


def _write_body(body: JsonObject, offered: Sequence[OfferedFunction]) -> ToolChoice:
    """The request with functions in the shape of its API; without any, an API takes neither `tools`
    nor `tool_choice`."""
    flat = "messages" not in body
    given = body["tools"] if isinstance(body["tools"], list) else []
    own = [item for item in given if item != AUTO]
    names = {_read_name(item) for item in own}
    picked = [item for item in offered if item.wire not in names]
    tools = [*own, *(_write_tool(item, flat) for item in picked)]
    made = {key: value for key, value in body.items() if key not in ("tools", "tool_choice")}
    if tools:
        made["tools"] = tools
        made |= {"tool_choice": body["tool_choice"]} if "tool_choice" in body else {}
    return ToolChoice(made, {item.wire: item.tool_id for item in picked})


def _read_name(tool: Any) -> Any:
    inner = tool.get("function", tool) if isinstance(tool, Mapping) else {}
    return inner.get("name") if isinstance(inner, Mapping) else None


def _write_tool(one: OfferedFunction, flat: bool) -> dict[str, Any]:
    if not flat:
        return one.function
    return {"type": "function", **one.function["function"], "strict": False}
