"""Searches for tools that a model makes, answered by the router in the words of its API.

`ContinuedAnswers` keeps what `previous_response_id` refers to if an answer was made of several.
"""

import json
import logging
import uuid
from collections import OrderedDict
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import anyio
import anyio.to_thread
import httpx2
import numpy as np

from assets.contracts.canonical import tool_text
from assets.vectors.lexical import BM25
from extensions.proxy.auto_tools import WireNames
from extensions.proxy.upstream import UpstreamFailed
from serving.discovery.functions import (
    ANTHROPIC,
    OPENAI,
    OfferedFunction,
    write_functions,
    write_native_answer,
)
from serving.index.model import IndexBroken, IndexMissing
from serving.ranking.query import BadQuery, ToolQuery
from serving.repair.tools import read_tool
from serving.router import ServedRouter
from warehouse.json_types import JsonObject

_MOST = 4_000  # characters of a question
_LIKE = 'expected an object with words, like {"tool": "send an email"}'
_READ = 8_000  # characters of a tool that are searched
NAMESPACE = "namespace"
_MOST_ANSWERS = 1_000  # answers that are remembered, the latest
_MOST_BYTES = 32_000_000  # of all their items together, as JSON
logger = logging.getLogger(__name__)
ITEM_ID = "tso_toolmill"  # how the ids of our items begin: an API that stores none is sent none
_THREADS = 4  # searches at once, over all requests
MOST_CALLS = 8  # searches of one answer
LAST = "That was the last search of this turn: go on with the tools that are loaded."
LIMIT = "no more searches in this turn; go on with the tools that are loaded, or answer in words"
_LENGTHS = (b"content-length", b"transfer-encoding")


class UnreadableSearch(ValueError):
    """Arguments that are no question, in one line for the model."""


def read_question(arguments: Any, k: int) -> ToolQuery:
    """The question of a search: `server` and `tool` where the arguments have them, else all their
    texts. arguments: an object, or the text of one. Raises UnreadableSearch."""
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            raise UnreadableSearch(f"the arguments of the search are no JSON; {_LIKE}") from None
    if not isinstance(arguments, Mapping):
        raise UnreadableSearch(f"the arguments of the search are no object; {_LIKE}")
    server, tool = (_read_text(arguments.get(name)) for name in ("server", "tool"))
    if server or tool:
        return ToolQuery(server=server or None, tool=tool or None, k=k)
    if not (words := _read_text(" ".join(_list_texts(arguments, 3)))):
        raise UnreadableSearch(f"the search holds no words; {_LIKE}")
    return ToolQuery(query=words, k=k)


def _read_text(value: Any) -> str:
    return " ".join(value[:_MOST].split()) if isinstance(value, str) else ""


def _list_texts(value: Any, depth: int) -> Iterator[str]:
    if isinstance(value, str):
        yield value[:_MOST]
    elif depth and isinstance(value, Mapping | list):
        for item in list(value.values() if isinstance(value, Mapping) else value)[:20]:
            yield from _list_texts(item, depth - 1)


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
            found = [item for item in inner if isinstance(item, Mapping)]
        else:
            holder, found = None, [tool]
        for one in found:
            if isinstance(one.get("name"), str):
                yield DeferredTool(one["name"], one, holder)


def write_definitions(found: list[DeferredTool]) -> list[dict[str, Any]]:
    """Definitions as an answer of OpenAI's holds them: each namespace once, with what was found of
    it."""
    results: list[dict[str, Any]] = []
    holders: dict[str, dict[str, Any]] = {}
    for item in found:
        if item.holder is None:
            results.append(dict(item.definition))
            continue
        name = str(item.holder.get("name"))
        if name not in holders:
            holders[name] = {**item.holder, "tools": []}
            results.append(holders[name])
        holders[name]["tools"].append(dict(item.definition))
    return results


def _write_text(one: DeferredTool) -> str:
    read = read_tool(one.definition)
    text = tool_text(read.contract) if read else one.name
    return f"{(one.holder or {}).get('name', '')}\n{one.name}\n{text}"[:_READ]


@dataclass(frozen=True)
class _ContinuedAnswer:
    response_id: str
    items: tuple[Any, ...]
    size: int


