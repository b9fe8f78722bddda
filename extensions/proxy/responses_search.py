"""One request of the Responses API whose model searches for tools: asked again with what was found,
until the model goes on without a search. The client sees one answer with all items in it.

Source of the form: "client-executed tool search" of
https://developers.openai.com/api/docs/guides/tools-tool-search, and the types of the openai SDK.
"""

import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any

import httpx2

from extensions.proxy.calls import CallRepair
from extensions.proxy.exchange import StreamEvent, list_dicts, read_events, read_object, write_event
from extensions.proxy.local_forms import list_item_events
from extensions.proxy.tool_search import (
    ITEM_ID,
    LAST,
    LIMIT,
    MOST_CALLS,
    Ask,
    OwnTools,
    SearchAnswer,
    ToolSearch,
    check_stream,
    is_readable,
    open_rounds,
    read_own_tools,
    read_whole,
    refuse_search,
    rewrite_response,
    sum_usage,
)
from extensions.proxy.upstream import Headers, OpenAnswer
from serving.discovery.functions import OPENAI
from warehouse.json_types import JsonObject

_ENDS = ("response.completed", "response.incomplete", "response.failed")
_BEGINNINGS = ("response.created", "response.queued", "response.in_progress")
# What the client itself has to answer before the model can go on.
_ASKS_CLIENT = ("function_call", "custom_tool_call", "computer_call", "local_shell_call")
_ASKS_CLIENT += ("shell_call", "apply_patch_call", "mcp_approval_request")


def has_client_search(body: JsonObject) -> bool:
    """Whether a request leaves searches for tools to its client."""
    return any(
        item.get("type") == "tool_search" and item.get("execution") == "client"
        for item in list_dicts(body, "tools")
    )


def drop_own_ids(body: JsonObject) -> JsonObject:
    """The request without the ids of items that we made: its API knows none of them."""
    given = body.get("input")
    if not isinstance(given, list):
        return body
    return {**body, "input": [_drop_id(item) for item in given]}


