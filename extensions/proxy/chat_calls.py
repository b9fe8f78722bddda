"""The tool calls of a chat completion, whole or as a stream, as many servers write them."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from extensions.proxy.calls import CallRepair, FixedCall, is_whole, make_call_id
from extensions.proxy.exchange import StreamEvent, list_dicts, read_object
from extensions.proxy.text_calls import take_chat_calls

_Key = tuple[Any, Any, int]  # index of the choice, index of the call, which of that index
# Of the bytes of an event: it may hold a call or the end of a choice, or a key may be escaped.
_CHAT_EVENT = re.compile(rb'tool_calls|"finish_reason"(?!\s*:\s*null)|\\u')
_LAST = re.compile(
    rb'data:\s*(?:\[DONE\]|\{\s*"error"\s*:(?!\s*null))'
)  # clients read nothing behind it


async def repair_chat(body: dict[str, Any], repair: CallRepair) -> None:
    """Repairs the calls of a whole answer in place."""
    for choice in list_dicts(body, "choices"):
        cut, message = choice.get("finish_reason") == "length", choice.get("message")
        calls = [
            (call.get("id"), call.get("function")) for call in list_dicts(message, "tool_calls")
        ]
        if isinstance(message, dict):
            calls.append((None, message.get("function_call")))  # before there were several
        for call_id, inner in calls:
            if isinstance(inner, dict):
                fixed = await repair.fix_call(
                    call_id, inner.get("name"), inner.get("arguments"), cut=cut
                )
                if fixed.steps:
                    inner["arguments"], inner["name"] = fixed.text, fixed.name
        called = isinstance(message, dict) and (message.get("function_call") or calls[:-1])
        if isinstance(message, dict) and not called and not cut:
            await take_chat_calls(choice, message, repair)


@dataclass
class _ChatCall:
    index: int  # as the client gets it
    id: Any = None
    name: str = ""
    parts: list[str] = field(default_factory=list)
    sent: str = ""  # of the name, before anything was held
    named: bool = False  # another name than its own is written
    late: bool = False  # its first part had no name
    without: bool = False  # null stood where its arguments were to begin


@dataclass
class _CallPart:
    """Of a call in an event. entry: of `tool_calls`; inner: its `function`. changed: it is other
    than the upstream wrote it."""

    key: _Key
    entry: dict[str, Any]
    inner: dict[str, Any]
    changed: bool = False


class ChatStream:
    """The events of a streamed answer. From the first one with arguments of a call, or with a name
    that was not offered, those with calls are held back until a choice ends; all others pass at
    once. Events of calls that fit pass as they came, but for an index that is missing or was taken:
    Ollama and Gemini send several whole calls under index 0.

    most: bytes that are held back; beyond them the rest passes unjudged.
    """

    def __init__(self, repair: CallRepair, most: int) -> None:
        self._repair, self._most = repair, most
        self._calls: dict[_Key, _ChatCall] = {}
        self._taken: dict[Any, set[int]] = {}  # choice -> the indices of its calls
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
        if any(part.changed for part in parts):
            event.raw = event.encode()
        renames = any(self._repair.may_rename(self._calls[part.key].name) for part in parts)
        if renames or any(part.inner.get("arguments") for part in parts) or (self._held and parts):
            self._parts[event] = parts
            return True
        for part in parts:
            self._calls[part.key].sent = self._calls[part.key].name
        return False

    def _read_part(self, choice: Any, entry: dict[str, Any], inner: dict[str, Any]) -> _CallPart:
        """A part, and what it says of its call; arguments that are an object become text."""
        own, name, given = entry.get("id"), str(inner.get("name") or ""), inner.get("arguments")
        text = json.dumps(given, ensure_ascii=False) if isinstance(given, dict | list) else given
        at = choice, entry.get("index")
        call = self._calls.get((*at, self._numbers.get(at, 0)))
        if call is not None and _repeats_call(call, own, name, text):
            inner["arguments"] = text = ""
        elif call is not None and self._begins_call(call, own, name, text):
            self._numbers[at] = self._numbers.get(at, 0) + 1
            if not name:  # of whole arguments alone
                entry["id"] = own = own or make_call_id()
                inner["name"] = name = call.name
        key = (*at, self._numbers.get(at, 0))
        if key not in self._calls:
            self._calls[key] = _ChatCall(self._take_index(*at))
        call = self._calls[key]
        part = _CallPart(key, entry, inner, text is not given or at[1] != call.index)
        entry["index"] = call.index
        if "arguments" in inner:
            inner["arguments"] = text
            call.without = call.without or text is None
            call.parts.append(text if isinstance(text, str) else "")
        # Some repeat id or name in every part, or what there is of the name so far. Clients put
        # together what they get.
        if call.id and own:
            part.changed = entry.pop("id") is not None
        call.id = call.id or own
        if "name" in inner and not name:  # clients take an empty one for the name
            part.changed = inner.pop("name", None) is not None or part.changed
        if call.name and name.startswith(call.name):
            part.changed, name = True, name[len(call.name) :]
            inner["name"] = name
            if not name:
                del inner["name"]
        call.name += name
        return part

    def _begins_call(self, call: _ChatCall, own: Any, name: str, given: Any) -> bool:
        """Whether a part with the index of a call begins another one: by another id, unless every
        part has an id of its own; by a name that starts again; behind arguments that are whole."""
        other = bool(call.id and own and own != call.id)
        text = "".join(call.parts)
        whole = read_object(text) is not None
        if not name:
            return whole and isinstance(given, str) and given.lstrip().startswith("{")
        if not call.name:
            return other
        if name == call.name:
            starts = other or (isinstance(given, str) and given.lstrip().startswith("{"))
            return (whole and starts) or (other and call.without and not text)
        if other or whole:
            return True
        if text:
            return not name.startswith(call.name)
        offered = not (self._repair.may_rename(call.name) or self._repair.may_rename(name))
        return offered and self._repair.may_rename(call.name + name)

    def _take_index(self, choice: Any, index: Any) -> int:
        """The index of a new call: its own, where that is still free."""
        taken = self._taken.setdefault(choice, set())
        free = (
            index if isinstance(index, int) and index not in taken else max(taken, default=-1) + 1
        )
        taken.add(free)
        return free

    async def _release(self, last: StreamEvent, cut: Mapping[Any, bool]) -> bytes:
        """The held events with what was repaired, then the one that ends the choices. cut: choice
        -> whether its last call may lack its end."""
        changed: dict[_Key, tuple[_ChatCall, FixedCall]] = {}
        held = [part for event in self._held for part in self._parts.get(event, [])]
        moved = _name_first(held, {key: self._calls[key] for key in self._calls if key[0] in cut})
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
        waits = [
            event
            for event in self._held
            if any(part.key in self._calls for part in self._parts.get(event, []))
        ]
        written, ready = set[_Key](), list[bytes]()
        for event in self._held:
            parts = self._parts.get(event, [])
            touched = _replace_calls(parts, changed, written)
            touched |= any(id(part) in moved for part in parts)
            if event not in waits:
                changes = touched or (report and event is last)
                ready.append(event.encode() if changes else event.raw)
            elif touched:
                event.raw = event.encode()
        self._held = waits
        self._parts = {wait: self._parts[wait] for wait in waits if wait in self._parts}
        return b"".join(ready)

    def _add_empty(self, last: StreamEvent, changed: Mapping[_Key, Any]) -> None:
        """Makes a place for the text of calls that no event gave arguments: in the last."""
        listed = [part for item in self._held for part in self._parts.get(item, [])]
        placed = {part.key for part in listed if part.inner.get("arguments")}
        for choice in list_dicts(last.data, "choices"):
            mine = [key for key in changed if key[0] == choice.get("index") and key not in placed]
            for key in mine:
                delta = choice["delta"] if isinstance(choice.get("delta"), dict) else {}
                entry = {"index": changed[key][0].index, "function": {"arguments": " "}}
                choice["delta"] = {**delta, "tool_calls": [*list_dicts(delta, "tool_calls"), entry]}
                self._parts.setdefault(last, []).append(_CallPart(key, entry, entry["function"]))


def _repeats_call(call: _ChatCall, own: Any, name: str, given: Any) -> bool:
    """Whether a part is a whole call once more, as GPT-5 sends some."""
    same = bool(own) and own == call.id and name == call.name
    return same and bool(given) and given == "".join(call.parts) and is_whole(given)


def _name_first(listed: Iterable[_CallPart], calls: Mapping[_Key, _ChatCall]) -> set[int]:
    """Puts a name that came late into the first part of its call, where clients look for it; ids of
    the parts that changed."""
    first, changed = dict[_Key, _CallPart](), set[int]()
    for part in listed:
        begun = first.setdefault(part.key, part)
        call = calls.get(part.key)
        if call is not None and not call.sent and part.inner.get("name"):
            if "name" not in begun.inner:
                begun.inner["name"] = call.name
                changed.add(id(begun))
                call.late = True
            if part is not begun and call.late:
                del part.inner["name"]
                changed.add(id(part))
    return changed


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
