"""Calls that a model wrote into the text of its answer, whole or as a stream, in three APIs.

In a stream, text passes until it may begin a call. From there it is held back to the end of the
answer, where it goes on as calls and what is left of the text, or as it came.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import anyio
import anyio.to_thread

from extensions.proxy.calls import LADDER_S, CallRepair, FixedCall
from extensions.proxy.exchange import StreamEvent, list_dicts, write_event
from extensions.proxy.local_forms import list_item_events
from serving.repair.dialects import begins_call
from serving.repair.drafts import may_begin_call, split_answer
from warehouse.json_types import JsonObject

_WINDOW = 600  # characters of the end of a text that are searched for the beginning of a call
_THOUGHT_ENDS = "</think>"
TEXT, OTHER, END, UNREAD = "text", "other", "end", "unread"


@dataclass(frozen=True)
class TextCalls:
    """calls: (id, call) each. left: the text without them."""

    calls: list[tuple[str, FixedCall]]
    left: str

    def write_chat(self) -> list[dict[str, Any]]:
        """Entries of `tool_calls`."""
        return [
            {"id": call_id, "type": "function",
             "function": {"name": call.name, "arguments": call.text}}
            for call_id, call in self.calls
        ]  # fmt: skip

    def write_uses(self) -> list[dict[str, Any]]:
        """Blocks of Anthropic's API."""
        return [
            {"type": "tool_use", "id": call_id, "name": call.name, "input": json.loads(call.text)}
            for call_id, call in self.calls
        ]

    def write_items(self) -> list[dict[str, Any]]:
        """Items of the Responses API."""
        return [
            {"type": "function_call", "id": f"fc_{call_id}", "call_id": call_id, "name": call.name,
             "arguments": call.text, "status": "completed"}
            for call_id, call in self.calls
        ]  # fmt: skip


async def take_text_calls(repair: CallRepair, text: Any) -> TextCalls | None:
    """None for a text without calls, or with one that names no tool of the request. Calls that no
    mark announces have to fit too: the text may be the JSON that was asked for."""
    if not (repair.reads_text and isinstance(text, str) and text.strip()):
        return None
    drafts, left = list[Any](), text
    with anyio.move_on_after(LADDER_S):
        drafts, left = await anyio.to_thread.run_sync(split_answer, text, abandon_on_cancel=True)
    calls = await repair.fix_written(drafts, must_fit=not begins_call(text))
    return TextCalls(calls, left.rstrip()) if calls else None


async def take_chat_calls(
    choice: dict[str, Any], message: dict[str, Any], repair: CallRepair
) -> None:
    """Of a choice of a whole completion, in place."""
    found = await take_text_calls(repair, message.get("content"))
    if found is not None:
        message |= {"content": found.left.strip() or None, "tool_calls": found.write_chat()}
        choice["finish_reason"] = "tool_calls"


async def take_message_calls(body: dict[str, Any], repair: CallRepair) -> None:
    """Of a whole answer of Anthropic's API, in place."""
    texts = [block for block in list_dicts(body, "content") if block.get("type") == "text"]
    found = await take_text_calls(repair, texts[-1].get("text")) if texts else None
    if found is not None:
        place = body["content"].index(texts[-1])
        shown = [{**texts[-1], "text": found.left.strip()}] if found.left.strip() else []
        body["content"][place : place + 1] = [*shown, *found.write_uses()]
        body["stop_reason"] = "tool_use"


async def take_response_calls(body: dict[str, Any], repair: CallRepair) -> TextCalls | None:
    """Of a whole answer of the Responses API, in place."""
    messages = [item for item in list_dicts(body, "output") if item.get("type") == "message"]
    parts = [part for item in messages for part in list_dicts(item, "content")]
    found = None
    if len(parts) == 1 and parts[0].get("type") == "output_text":
        found = await take_text_calls(repair, parts[0].get("text"))
    if found is not None:
        replace_message(body, found)
    return found


def replace_message(body: dict[str, Any], found: TextCalls) -> None:
    """Puts calls behind, or in the place of, the message whose text they were."""
    output = body["output"]
    messages = [item for item in list_dicts(body, "output") if item.get("type") == "message"]
    place = output.index(messages[0]) if messages else len(output)
    for part in list_dicts(messages[0] if messages else {}, "content"):
        part["text"] = found.left.strip()
    shown = messages[:1] if found.left.strip() else []
    output[place : place + 1] = [*shown, *found.write_items()]


@dataclass(frozen=True)
class StreamPart:
    """What an event is. kind: TEXT; END of the answer; UNREAD, behind which no call is in text;
    OTHER. text: of the answer. ends_well: it is not cut off."""

    kind: str
    text: str = ""
    ends_well: bool = False


class TextForm(Protocol):
    """The events of one API, for one answer."""

    def read_event(self, event: StreamEvent) -> StreamPart: ...

    def write_calls(
        self, held: list[StreamEvent], found: TextCalls, rest: str, report: Any
    ) -> Iterator[bytes]:
        """The held events, the last of them the end, with calls. rest: of the text, not yet sent.
        report: the field `toolmill`."""
        ...


