"""Tool search in Anthropic's Messages API: a custom tool of the name `tool_search`.

A request is asked again with `tool_reference` blocks until the model goes on without a search. The
client sees the last answer only: it has no result for a call that it never ran. Sources:
https://platform.claude.com/docs/en/agents-and-tools/tool-use/tool-search-tool (custom tool search),
https://platform.claude.com/docs/en/build-with-claude/streaming (events).
"""

import json
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any

import httpx2

from extensions.proxy.calls import CallRepair
from extensions.proxy.exchange import StreamEvent, list_dicts, read_events, read_object
from extensions.proxy.tool_search import (
    LAST,
    LIMIT,
    MOST_CALLS,
    Ask,
    ToolSearch,
    check_stream,
    is_readable,
    make_too_long,
    open_rounds,
    read_own_tools,
    read_whole,
    refuse_search,
    rewrite_response,
    sum_usage,
)
from extensions.proxy.upstream import Headers, OpenAnswer
from serving.discovery.functions import ANTHROPIC, write_anthropic_tool
from warehouse.json_types import JsonObject

# Deltas whose field, of their own name, is added to the block's.
_GROWING = ("text_delta", "thinking_delta", "signature_delta")
SEARCH = "tool_search"  # name of the custom tool that is answered here
_MOST_CALLED = 20  # tools of earlier calls that stay loaded, the latest


class HeldMessage:
    """The events of one answer and the message that they make. ended: its last one came."""

    def __init__(self) -> None:
        self.events: list[StreamEvent] = []
        self.message: dict[str, Any] = {}
        self.size, self.ended = 0, False
        self._blocks: dict[int, dict[str, Any]] = {}
        self._inputs: dict[int, str] = {}

    def take(self, event: StreamEvent) -> None:
        """Holds one more."""
        self.events.append(event)
        self.size += len(event.raw)
        data = event.data or {}
        kind, at = data.get("type"), data.get("index")
        if kind == "message_start" and isinstance(data.get("message"), Mapping):
            self.message = dict(data["message"])
        elif kind == "content_block_start" and isinstance(data.get("content_block"), Mapping):
            if isinstance(at, int):
                self._blocks[at] = dict(data["content_block"])
        elif kind == "content_block_delta" and isinstance(at, int) and at in self._blocks:
            self._grow(at, data.get("delta"))
        elif kind == "message_delta":
            self._end(data)
        self.ended = self.ended or kind == "message_stop"

    def _grow(self, at: int, delta: Any) -> None:
        if not isinstance(delta, Mapping):
            return
        kind, block = str(delta.get("type")), self._blocks[at]
        if kind == "input_json_delta":
            self._inputs[at] = self._inputs.get(at, "") + str(delta.get("partial_json") or "")
        elif kind == "citations_delta":
            block["citations"] = [*(block.get("citations") or []), delta.get("citation")]
        elif kind in _GROWING:
            field = kind.removesuffix("_delta")
            block[field] = str(block.get(field) or "") + str(delta.get(field) or "")

    def _end(self, data: Mapping[str, Any]) -> None:
        delta, usage = data.get("delta"), data.get("usage")
        if isinstance(delta, Mapping):
            self.message |= delta
        if isinstance(usage, Mapping):
            before = self.message.get("usage")
            self.message["usage"] = {**(before if isinstance(before, Mapping) else {}), **usage}

    def read_message(self) -> dict[str, Any]:
        """The message; the input of a call that is no JSON stays the text it is."""
        for at, text in self._inputs.items():
            try:
                read = json.loads(text) if text else {}
            except (ValueError, RecursionError):
                read = text
            self._blocks[at]["input"] = read
        self._inputs = {}
        return {**self.message, "content": [self._blocks[at] for at in sorted(self._blocks)]}

    def write_events(self, dropped: set[str], last: Mapping[str, Any]) -> Iterator[bytes]:
        """The events without the calls of these ids; last: what the message's end says instead,
        {stop_reason, usage}, where it has it."""
        places = [
            at for at in sorted(self._blocks) if str(self._blocks[at].get("id")) not in dropped
        ]
        moved = {at: new for new, at in enumerate(places)}
        for event in self.events:
            data = event.data
            if data is None or not (dropped or last):
                yield event.raw
            elif "index" in data:
                if isinstance(data["index"], int) and data["index"] in moved:
                    data["index"] = moved[data["index"]]
                    yield event.encode()
            elif data.get("type") == "message_delta":
                if "stop_reason" in last and isinstance(data.get("delta"), dict):
                    data["delta"]["stop_reason"] = last["stop_reason"]
                data |= {key: last[key] for key in ("usage",) if key in last}
                yield event.encode()
            else:
                yield event.raw


def has_custom_search(body: JsonObject) -> bool:
    """Whether a request has the custom tool that is answered here."""
    return any(
        item.get("name") == SEARCH and item.get("type") in (None, "custom")
        for item in list_dicts(body, "tools")
    )


