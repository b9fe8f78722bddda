"""The tool calls of an answer of Anthropic's API and of Responses, whole or as a stream.

Source of Anthropic's events: https://platform.claude.com/docs/en/build-with-claude/streaming
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from extensions.proxy.calls import CallRepair, FixedCall
from extensions.proxy.exchange import StreamEvent, list_dicts, read_object, write_event
from extensions.proxy.text_calls import take_message_calls, take_response_calls

_CUT = ("max_tokens", "model_context_window_exceeded")  # `stop_reason` of a limit's end
# Of the bytes of an event: it may be of a call or of the end, or its type may be escaped.
_MESSAGES_EVENT = re.compile(rb"tool_use|input_json_delta|content_block_st|message_delta|\\u")


async def repair_message(body: dict[str, Any], repair: CallRepair) -> None:
    """Repairs the calls of a whole answer in place. The last one of an answer that a limit cut off
    is not completed: its `input` is whatever was read of it."""
    content = list_dicts(body, "content")
    for block in content:
        if block.get("type") != "tool_use" or "input" not in block:
            continue
        cut = block is content[-1] and body.get("stop_reason") in _CUT
        text = "" if cut else _write_input(block["input"])
        fixed = await repair.fix_call(block.get("id"), block.get("name"), text, cut=cut)
        if fixed.steps:
            block["name"], block["input"] = fixed.name, json.loads(fixed.text)
    called = any(str(block.get("type")).endswith("tool_use") for block in content)
    if not called and body.get("stop_reason") not in _CUT:
        await take_message_calls(body, repair)


@dataclass
class _MessageCall:
    id: Any
    name: Any
    given: Any  # `input` of its first event, empty but for some servers
    parts: list[str] = field(default_factory=list)
    ended: bool = False
    placed: bool = False  # the repaired text is written

    @property
    def text(self) -> str:
        return "".join(self.parts) or (_write_input(self.given) if self.given else "")


class MessageStream:
    """The events of a streamed answer. From the first one with arguments of a call, or with a name
    that was not offered, they are held back until its block ends as whole JSON, the next begins or
    the answer ends; all others pass at once. Events of calls that fit pass as they came.

    most: bytes that are held back; beyond them the rest passes unjudged.
    """

    def __init__(self, repair: CallRepair, most: int) -> None:
        self._repair, self._most = repair, most
        self._calls: dict[Any, _MessageCall] = {}  # index of the block -> its call
        self._held: list[StreamEvent] = []
        self._size = 0

    async def feed(self, event: StreamEvent) -> bytes:
        """What may be sent now that this event came."""
        if not (self._held or _MESSAGES_EVENT.search(event.raw)):
            return event.raw
        data = event.data or {}
        kind, index = data.get("type"), data.get("index")
        call = self._calls.get(index) if isinstance(index, int) else None
        if kind == "message_delta":
            return await self._end(event, data)
        if self._size > self._most:
            return event.raw
        if kind == "content_block_start":
            decided = self._held and all(item.ended for item in self._calls.values())
            ready = await self._release(cut=False) if decided else b""
            return ready + self._begin(event, data)
        if kind == "content_block_delta" and call is not None:
            part = _read_part(data)
            call.parts.append(part)
            return self._hold(event) if part or self._held else event.raw
        if kind == "content_block_stop" and call is not None:
            call.ended = True
            ready = self._hold(event)
            calls = self._calls.values()
            whole = all(call.ended and read_object(call.text) is not None for call in calls)
            return ready + (await self._release(cut=False) if whole else b"")
        return self._hold(event) if self._held and kind != "ping" else event.raw

    def drain(self) -> Iterator[bytes]:
        """What was held back, as it came."""
        yield from (item.raw for item in self._held)
        self._held, self._calls = [], {}

    def _hold(self, event: StreamEvent) -> bytes:
        self._held.append(event)
        self._size += len(event.raw)
        return b"".join(self.drain()) if self._size > self._most else b""

    def _begin(self, event: StreamEvent, data: Mapping[str, Any]) -> bytes:
        block, index = data.get("content_block"), data.get("index")
        if not (isinstance(block, Mapping) and block.get("type") == "tool_use"):
            return self._hold(event) if self._held else event.raw
        if not isinstance(index, int):
            return event.raw
        call = _MessageCall(block.get("id"), block.get("name"), block.get("input"))
        self._calls[index] = call
        waits = self._held or call.given or self._repair.may_rename(str(call.name or ""))
        return self._hold(event) if waits else event.raw

    async def _end(self, event: StreamEvent, data: dict[str, Any]) -> bytes:
        """The event that says why the answer ended, after all that waits for it."""
        delta = data.get("delta")
        reason = delta.get("stop_reason") if isinstance(delta, Mapping) else None
        ready = await self._release(cut=reason in _CUT)
        report = self._repair.describe_field()
        if report is None:
            return ready + event.raw
        data["toolmill"] = report
        return ready + event.encode()

    async def _release(self, *, cut: bool) -> bytes:
        """The held events with what was repaired. cut: a limit ended the answer."""
        changed: dict[Any, tuple[_MessageCall, FixedCall]] = {}
        for index, call in self._calls.items():
            broken = cut or not call.ended
            text = call.text or ("" if broken else "{}")
            fixed = await self._repair.fix_call(call.id, call.name, text, cut=broken)
            if fixed.steps:
                changed[index] = call, fixed
        ready = b"".join(raw for item in self._held for raw in _write_event(item, changed))
        self._held, self._calls = [], {}
        return ready


def _write_event(
    event: StreamEvent, changed: Mapping[Any, tuple[_MessageCall, FixedCall]]
) -> Iterator[bytes]:
    """The whole repaired text in the first event of its call that has arguments, nothing in the
    others: their number stays as it was. Where none has any, one more before the block's end."""
    data = event.data or {}
    index = data.get("index")
    call, fixed = changed.get(index, (None, None)) if isinstance(index, int) else (None, None)
    if call is None or fixed is None:
        yield event.raw
        return
    kind = data.get("type")
    if kind == "content_block_start":
        data["content_block"] |= {"name": fixed.name, "input": {}}
    elif kind == "content_block_delta" and _read_part(data):
        data["delta"]["partial_json"] = "" if call.placed else fixed.text
        call.placed = True
    elif kind == "content_block_stop" and not call.placed:
        delta = {"type": "input_json_delta", "partial_json": fixed.text}
        yield write_event({"type": "content_block_delta", "index": index, "delta": delta})
        call.placed = True
    yield event.encode()