class _TextWatch:
    """The text of an answer. sent: characters that went on."""

    def __init__(self, names: list[str]) -> None:
        self._names, self._parts = names, list[str]()
        self._tail, self._length, self.sent = "", 0, 0
        self._begun = False

    @property
    def text(self) -> str:
        return "".join(self._parts)

    def add_text(self, piece: str) -> bool:
        """Whether it is to be held: a call is begun, or may be."""
        self._parts.append(piece)
        self._length += len(piece)
        window = self._tail + piece
        self._tail = window[-_WINDOW:]
        _, thought, start = window.rpartition(_THOUGHT_ENDS)
        starts = bool(thought) or len(window) == self._length
        self._begun = self._begun or begins_call(window)
        waits = self._begun or may_begin_call(start, self._names, starts=starts)
        self._begun = waits and (self._begun or self._length - self.sent > _WINDOW)
        if not waits:
            self.sent = self._length
        return waits


class TextCallStream:
    """The events of a streamed answer, before `inner` reads the calls that its API knows.

    most: bytes that are held back; beyond them the rest passes as it came.
    """

    def __init__(
        self, inner: Any, form: Callable[[], TextForm], repair: CallRepair, most: int
    ) -> None:
        self._inner, self._form = inner(repair, most), form()
        self._repair, self._most = repair, most
        self._watch = _TextWatch(repair.list_names())
        self._held: list[StreamEvent] = []
        self._size, self._over = 0, not repair.reads_text

    async def feed(self, event: StreamEvent) -> bytes:
        """What may be sent now that this event came."""
        if self._over:
            return await self._inner.feed(event)
        part = self._form.read_event(event)
        waits = part.kind in (TEXT, END) and self._watch.add_text(part.text)
        if part.kind == END and waits and part.ends_well:
            found = await take_text_calls(self._repair, self._watch.text)
            sent = self._watch.text[: self._watch.sent]
            if found is not None and found.left.startswith(sent.rstrip()):
                self._over, held = True, [*self._held, event]
                self._held, rest = [], found.left[len(sent) :]
                report = self._repair.describe_field()
                return b"".join(self._form.write_calls(held, found, rest, report))
        self._over = part.kind in (END, UNREAD)
        if (waits or (self._held and part.kind == OTHER)) and not self._over:
            self._held.append(event)
            self._size += len(event.raw)
            self._over = self._size > self._most
            if not self._over:
                return b""
            event = self._held.pop()
        ready, self._held = [*self._held, event], []
        return b"".join([await self._inner.feed(item) for item in ready])

    def drain(self) -> Iterator[bytes]:
        """What was held back, as it came."""
        yield from self._inner.drain()
        yield from (item.raw for item in self._held)
        self._held = []


class ChatText:
    """Chunks of a chat completion with one choice."""

    def read_event(self, event: StreamEvent) -> StreamPart:
        choices = list_dicts(event.data, "choices")
        if not choices:
            failed = event.data is None or event.data.get("error")
            return StreamPart(UNREAD if failed and event.raw.startswith(b"data") else OTHER)
        delta = choices[0].get("delta")
        delta = delta if isinstance(delta, dict) else {}
        several = len(choices) > 1 or choices[0].get("index") not in (0, None)
        if several or delta.get("tool_calls") or delta.get("function_call"):
            return StreamPart(UNREAD)
        text = delta.get("content")
        text = text if isinstance(text, str) else ""
        reason = choices[0].get("finish_reason")
        if reason:
            return StreamPart(END, text, reason in ("stop", "tool_calls"))
        return StreamPart(TEXT if text else OTHER, text)

    def write_calls(
        self, held: list[StreamEvent], found: TextCalls, rest: str, report: Any
    ) -> Iterator[bytes]:
        for event in held:
            if event.data is None:  # a comment that keeps the connection
                yield event.raw
                continue
            [choice] = list_dicts(event.data, "choices") or [{}]
            delta = choice.get("delta")
            delta = delta if isinstance(delta, dict) else {}
            if isinstance(delta.get("content"), str):
                del delta["content"]
                delta |= {"content": rest} if rest else {}
                rest = ""
            if event is held[-1]:
                # One chunk a call: LlamaIndex reads the first of a chunk alone.
                for at, call in enumerate(found.write_chat()):
                    part = {**delta, "tool_calls": [{"index": at, **call}]}
                    chunk = {**choice, "delta": part, "finish_reason": None}
                    yield write_event({**event.data, "choices": [chunk]})
                    delta = {}
                event.data["choices"] = [{**choice, "delta": {}, "finish_reason": "tool_calls"}]
                event.data["toolmill"] = report
            if delta or not choice or event is held[-1]:
                yield event.encode()