class ResponsesSearch:
    """The searches of one request. repair: of its calls, which learns what was found. count: notes
    the outcome of each. most: bytes of an answer."""

    def __init__(
        self,
        search: ToolSearch,
        body: JsonObject,
        repair: CallRepair,
        count: Callable[[str], None],
        most: int,
    ) -> None:
        self._search, self._body, self._repair, self._count = search, body, repair, count
        self._most = most
        self._own: OwnTools = read_own_tools(body)
        self._before: list[dict[str, Any]] = []  # items of the answers before this one
        self._usages: list[Any] = []
        self._unsent: list[dict[str, Any]] = []  # outputs that the upstream does not know
        self._shown: Any = None  # id of a stream, which must not change: its client would stop
        self._told: list[str] = []  # what went wrong in the searches of this answer
        self._round = self._number = 0

    def open_answer(
        self, answers: OpenAnswer, method: str, rest: str, headers: Headers, body: bytes
    ) -> AbstractAsyncContextManager[httpx2.Response]:
        """As `Upstream.open_answer`. Raises UpstreamFailed."""
        opened = partial(answers.open_answer, method, rest, headers)
        return open_rounds(opened, body, self._merge_wholes, self._merge_streams)

    async def _merge_wholes(self, response: httpx2.Response, ask: Ask) -> httpx2.Response:
        while True:
            raw = await read_whole(response, self._most)
            found = read_object(raw)
            if found is None or (not (calls := self._list_searches(found)) and not self._before):
                return rewrite_response(response, raw)
            goes_on = bool(calls) and await self._answer_calls(found, calls)
            self._usages.append(found.get("usage"))
            if not goes_on:
                return rewrite_response(response, json.dumps(self._merge_body(found)).encode())
            response = await ask(self._write_next())
            if not is_readable(response):
                return response

    async def _merge_streams(self, response: httpx2.Response, ask: Ask) -> AsyncGenerator[bytes]:
        while True:
            begun, end, items = len(self._before), None, []
            async for event in read_events(response.aiter_raw(), self._most):
                kind = str((event.data or {}).get("type"))
                if kind in _ENDS:
                    end = event
                    break
                if kind == "response.output_item.done":
                    items.append((event.data or {}).get("item"))
                if kind in _BEGINNINGS and self._shown is None:
                    self._shown = _read_id(event)
                if not (begun and kind in _BEGINNINGS):
                    yield self._renumber(event, begun)
            body = (end.data or {}).get("response") if end else None
            if end is None or end.data is None or not isinstance(body, dict):
                if end is not None:
                    yield end.raw
                return
            listed = list_dicts(body, "output") or [
                item for item in items if isinstance(item, dict)
            ]
            body["output"] = listed
            calls, goes_on = self._list_searches(body), False
            if calls:
                at = begun + len(listed)
                goes_on = await self._answer_calls(body, calls)
                for place, item in enumerate(self._before[at:], at):
                    for data in list_item_events(place, item):
                        yield self._encode(data)
            self._usages.append(body.get("usage"))
            if not goes_on:
                if self._before:
                    made = self._merge_body(body)
                    end.data["response"] = {**made, "id": self._shown or made.get("id")}
                yield self._renumber(end, 0) if self._before else end.raw
                return
            response = await ask(self._write_next())
            check_stream(response)

    def _list_searches(self, body: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The calls of this answer that are ours to answer."""
        if body.get("status") not in (None, "completed"):
            return []
        items = list_dicts(body, "output")
        answered = {
            str(item.get("call_id")) for item in items if item.get("type") == "tool_search_output"
        }
        return [
            item
            for item in items
            if item.get("type") == "tool_search_call"
            and item.get("execution") != "server"
            and isinstance(item.get("call_id"), str)
            and item["call_id"] not in answered
        ]

    async def _answer_calls(self, body: Mapping[str, Any], calls: list[dict[str, Any]]) -> bool:
        """Notes the items of this answer and of its searches; whether the model is asked again."""
        self._round += 1
        over = self._round > self._search.rounds
        self._before += list_dicts(body, "output")
        self._told, self._unsent = [], []
        for at, call in enumerate(calls):
            if over or at >= MOST_CALLS:
                made = refuse_search(OPENAI, call["call_id"], LIMIT)
                self._count("refused")
            else:
                given = call["call_id"], call.get("arguments")
                made = await self._search.answer_search(OPENAI, self._own, *given, self._count)
            self._note(call["call_id"], made)
        if self._round == self._search.rounds:
            self._told.append(LAST)
        waits = any(item.get("type") in _ASKS_CLIENT for item in list_dicts(body, "output"))
        return not over and not waits

    def _note(self, call_id: str, made: SearchAnswer) -> None:
        self._before.append(made.item)
        self._unsent.append(_drop_id(made.item))
        if made.error:
            self._told.append(f"Tool search {call_id[:80]}: {made.error}.")
        names = [str(tool.get("name")) for tool in made.tools]
        note = {"error": made.error} if made.error else {"tools": names}
        self._repair.note_search(made.tools, made.tool_ids, {"call": call_id, **note})

    def _write_next(self) -> bytes:
        """The request that goes on: what was said, and what the searches found. An output cannot
        hold words, so what went wrong stands in a message of the developer's after it."""
        given = self._body.get("input")
        first = [{"role": "user", "content": given}] if isinstance(given, str) else given
        items = [_drop_id(item) for item in self._before]
        items += [{"role": "developer", "content": item} for item in self._told]
        if self._body.get("conversation"):  # it holds what was said, and the model's own items
            held = ("tool_search_output", None)
            first, items = [], [item for item in items if item.get("type") in held]
        made = {**self._body, "input": [*(first if isinstance(first, list) else []), *items]}
        choice = made.get("tool_choice")
        if isinstance(choice, Mapping) and choice.get("type") == "tool_search":
            made["tool_choice"] = "auto"
        return json.dumps(made).encode()

    def _merge_body(self, body: dict[str, Any]) -> dict[str, Any]:
        last = list_dicts(body, "output")
        held = any(one is item for one in last for item in self._before)
        output = self._before if held else [*self._before, *last]
        last_id = body.get("id")
        unsent = self._unsent if held else []
        self._search.continued.note_answer(self._shown or last_id, last_id, unsent)
        usage = sum_usage(self._usages)
        return {**body, "output": output, **({"usage": usage} if usage else {})}

    def _renumber(self, event: StreamEvent, begun: int) -> bytes:
        data = event.data
        if data is None or "type" not in data:
            return event.raw
        number, self._number = self._number, self._number + 1
        if not self._before:
            return event.raw
        if isinstance(data.get("output_index"), int):
            data["output_index"] += begun
        if "sequence_number" in data:
            data["sequence_number"] = number
        return event.encode()

    def _encode(self, data: Mapping[str, Any]) -> bytes:
        number, self._number = self._number, self._number + 1
        return write_event({**data, "sequence_number": number})


def _drop_id(item: Any) -> Any:
    if isinstance(item, Mapping) and str(item.get("id")).startswith(ITEM_ID):
        return {key: value for key, value in item.items() if key != "id"}
    return item


def _read_id(event: StreamEvent) -> Any:
    begun = (event.data or {}).get("response")
    return begun.get("id") if isinstance(begun, Mapping) else None