def _read_part(data: Mapping[str, Any]) -> str:
    delta = data.get("delta")
    found = delta.get("partial_json") if isinstance(delta, Mapping) else None
    return found if isinstance(found, str) else ""


def _write_input(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


_ARGUMENTS = "response.function_call_arguments."
# Of the bytes of an event: it may hold a call or be the end, or its type may be escaped.
_RESPONSES_EVENT = re.compile(
    rb"function_call|output_item|response\.(?:completed|incomplete|failed)|\\u"
)
_BREAKS = ("incomplete", "failed")
_ENDS = ("response.completed", "response.incomplete", "response.failed")


async def repair_response(body: dict[str, Any], repair: CallRepair) -> None:
    """Repairs the calls of a whole answer in place."""
    output = await _fix_items(body, repair)
    texts = all(item.get("type") in ("message", "reasoning") for item in output)
    if texts and body.get("status") not in _BREAKS:
        await take_response_calls(body, repair)


async def _fix_items(body: dict[str, Any], repair: CallRepair) -> list[dict[str, Any]]:
    output, cut = list_dicts(body, "output"), body.get("status") in _BREAKS
    for item in output:
        await _fix_item(item, repair, cut)
    return output


async def _fix_item(item: Any, repair: CallRepair, cut: bool = False) -> bool:
    if not isinstance(item, dict) or item.get("type") != "function_call":
        return False
    cut = cut or item.get("status") == "incomplete"
    call_id = item.get("call_id") or item.get("id")
    fixed = await repair.fix_call(call_id, item.get("name"), item.get("arguments"), cut=cut)
    if fixed.steps:
        item["arguments"], item["name"] = fixed.text, fixed.name
    return bool(fixed.steps)


class ResponsesStream:
    """The events of a streamed answer. Those with arguments of a call, or with a name that was not
    offered, are held back until its `response.output_item.done`, which says whether it is whole;
    all others pass at once.

    most: bytes that are held back; beyond them the rest passes unjudged.
    """

    def __init__(self, repair: CallRepair, most: int) -> None:
        self._repair, self._most = repair, most
        self._held: list[StreamEvent] = []
        self._size = 0

    async def feed(self, event: StreamEvent) -> bytes:
        """What may be sent now that this event came."""
        if self._size > self._most or not _RESPONSES_EVENT.search(event.raw):
            return event.raw
        data = event.data or {}
        kind = str(data.get("type"))
        if kind.startswith(_ARGUMENTS) or self._may_rename(kind, data.get("item")):
            self._held.append(event)
            self._size += len(event.raw)
            return b"".join(self.drain()) if self._size > self._most else b""
        if kind == "response.output_item.done":
            return await self._release(event, data.get("item"))
        if kind in _ENDS:
            held = b"".join(self.drain())
            return held + await self._end(event, data.get("response"))
        return event.raw

    def drain(self) -> Iterator[bytes]:
        """What was held back, as it came."""
        yield from (item.raw for item in self._held)
        self._held = []

    def _may_rename(self, kind: str, item: Any) -> bool:
        if kind != "response.output_item.added" or not isinstance(item, dict):
            return False
        called = item.get("type") == "function_call"
        return called and self._repair.may_rename(str(item.get("name") or ""))

    async def _release(self, event: StreamEvent, item: Any) -> bytes:
        index = (event.data or {}).get("output_index")
        mine = [item for item in self._held if (item.data or {}).get("output_index") == index]
        self._held = [item for item in self._held if item not in mine]
        changed = await _fix_item(item, self._repair)
        rest, ready = item["arguments"] if changed else "", list[bytes]()
        for held in mine:
            if changed and held.data is not None:
                if isinstance(held.data.get("name"), str):
                    held.data["name"] = item["name"]
                if isinstance(held.data.get("item"), dict):
                    held.data["item"]["name"] = item["name"]
                elif held.data.get("type") == f"{_ARGUMENTS}done":
                    held.data["arguments"] = item["arguments"]
                else:  # the whole text in the first one: the number of events stays as it was
                    held.data["delta"], rest = rest, ""
            ready.append(held.encode() if changed else held.raw)
        return b"".join([*ready, event.encode() if changed else event.raw])

    async def _end(self, event: StreamEvent, response: Any) -> bytes:
        """The last event: the whole answer again."""
        if not isinstance(response, dict):
            return event.raw
        await _fix_items(response, self._repair)
        report = self._repair.describe_field()
        if report is None:
            return event.raw
        response["toolmill"] = report
        return event.encode()
