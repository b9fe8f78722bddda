"""The Responses API: the function calls of an answer, whole or as a stream."""

import re
from collections.abc import Iterator
from typing import Any

from extensions.proxy.calls import CallRepair
from extensions.proxy.exchange import StreamEvent, list_dicts

_ARGUMENTS = "response.function_call_arguments."
# Of the bytes of an event: it may hold a call or be the end, or its type may be escaped.
_TELLING = re.compile(rb"function_call|output_item|response\.(?:completed|incomplete|failed)|\\u")
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
        if self._size > self._most or not _TELLING.search(event.raw):
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