class MessageText:
    """Events of Anthropic's API whose answer has one block of text."""

    _BLOCKS: ClassVar = ("thinking", "redacted_thinking")

    def __init__(self) -> None:
        self._index: Any = None  # of the block of text

    def read_event(self, event: StreamEvent) -> StreamPart:
        data = event.data or {}
        kind, block, delta = data.get("type"), data.get("content_block"), data.get("delta")
        if kind == "content_block_start" and isinstance(block, dict):
            if block.get("type") == "text" and self._index is None:
                self._index = data.get("index")
                return StreamPart(TEXT, str(block.get("text") or ""))
            before = block.get("type") in self._BLOCKS and self._index is None
            return StreamPart(OTHER if before else UNREAD)  # calls take the places behind the text
        if kind == "content_block_delta" and isinstance(delta, dict):
            text = delta.get("text")
            return StreamPart(TEXT, text) if isinstance(text, str) else StreamPart(OTHER)
        if kind == "message_delta":
            reason = delta.get("stop_reason") if isinstance(delta, dict) else None
            ends = reason in ("end_turn", "stop_sequence", "tool_use")
            return StreamPart(END, "", ends and isinstance(self._index, int))
        return StreamPart(UNREAD if kind in ("message_stop", "error") else OTHER)

    def write_calls(
        self, held: list[StreamEvent], found: TextCalls, rest: str, report: Any
    ) -> Iterator[bytes]:
        begun = (held[0].data or {}).get("type") != "content_block_start"
        shown = begun or bool(found.left.strip())
        for event in held[:-1]:
            data = event.data
            if data is None:  # a comment
                yield event.raw
            elif data.get("index") != self._index or (
                shown and data.get("type") == "content_block_start"
            ):
                if data.get("type") == "content_block_start":
                    data["content_block"]["text"] = ""
                yield event.encode()
        if shown:
            delta = {"type": "text_delta", "text": rest}
            block = {"index": self._index}
            if rest:
                yield write_event({"type": "content_block_delta", **block, "delta": delta})
            yield write_event({"type": "content_block_stop", **block})
        for at, call in enumerate(found.write_uses(), self._index + shown):
            delta = {"type": "input_json_delta", "partial_json": json.dumps(call["input"])}
            empty = {**call, "input": {}}
            yield write_event({"type": "content_block_start", "index": at, "content_block": empty})
            yield write_event({"type": "content_block_delta", "index": at, "delta": delta})
            yield write_event({"type": "content_block_stop", "index": at})
        end = held[-1].data or {}
        end["delta"] |= {"stop_reason": "tool_use", "stop_sequence": None}
        yield write_event({**end, "toolmill": report})


class ResponseText:
    """Events of the Responses API whose answer has one message."""

    def __init__(self) -> None:
        self._at: Any = None  # place of the message

    def read_event(self, event: StreamEvent) -> StreamPart:
        data = event.data or {}
        kind, item = str(data.get("type")), data.get("item")
        if kind == "response.output_item.added" and isinstance(item, dict):
            if item.get("type") == "message" and self._at is None:
                self._at = data.get("output_index")
                return StreamPart(TEXT)
            before = item.get("type") == "reasoning" and self._at is None
            return StreamPart(OTHER if before else UNREAD)
        if kind == "response.output_text.delta":
            return StreamPart(TEXT, str(data.get("delta") or ""))
        if kind == "response.completed":
            whole = data.get("response")
            listed = isinstance(whole, dict) and isinstance(whole.get("output"), list)
            return StreamPart(END, "", listed and isinstance(self._at, int))
        over = kind in ("response.incomplete", "response.failed", "error")
        return StreamPart(UNREAD if over else OTHER)

    def write_calls(
        self, held: list[StreamEvent], found: TextCalls, rest: str, report: Any
    ) -> Iterator[bytes]:
        events = [event.data for event in held if event.data is not None]
        number = events[0].get("sequence_number")
        for data in self._list_events(events, found, rest, report):
            numbered = {**data, "sequence_number": number} if isinstance(number, int) else data
            number = number + 1 if isinstance(number, int) else number
            yield write_event(numbered)

    def _list_events(
        self, events: list[dict[str, Any]], found: TextCalls, rest: str, report: Any
    ) -> Iterator[JsonObject]:
        shown = events[0].get("type") != "response.output_item.added" or bool(found.left.strip())
        for data in events[:-1]:
            if data.get("output_index") != self._at:
                yield data
            elif shown and data.get("type") == "response.output_text.delta":
                if rest:
                    yield {**data, "delta": rest}
                rest = ""
            elif shown:
                for part in [data, data.get("part"), *list_dicts(data.get("item"), "content")]:
                    if isinstance(part, dict) and part.get("text"):
                        part["text"] = found.left
                yield data
        items = list(found.write_items())
        for at, item in enumerate(items, self._at + shown):
            yield from list_item_events(at, item)
        response = events[-1]["response"]
        replace_message(response, found)
        response["toolmill"] = report
        yield events[-1]