class ContinuedAnswers:
    """Answers whose id or items the upstream knows otherwise, for one event loop: a client of a
    stream was told the id of its first answer, and the outputs of the last searches were never
    sent on. most, most_bytes: what is remembered, the latest; an answer whose items alone are more
    is not."""

    def __init__(self, most: int = _MOST_ANSWERS, most_bytes: int = _MOST_BYTES) -> None:
        self._known: OrderedDict[str, _ContinuedAnswer] = OrderedDict()
        self._most, self._most_bytes, self._size = most, most_bytes, 0

    def note_answer(self, shown: Any, last: Any, items: Sequence[Any]) -> None:
        """shown: the id as the client has it; last: of the upstream's last answer. items: outputs
        that it lacks."""
        if not (isinstance(shown, str) and isinstance(last, str) and (items or shown != last)):
            return
        self._forget(shown)
        size = len(shown) + len(last) + len(json.dumps(items))
        if size > self._most_bytes:
            return
        self._known[shown] = _ContinuedAnswer(last, tuple(items), size)
        self._size += size
        while len(self._known) > self._most or self._size > self._most_bytes:
            self._forget(next(iter(self._known)))

    def _forget(self, shown: str) -> None:
        if (known := self._known.pop(shown, None)) is not None:
            self._size -= known.size

    def resume_request(self, body: JsonObject) -> JsonObject:
        """The request in the upstream's words."""
        previous = body.get("previous_response_id")
        known = self._known.get(previous) if isinstance(previous, str) else None
        if known is None:
            return body
        given = body.get("input")
        said = [{"role": "user", "content": given}] if isinstance(given, str) else given
        items = [*known.items, *(said if isinstance(said, list) else [])]
        return {**body, "previous_response_id": known.response_id, "input": items}


@dataclass(frozen=True)
class SearchAnswer:
    """item: the answer for the conversation. tools: definitions that were found, as functions of
    the API. tool_ids: name on the wire -> tool id, of those of the index. error: what the model is
    told went wrong, "" where nothing did."""

    item: dict[str, Any]
    tools: list[Mapping[str, Any]] = field(default_factory=list)
    tool_ids: dict[str, str] = field(default_factory=dict)
    error: str = ""


class ToolSearch:
    """Answers searches: among the request's own deferred tools where it has any, else in the index.

    k: tools of an answer, at most. rounds: answers of a model in one request that may search.
    timeout_s: of one search; what takes longer is told to the model as an error.
    """

    def __init__(
        self,
        served: ServedRouter | None = None,
        k: int = 10,
        rounds: int = 4,
        timeout_s: float = 10.0,
    ) -> None:
        self._served, self._k, self.rounds, self._timeout_s = served, k, rounds, timeout_s
        self.continued = ContinuedAnswers()
        self._threads, self._names = anyio.CapacityLimiter(_THREADS), WireNames()

    async def answer_search(
        self,
        api: str,
        own: OwnTools,
        call_id: str,
        arguments: Any,
        count: Callable[[str], None] = lambda outcome: None,
    ) -> SearchAnswer:
        """Never raises for what a model wrote or an index lacks. count: notes found, none or
        failed."""
        try:
            ask = read_question(arguments, self._k)
            with anyio.fail_after(self._timeout_s):
                result = await anyio.to_thread.run_sync(
                    self._search_tools,
                    *(api, own, call_id, ask),
                    abandon_on_cancel=True,
                    limiter=self._threads,
                )
        except TimeoutError:
            why = f"the search took longer than {self._timeout_s:g} s"
            result = refuse_search(api, call_id, f"{why}; ask again, or go on without")
        except (UnreadableSearch, BadQuery) as error:
            result = refuse_search(api, call_id, str(error))
        except Exception as error:
            logger.warning("a tool search failed: %s", error)
            result = refuse_search(api, call_id, "the search is out of order; go on without it")
        count("failed" if result.error else "found" if result.tools else "none")
        return result

    def find_called(self, names: Sequence[str]) -> list[OfferedFunction]:
        """The tools of the index that earlier calls of a conversation name."""
        try:
            router = self._served.current() if self._served and names else None
        except (IndexMissing, IndexBroken):
            router = None
        if router is None:
            return []
        index, places = router.index, self._names.find_places(router, names)
        named = [(index.tools[place].tool_id, index.contract(place)) for place in places]
        return [*write_functions(named).values()]

    def _search_tools(self, api: str, own: OwnTools, call_id: str, ask: ToolQuery) -> SearchAnswer:
        if own.tools:
            words = " ".join(filter(None, (ask.server, ask.tool, ask.query)))
            found = own.find_tools(words, self._k)
            if api == OPENAI:
                item = write_output(call_id, write_definitions(found))
            else:
                names = [{"type": "tool_reference", "tool_name": tool.name} for tool in found]
                item = write_result(call_id, names)
            return SearchAnswer(item, [tool.definition for tool in found])
        if self._served is None:
            why = "the request has no deferred tools, and the proxy no index to search"
            return refuse_search(api, call_id, why)
        try:
            router = self._served.current()
        except (IndexMissing, IndexBroken) as error:
            logger.warning("%s", error)
            return refuse_search(api, call_id, "the index of tools cannot be read; go on without")
        native_answer = write_native_answer(api, router, router.find(ask).hits, call_id)
        item = native_answer["item"]
        if api == OPENAI:
            item["id"] = make_item_id()
            return SearchAnswer(item, item["tools"], native_answer["tool_ids"])
        return SearchAnswer(item, native_answer["tools"], native_answer["tool_ids"])


