"""Chat completions: the tool calls of an answer, whole or as a stream."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from serving.proxy.calls import CallRepair, Fixed
from serving.proxy.events import Event, list_dicts

_Key = tuple[Any, Any]  # index of the choice, index of the call
# Of the bytes of an event: it may hold a call or the end of a choice, or a key may be escaped.
_TELLING = re.compile(rb'tool_calls|"finish_reason"(?!\s*:\s*null)|\\u')


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
class _Call:
    id: Any = None
    name: str = ""
    parts: list[str] = field(default_factory=list)


class ChatStream:
    """The events of a streamed answer. From the first one with arguments of a call, or with a name
    that was not offered, those with calls are held back until a choice ends; all others pass at
    once. Events of calls that fit pass as they came.

    most: bytes that are held back; beyond them the rest passes unjudged.
    """

    def __init__(self, repair: CallRepair, most: int) -> None:
        self._repair, self._most = repair, most
        self._calls: dict[_Key, _Call] = {}
        self._held: list[Event] = []
        self._size = 0

    async def feed(self, event: Event) -> bytes:
        """What may be sent now that this event came."""
        if not _TELLING.search(event.raw):
            return event.raw
        ends = [one for one in list_dicts(event.data, "choices") if one.get("finish_reason")]
        carries = self._size <= self._most and self._take_calls(event)
        if carries:
            self._held.append(event)
            self._size += len(event.raw)
        if ends:
            return await self._release(event, ends)
        if not carries:
            return event.raw
        return b"".join(self.drain()) if self._size > self._most else b""

    def drain(self) -> Iterator[bytes]:
        """What was held back, as it came."""
        yield from (one.raw for one in self._held)
        self._held, self._calls = [], {}

    def _take_calls(self, event: Event) -> bool:
        """Notes the parts of calls in an event; whether it is to be held: it has arguments or a
        name that may change, or other events with calls are held, whose order must stay."""
        found = bool(self._held) and any(True for _ in _list_parts(event))
        for key, entry, inner in _list_parts(event):
            call = self._calls.setdefault(key, _Call())
            call.id = entry.get("id") or call.id
            call.name = call.name or str(inner.get("name") or "")
            if isinstance(inner.get("arguments"), str) and inner["arguments"]:
                call.parts.append(inner["arguments"])
                found = True
            found = found or self._repair.may_rename(call.name)
        return found

    async def _release(self, last: Event, ends: list[dict[str, Any]]) -> bytes:
        """The held events with what was repaired, then the one that ends the choices."""
        changed: dict[_Key, Fixed] = {}
        cut = {one.get("index"): one["finish_reason"] == "length" for one in ends}
        for key in [key for key in self._calls if key[0] in cut]:
            call = self._calls.pop(key)
            text = "".join(call.parts)
            if not (call.name or text):
                continue
            fixed = await self._repair.fix_call(call.id, call.name, text, cut=cut[key[0]])
            if fixed.steps:
                changed[key] = fixed
        if last not in self._held:
            self._held.append(last)
        _add_empty(last, changed, self._held)
        report = self._repair.describe_field()
        if report and last.data is not None:
            last.data["toolmill"] = report
        waits = [one for one in self._held if any(k in self._calls for k, _, _ in _list_parts(one))]
        written, ready = set[_Key](), list[bytes]()
        for event in self._held:
            touched = _replace_calls(event, changed, written)
            if event not in waits:
                changes = touched or (report and event is last)
                ready.append(event.encode() if changes else event.raw)
            elif touched:
                event.raw = event.encode()
        self._held = waits
        return b"".join(ready)


def _add_empty(last: Event, changed: dict[_Key, Fixed], held: list[Event]) -> None:
    """Makes a place for the repaired text of calls that no event gave arguments: in the last."""
    placed = {key for one in held for key, _, inner in _list_parts(one) if inner.get("arguments")}
    for choice in list_dicts(last.data, "choices"):
        for key in [key for key in changed if key[0] == choice.get("index") and key not in placed]:
            delta = choice["delta"] if isinstance(choice.get("delta"), dict) else {}
            entry = {"index": key[1], "function": {"arguments": " "}}
            choice["delta"] = {**delta, "tool_calls": [*list_dicts(delta, "tool_calls"), entry]}


def _replace_calls(event: Event, changed: dict[_Key, Fixed], written: set[_Key]) -> bool:
    """The whole repaired text in the first event of its call that has arguments, nothing in the
    others: their number stays as it was. The name of now where a name stands."""
    touched = False
    for key, _, inner in _list_parts(event):
        if key not in changed:
            continue
        if inner.get("name") and inner["name"] != changed[key].name:
            inner["name"], touched = changed[key].name, True
        if inner.get("arguments"):
            inner["arguments"] = "" if key in written else changed[key].text
            written.add(key)
            touched = True
    return touched


def _list_parts(event: Event) -> Iterator[tuple[_Key, dict[str, Any], dict[str, Any]]]:
    """(key, entry, its `function`) of each part of a call in an event."""
    for choice in list_dicts(event.data, "choices"):
        for entry in list_dicts(choice.get("delta"), "tool_calls"):
            inner = entry.get("function")
            if isinstance(inner, dict):
                yield (choice.get("index"), entry.get("index")), entry, inner