class MessagesSearch:
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
        self._search, self._repair, self._count, self._most = search, repair, count, most
        self._own = read_own_tools(body)
        self._body = _load_called(search, body)
        repair.offer_more(list_dicts(self._body, "tools"), {})
        self._usages: list[Any] = []
        self._round = 0

    def open_answer(
        self, answers: OpenAnswer, method: str, rest: str, headers: Headers, body: bytes
    ) -> AbstractAsyncContextManager[httpx2.Response]:
        """As `Upstream.open_answer`. body: replaced by ours, in which what was called before is
        loaded. Raises UpstreamFailed."""
        opened = partial(answers.open_answer, method, rest, headers)
        return open_rounds(opened, self._write_body(), self._find_last, self._iterate_last)

    def _write_body(self) -> bytes:
        return json.dumps(self._body).encode()

    async def _find_last(self, response: httpx2.Response, ask: Ask) -> httpx2.Response:
        while True:
            raw = await read_whole(response, self._most)
            if (found := read_object(raw)) is None:
                return rewrite_response(response, raw)
            calls = _list_searches(found)
            if not await self._answer_calls(found, calls):
                dropped, last = {call["id"] for call in calls}, self._describe_end(found, calls)
                if not (dropped or last):
                    return rewrite_response(response, raw)
                kept = [item for item in list_dicts(found, "content") if item not in calls]
                made = json.dumps({**found, "content": kept, **last}).encode()
                return rewrite_response(response, made)
            response = await ask(self._write_body())
            if not is_readable(response):
                return response

    async def _iterate_last(self, response: httpx2.Response, ask: Ask) -> AsyncGenerator[bytes]:
        """The events of the last answer; until it is whole only signs of life."""
        while True:
            held_message = HeldMessage()
            async for event in read_events(response.aiter_raw(), self._most):
                held_message.take(event)
                if (event.data or {}).get("type") == "ping":
                    yield b": the answer is held\n\n"  # a comment: who waits sees a sign of life
                if held_message.size > self._most:
                    raise make_too_long(self._most)
            message = held_message.read_message()
            calls = _list_searches(message) if held_message.ended else []
            if not await self._answer_calls(message, calls):
                dropped, last = {call["id"] for call in calls}, self._describe_end(message, calls)
                for raw in held_message.write_events(dropped, last):
                    yield raw
                return
            response = await ask(self._write_body())
            check_stream(response)

    async def _answer_calls(self, message: Mapping[str, Any], calls: list[dict[str, Any]]) -> bool:
        """Answers the searches of a message in the next request; whether it is to be sent. A
        message with calls for the client is its own to answer, and the model may search again."""
        self._usages.append(message.get("usage"))
        self._round += bool(calls)
        content = list_dicts(message, "content")
        waits = any(item.get("type") == "tool_use" and item not in calls for item in content)
        if not calls or waits or self._round > self._search.rounds:
            for _ in calls:
                self._count("refused")
            return False
        results = []
        for at, call in enumerate(calls):
            if at >= MOST_CALLS:
                made = refuse_search(ANTHROPIC, call["id"], LIMIT)
                self._count("refused")
            else:
                given = call["id"], call.get("input")
                made = await self._search.answer_search(ANTHROPIC, self._own, *given, self._count)
            results.append(made.item)
            names = [tool.get("name") for tool in made.tools]
            note = {"error": made.error} if made.error else {"tools": names}
            note = {"call": call["id"], **note}
            self._repair.note_search(made.tools, made.tool_ids, note)
            # A reference names a tool that the request declares.
            declared = list_dicts(self._body, "tools")
            known = {item.get("name") for item in declared}
            new = [tool for tool in made.tools if tool.get("name") not in known]
            self._body = {**self._body, "tools": [*declared, *new]}
        if self._round == self._search.rounds:
            results.append({"type": "text", "text": LAST})
        said = [{"role": "assistant", "content": content}, {"role": "user", "content": results}]
        self._body = {**self._body, "messages": [*list_dicts(self._body, "messages"), *said]}
        choice = self._body.get("tool_choice")
        if isinstance(choice, Mapping) and choice.get("name") == SEARCH:
            self._body["tool_choice"] = {"type": "auto"}
        return True

    def _describe_end(
        self, message: Mapping[str, Any], calls: list[dict[str, Any]]
    ) -> dict[str, Any]:
        """What the end of the last message says in the place of the upstream's words."""
        result: dict[str, Any] = {}
        content = list_dicts(message, "content")
        if calls and all(item.get("type") != "tool_use" or item in calls for item in content):
            result["stop_reason"] = "end_turn"
        if len(self._usages) > 1:
            result["usage"] = sum_usage(self._usages)
        return result


def _list_searches(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        item
        for item in list_dicts(message, "content")
        if item.get("type") == "tool_use"
        and item.get("name") == SEARCH
        and isinstance(item.get("id"), str)
    ]


def _load_called(search: ToolSearch, body: JsonObject) -> JsonObject:
    """The request with the tools that earlier calls name loaded: their references were in messages
    that the client never saw."""
    called = [
        item["name"]
        for message in list_dicts(body, "messages")
        for item in list_dicts(message, "content")
        if item.get("type") == "tool_use" and isinstance(item.get("name"), str)
    ]
    names = list(dict.fromkeys(called))[-_MOST_CALLED:]
    tools = [
        {**item, "defer_loading": False} if item.get("name") in names else item
        for item in list_dicts(body, "tools")
    ]
    known = {tool.get("name") for tool in tools}
    for found in search.find_called([name for name in names if name not in known]):
        tools.append({**write_anthropic_tool(found), "defer_loading": False})
    return {**body, "tools": tools}
