"""Searches for tools that a model makes, answered by the router in the words of its API."""

import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import anyio
import anyio.to_thread

from extensions.proxy.auto_tools import WireNames
from extensions.proxy.search.continued import ContinuedAnswers
from extensions.proxy.search.own_tools import OwnTools, write_definitions
from extensions.proxy.search.words import UnreadableSearch, join_words, read_question
from serving.discovery.functions import (
    ANTHROPIC,
    OPENAI,
    Offered,
    write_functions,
    write_native_answer,
)
from serving.index.model import IndexBroken, IndexMissing
from serving.ranking.query import Ask, BadQuery
from serving.router import ServedRouter

logger = logging.getLogger(__name__)

ITEM_ID = "tso_toolmill"  # how the ids of our items begin: an API that stores none is sent none
_THREADS = 4  # searches at once, over all requests

MOST_CALLS = 8  # searches of one answer
LAST = "That was the last search of this turn: go on with the tools that are loaded."
LIMIT = "no more searches in this turn; go on with the tools that are loaded, or answer in words"


@dataclass(frozen=True)
class Searched:
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
    ) -> Searched:
        """Never raises for what a model wrote or an index lacks. count: notes found, none or
        failed."""
        try:
            ask = read_question(arguments, self._k)
            with anyio.fail_after(self._timeout_s):
                made = await anyio.to_thread.run_sync(
                    self._search_tools,
                    *(api, own, call_id, ask),
                    abandon_on_cancel=True,
                    limiter=self._threads,
                )
        except TimeoutError:
            why = f"the search took longer than {self._timeout_s:g} s"
            made = refuse_search(api, call_id, f"{why}; ask again, or go on without")
        except (UnreadableSearch, BadQuery) as error:
            made = refuse_search(api, call_id, str(error))
        except Exception as error:
            logger.warning("a tool search failed: %s", error)
            made = refuse_search(api, call_id, "the search is out of order; go on without it")
        count("failed" if made.error else "found" if made.tools else "none")
        return made

    def find_called(self, names: Sequence[str]) -> list[Offered]:
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

    def _search_tools(self, api: str, own: OwnTools, call_id: str, ask: Ask) -> Searched:
        if own.tools:
            found = own.find_tools(join_words(ask), self._k)
            if api == OPENAI:
                tools = write_definitions(found)
                return Searched(write_output(call_id, tools), [one.definition for one in found])
            names = [{"type": "tool_reference", "tool_name": one.name} for one in found]
            return Searched(write_result(call_id, names), [one.definition for one in found])
        if self._served is None:
            why = "the request has no deferred tools, and the proxy no index to search"
            return refuse_search(api, call_id, why)
        try:
            router = self._served.current()
        except (IndexMissing, IndexBroken) as error:
            logger.warning("%s", error)
            return refuse_search(api, call_id, "the index of tools cannot be read; go on without")
        made = write_native_answer(api, router, router.find(ask).hits, call_id)
        item = made["item"]
        if api == OPENAI:
            item["id"] = make_item_id()
            return Searched(item, item["tools"], made["tool_ids"])
        return Searched(item, made["tools"], made["tool_ids"])


def refuse_search(api: str, call_id: str, why: str) -> Searched:
    """A search that found nothing, for this reason."""
    if api == ANTHROPIC:
        text = [{"type": "text", "text": f"Tool search: {why}."}]
        return Searched({**write_result(call_id, text), "is_error": True}, error=why)
    return Searched(write_output(call_id, []), error=why)


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