def refuse_search(api: str, call_id: str, why: str) -> SearchAnswer:
    """A search that found nothing, for this reason."""
    if api == ANTHROPIC:
        text = [{"type": "text", "text": f"Tool search: {why}."}]
        return SearchAnswer({**write_result(call_id, text), "is_error": True}, error=why)
    return SearchAnswer(write_output(call_id, []), error=why)


def write_output(call_id: str, tools: list[dict[str, Any]]) -> dict[str, Any]:
    """The item of the Responses API."""
    head = {"type": "tool_search_output", "id": make_item_id(), "call_id": call_id}
    return {**head, "execution": "client", "status": "completed", "tools": tools}


def write_result(call_id: str, content: list[dict[str, Any]]) -> dict[str, Any]:
    """The block of the Messages API; a result without content would be refused."""
    nothing = [{"type": "text", "text": "No tool was found."}]
    return {"type": "tool_result", "tool_use_id": call_id, "content": content or nothing}


def make_item_id() -> str:
    """A new id of an item of ours."""
    return f"{ITEM_ID}_{uuid.uuid4().hex}"


Ask = Callable[[bytes], Awaitable[httpx2.Response]]


@asynccontextmanager
async def open_rounds(
    opened: Callable[[bytes], AbstractAsyncContextManager[httpx2.Response]],
    body: bytes,
    find_last: Callable[[httpx2.Response, Ask], Awaitable[httpx2.Response]],
    iterate_last: Callable[[httpx2.Response, Ask], AsyncGenerator[bytes]],
) -> AsyncIterator[httpx2.Response]:
    """The answer to a request that is asked again after each search: as a whole, or its events.
    opened: the answer of the upstream to a body."""
    async with AsyncExitStack() as stack:

        async def ask(sent: bytes) -> httpx2.Response:
            await stack.aclose()
            return await stack.enter_async_context(opened(sent))

        response = await ask(body)
        if not is_readable(response):
            yield response
        elif response.headers.get("content-type", "").startswith("text/event-stream"):
            parts = iterate_last(response, ask)
            try:
                yield rewrite_response(response, parts)
            finally:
                await parts.aclose()
        else:
            yield await find_last(response, ask)


async def read_whole(response: httpx2.Response, most: int) -> bytes:
    """The body. Raises UpstreamFailed for one of more than `most` bytes."""
    parts, size = [], 0
    async for part in response.aiter_raw():
        parts.append(part)
        size += len(part)
        if size > most:
            raise make_too_long(most)
    return b"".join(parts)


def make_too_long(most: int) -> UpstreamFailed:
    found = f"an answer with tool search is longer than {most} bytes"
    return UpstreamFailed(502, "upstream_too_long", f"{found}; ask for less")


def is_readable(response: httpx2.Response) -> bool:
    """Whether an answer can hold searches: no error, and not packed."""
    packed = response.headers.get("content-encoding", "identity") != "identity"
    return response.status_code == 200 and not packed


def check_stream(response: httpx2.Response) -> None:
    """Raises UpstreamFailed where a stream that has begun cannot go on with this answer."""
    kind = response.headers.get("content-type", "")
    if not (is_readable(response) and kind.startswith("text/event-stream")):
        found = f"the upstream answered {response.status_code} after a tool search"
        raise UpstreamFailed(502, "upstream_broken", f"{found}; try again")


def rewrite_response(
    response: httpx2.Response, content: bytes | AsyncIterator[bytes]
) -> httpx2.Response:
    """The same answer with another body."""
    headers = [item for item in response.headers.raw if item[0].lower() not in _LENGTHS]
    parts = _iterate(content) if isinstance(content, bytes) else content
    return httpx2.Response(response.status_code, headers=headers, content=parts)


async def _iterate(content: bytes) -> AsyncIterator[bytes]:
    yield content


def sum_usage(usages: Iterable[Any]) -> dict[str, Any]:
    """Counts of tokens together, those within objects too; of all else the last."""
    total: dict[str, Any] = {}
    for usage in usages:
        for key, value in usage.items() if isinstance(usage, Mapping) else ():
            before = total.get(key)
            if type(value) is int and type(before) is int:
                total[key] = before + value
            elif isinstance(value, Mapping):
                total[key] = sum_usage([before, value])
            elif value is not None or before is None:
                total[key] = value
    return total
