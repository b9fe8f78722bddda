"""The tool calls of an answer, whole or as a stream, in each of the three APIs.

Source of Anthropic's events: https://platform.claude.com/docs/en/build-with-claude/streaming
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from extensions.proxy.calls import CallRepair, FixedCall, is_whole
from extensions.proxy.exchange import StreamEvent, list_dicts

_Key = tuple[Any, Any, int]  # index of the choice, index of the call, which of that index
# Of the bytes of an event: it may hold a call or the end of a choice, or a key may be escaped.
_CHAT_EVENT = re.compile(rb'tool_calls|"finish_reason"(?!\s*:\s*null)|\\u')
_LAST = re.compile(
    rb'data:\s*(?:\[DONE\]|\{\s*"error"\s*:(?!\s*null))'
)  # clients read nothing behind it


async def repair_chat(body: dict[str, Any], repair: CallRepair) -> None:
    """Repairs the calls of a whole answer in place."""
    for choice in list_dicts(body, "choices"):
        cut = choice.get("finish_reason") == "length"
        for call in list_dicts(choice.get("message"), "tool_calls"):
            inner = call.get("function")
            if isinstance(inner, dict) and isinstance(inner.get("arguments"), str):
                text, name = inner["arguments"], inner.get("name")
                fixed = await repair.fix_call(call.get("id"), name, text, cut=cut)
                inner["arguments"] = fixed.text
                if fixed.steps:
                    inner["name"] = fixed.name


@dataclass
class _ChatCall:
    id: Any = None
    name: str = ""
    parts: list[str] = field(default_factory=list)
    sent: str = ""  # of the name, before anything was held
    named: bool = False  # another name than its own is written


@dataclass
class _CallPart:
    """Of a call in an event. entry: of `tool_calls`; inner: its `function`."""

    key: _Key
    entry: dict[str, Any]
    inner: dict[str, Any]


class ChatStream:
    """The events of a streamed answer. From the first one with arguments of a call, or with a name
    that was not offered, those with calls are held back until a choice ends; all others pass at
    once. Events of calls that fit pass as they came.

    most: bytes that are held back; beyond them the rest passes unjudged.
    """

    def __init__(self, repair: CallRepair, most: int) -> None:
        self._repair, self._most = repair, most
        self._calls: dict[_Key, _ChatCall] = {}
        self._held: list[StreamEvent] = []
        self._parts: dict[StreamEvent, list[_CallPart]] = {}  # of those that are held
        self._numbers: dict[tuple[Any, Any], int] = {}  # which call an index means now
        self._size = 0

    async def feed(self, event: StreamEvent) -> bytes:
        """What may be sent now that this event came."""
        if self._held and _LAST.match(event.raw):  # of a server that says no reason for the end
            unsure = dict.fromkeys((key[0] for key in self._calls), True)
            return await self._release(self._held[-1], unsure) + event.raw
        if not _CHAT_EVENT.search(event.raw):
            return event.raw
        ends = [item for item in _list_indexed(event.data, "choices") if item.get("finish_reason")]
        carries = self._size <= self._most and self._take_calls(event)
        if carries:
            self._held.append(event)
            self._size += len(event.raw)
        if ends:
            cut = {end.get("index"): end["finish_reason"] == "length" for end in ends}
            return await self._release(event, cut)
        if not carries:
            return event.raw
        return b"".join(self.drain()) if self._size > self._most else b""

    def drain(self) -> Iterator[bytes]:
        """What was held back, as it came."""
        yield from (item.raw for item in self._held)
        self._held, self._calls, self._parts = [], {}, {}

    def _take_calls(self, event: StreamEvent) -> bool:
        """Notes the parts of calls in an event; whether it is to be held: it has arguments or a
        name that may change, or other events with calls are held, whose order must stay."""
        parts = [self._read_part(*entry) for entry in _list_entries(event)]
        found = bool(self._held and parts)
        for part in parts:
            call = self._calls[part.key]
            if isinstance(part.inner.get("arguments"), str) and part.inner["arguments"]:
                call.parts.append(part.inner["arguments"])
                found = True
            found = found or self._repair.may_rename(call.name)
        if found:
            self._parts[event] = parts
            return True
        for part in parts:
            self._calls[part.key].sent = self._calls[part.key].name
        return False

    def _read_part(self, choice: Any, entry: dict[str, Any], inner: dict[str, Any]) -> _CallPart:
        """A part, and what it says of its call. Some servers give several calls one index, or
        none: another id begins another one, with another name or after a whole text. Others give
        every part an id of its own."""
        at = choice, entry.get("index")
        call = self._calls.get((*at, self._numbers.get(at, 0)))
        own, name = entry.get("id"), str(inner.get("name") or "")
        other = call is not None and call.id and own and own != call.id and name
        if call is not None and other and (name != call.name or is_whole("".join(call.parts))):
            self._numbers[at] = self._numbers.get(at, 0) + 1
        key = (*at, self._numbers.get(at, 0))
        call = self._calls.setdefault(key, _ChatCall())
        call.id = own or call.id
        # Some repeat it in every part, or what there is of it so far; some send it in pieces.
        call.name = name if name.startswith(call.name) else call.name + name
        return _CallPart(key, entry, inner)

    async def _release(self, last: StreamEvent, cut: Mapping[Any, bool]) -> bytes:
        """The held events with what was repaired, then the one that ends the choices. cut: choice
        -> whether its last call may lack its end."""
        changed: dict[_Key, tuple[_ChatCall, FixedCall]] = {}
        for key in [key for key in self._calls if key[0] in cut]:
            call = self._calls.pop(key)
            text = "".join(call.parts)
            if not (call.name or text):
                continue
            fixed = await self._repair.fix_call(call.id, call.name, text, cut=cut[key[0]])
            if fixed.steps:
                changed[key] = call, fixed
        if last not in self._held:
            self._held.append(last)
        self._add_empty(last, changed)
        report = self._repair.describe_field()
        if report and last.data is not None:
            last.data["toolmill"] = report
        waits = [item for item in self._held if self._has_open_call(item)]
        written, ready = set[_Key](), list[bytes]()
        for event in self._held:
            touched = _replace_calls(self._parts.get(event, []), changed, written)
            if event not in waits:
                changes = touched or (report and event is last)
                ready.append(event.encode() if changes else event.raw)
            elif touched:
                event.raw = event.encode()
        self._held = waits
        self._parts = {wait: self._parts[wait] for wait in waits if wait in self._parts}
        return b"".join(ready)

    def _has_open_call(self, event: StreamEvent) -> bool:
        return any(part.key in self._calls for part in self._parts.get(event, []))

    def _add_empty(self, last: StreamEvent, changed: Mapping[_Key, Any]) -> None:
        """Makes a place for the text of calls that no event gave arguments: in the last."""
        listed = [part for item in self._held for part in self._parts.get(item, [])]
        placed = {part.key for part in listed if part.inner.get("arguments")}
        for choice in list_dicts(last.data, "choices"):
            mine = [key for key in changed if key[0] == choice.get("index") and key not in placed]
            for key in mine:
                delta = choice["delta"] if isinstance(choice.get("delta"), dict) else {}
                entry = {"index": key[1], "function": {"arguments": " "}}
                choice["delta"] = {**delta, "tool_calls": [*list_dicts(delta, "tool_calls"), entry]}
                self._parts.setdefault(last, []).append(_CallPart(key, entry, entry["function"]))


def _replace_calls(
    parts: list[_CallPart], changed: Mapping[_Key, tuple[_ChatCall, FixedCall]], written: set[_Key]
) -> bool:
    """The whole repaired text in the first event of its call that has arguments, nothing in the
    others: their number stays as it was. The name of now where a name stands."""
    touched = False
    for part in parts:
        if part.key not in changed:
            continue
        call, fixed = changed[part.key]
        inner = part.inner
        if inner.get("name") and fixed.name != call.name:
            touched |= _write_name(inner, call, fixed.name)
        if inner.get("arguments"):
            inner["arguments"] = "" if part.key in written else fixed.text
            written.add(part.key)
            touched = True
    return touched


def _write_name(inner: dict[str, Any], call: _ChatCall, name: str) -> bool:
    """Whether a part has the name of now: whole where its own was, else what the client lacks."""
    if inner["name"] == call.name:
        inner["name"] = name
    elif not name.startswith(call.sent):  # what was sent cannot be taken back
        return False
    else:
        inner["name"] = "" if call.named else name[len(call.sent) :]
    call.named = True
    return True


def _list_entries(event: StreamEvent) -> Iterator[tuple[Any, dict[str, Any], dict[str, Any]]]:
    """(index of the choice, entry, its `function`) of each part of a call in an event."""
    for choice in _list_indexed(event.data, "choices"):
        for entry in _list_indexed(choice.get("delta"), "tool_calls"):
            inner = entry.get("function")
            if isinstance(inner, dict):
                yield choice.get("index"), entry, inner


def _list_indexed(holder: Any, key: str) -> list[dict[str, Any]]:
    """Those whose `index` is a number or left out: what else there is passes as it came."""
    return [item for item in list_dicts(holder, key) if isinstance(item.get("index"), int | None)]


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
        kind, call = data.get("type"), self._find_call(data)
        if kind == "message_delta":
            return await self._end(event, data)
        if self._size > self._most:
            return event.raw
        if kind == "content_block_start":
            ready = await self._release(cut=False) if self._is_decided() else b""
            return ready + self._begin(event, data)
        if kind == "content_block_delta" and call is not None:
            part = _read_part(data)
            call.parts.append(part)
            return self._hold(event) if part or self._held else event.raw
        if kind == "content_block_stop" and call is not None:
            call.ended = True
            ready = self._hold(event)
            whole = all(item.ended and _is_whole(item.text) for item in self._calls.values())
            return ready + (await self._release(cut=False) if whole else b"")
        return self._hold(event) if self._held and kind != "ping" else event.raw

    def drain(self) -> Iterator[bytes]:
        """What was held back, as it came."""
        yield from (item.raw for item in self._held)
        self._held, self._calls = [], {}

    def _find_call(self, data: Mapping[str, Any]) -> _MessageCall | None:
        index = data.get("index")
        return self._calls.get(index) if isinstance(index, int) else None

    def _is_decided(self) -> bool:
        return bool(self._held) and all(item.ended for item in self._calls.values())

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
        made = {"type": "content_block_delta", "index": index, "delta": delta}
        yield f"event: content_block_delta\ndata: {json.dumps(made)}\n\n".encode()
        call.placed = True
    yield event.encode()


def _read_part(data: Mapping[str, Any]) -> str:
    delta = data.get("delta")
    found = delta.get("partial_json") if isinstance(delta, Mapping) else None
    return found if isinstance(found, str) else ""


def _write_input(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _is_whole(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


_ARGUMENTS = "response.function_call_arguments."
# Of the bytes of an event: it may hold a call or be the end, or its type may be escaped.
_RESPONSES_EVENT = re.compile(
    rb"function_call|output_item|response\.(?:completed|incomplete|failed)|\\u"
)
_ENDS = ("response.completed", "response.incomplete", "response.failed")


async def repair_response(body: dict[str, Any], repair: CallRepair) -> bool:
    """Repairs the calls of a whole answer in place; whether anything was changed."""
    cut = body.get("status") in ("incomplete", "failed")
    return any([await _fix_item(item, repair, cut) for item in list_dicts(body, "output")])


async def _fix_item(item: Any, repair: CallRepair, cut: bool = False) -> bool:
    if not isinstance(item, dict) or item.get("type") != "function_call":
        return False
    text = item.get("arguments")
    if not isinstance(text, str):
        return False
    cut = cut or item.get("status") == "incomplete"
    call_id = item.get("call_id") or item.get("id")
    fixed = await repair.fix_call(call_id, item.get("name"), text, cut=cut)
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
        await repair_response(response, self._repair)
        report = self._repair.describe_field()
        if report is None:
            return event.raw
        response["toolmill"] = report
        return event.encode()
