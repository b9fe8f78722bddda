"""A request made ready: tools picked, examples put in, and what its answer is held against."""

import json
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import anyio
import anyio.to_thread

from extensions.proxy.auto_tools import Chosen, NotChosen, asks_for_tools
from extensions.proxy.calls import CallRepair
from extensions.proxy.examples.book import ExampleBook, write_example_text
from extensions.proxy.exchange import Refused
from extensions.proxy.local.requests import read_content
from extensions.proxy.metrics import Metrics
from extensions.proxy.offer import Offer, ToolsRefused, read_offer
from extensions.proxy.parts import ProxyParts
from extensions.proxy.search.anthropic_search import MessagesSearch, has_custom_search
from extensions.proxy.search.openai_search import ResponsesSearch, drop_own_ids, has_client_search
from extensions.proxy.settings import ProxySettings
from extensions.proxy.upstream import Headers
from warehouse.json_types import JsonObject

CHAT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/responses", "/v1/messages"


@dataclass(frozen=True)
class Prepared:
    """body: to send on. repair: what its calls are judged by, None where nothing is to be judged,
    and what the upstream says of it is its answer. search: answers its searches for tools."""

    body: bytes
    repair: CallRepair | None = None
    search: ResponsesSearch | MessagesSearch | None = None


class Preparation:
    """Makes requests ready, for one event loop."""

    def __init__(self, settings: ProxySettings, metrics: Metrics, parts: ProxyParts) -> None:
        self._settings, self._metrics, self._parts = settings, metrics, parts

    async def prepare_request(self, path: str, body: bytes, headers: Headers) -> Prepared:
        """A request to one of the three paths above. Raises Refused."""
        try:
            found = json.loads(body)
            if path == MESSAGES:
                return await self._prepare_messages(found, body, headers)
            return await self._prepare_repair(path, found, body, headers)
        except ToolsRefused as error:
            raise Refused(400, "too_many_tools", str(error)) from None
        except (ValueError, RecursionError, AttributeError):
            return Prepared(body)

    async def _prepare_messages(self, found: JsonObject, body: bytes, headers: Headers) -> Prepared:
        offer, search = read_offer(found, self._settings.max_tools), self._parts.search
        if offer is None:
            return Prepared(body)
        repair = self._begin_repair(offer, headers)
        if search is None or not has_custom_search(found):
            return Prepared(body, repair)
        count = partial(self._count_outcome, "tool_searches")
        made = await anyio.to_thread.run_sync(MessagesSearch, search, found, repair, count)
        return Prepared(body, repair, made)

    async def _prepare_repair(
        self, path: str, found: Any, body: bytes, headers: Headers
    ) -> Prepared:
        chosen, search = dict[str, str](), self._parts.search
        if asks_for_tools(found):
            picked = await self._choose_tools(found)
            found, chosen = picked.body, picked.tool_ids
            body = _write_body(found)
        if search is not None and path == RESPONSES:
            resumed = search.continued.resume_request(found)
            body = body if resumed is found else _write_body(resumed)
            found = resumed
        searches = search is not None and path == RESPONSES and has_client_search(found)
        offer = read_offer(found, self._settings.max_tools, empty=searches)
        if offer is None:
            return Prepared(body)
        if searches:
            found = drop_own_ids(found)
            body = _write_body(found)
        if self._parts.examples is not None:
            add = partial(add_examples, found, offer, self._parts.examples)
            found = await anyio.to_thread.run_sync(add)
            body = _write_body(found)
        repair = self._begin_repair(replace(offer, chosen=chosen), headers)
        if search is None or not searches:
            return Prepared(body, repair)
        count = partial(self._count_outcome, "tool_searches")
        return Prepared(body, repair, ResponsesSearch(search, found, repair, count))

    def _begin_repair(self, offer: Offer, headers: Headers) -> CallRepair:
        revising, reviser = None, self._parts.reviser
        if reviser is not None:
            revising = reviser.begin_request(headers, partial(self._count_outcome, "calls_revised"))
        return CallRepair(offer, self._settings.history, revising)

    def _count_outcome(self, name: str, outcome: str) -> None:
        self._metrics.count(name, f'outcome="{outcome}"')

    async def _choose_tools(self, body: Any) -> Chosen:
        if self._parts.chooser is None:
            reason = 'tools: "auto" needs an index to pick from; start the proxy with --index'
            raise Refused(400, "no_index", reason)
        try:
            return await anyio.to_thread.run_sync(self._parts.chooser.choose_tools, body)
        except NotChosen as error:
            raise Refused(400, "no_tools_chosen", str(error)) from None


def add_examples(body: JsonObject, offer: Offer, book: ExampleBook) -> JsonObject:
    """The request with accepted calls of like requests before it, as a system message (chat) or at
    the end of `instructions` (Responses): as calls they would want results beside them."""
    texts = [read_content(user_message.get("content")) for user_message in offer.user_messages]
    contracts = {candidate.name: candidate.contract for candidate in offer.toolset.candidates}
    found = book.find_like(texts[-1] if texts else "", contracts)
    made = dict(body)
    if found and isinstance(body.get("messages"), list):
        message = {"role": "system", "content": write_example_text(found)}
        made["messages"] = [message, *body["messages"]]
    elif found:
        before = body.get("instructions")
        parts = [before] if isinstance(before, str) and before else []
        made["instructions"] = "\n\n".join([*parts, write_example_text(found)])
    return made


def _write_body(body: JsonObject) -> bytes:
    return json.dumps(body).encode()  # half a surrogate pair is no UTF-8
