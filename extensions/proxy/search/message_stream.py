"""A streamed answer of Anthropic's Messages API: held event by event, read as one message.

Source: the events of https://platform.claude.com/docs/en/build-with-claude/streaming
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from extensions.proxy.events import Event

# Of a delta: its type -> (its field, the field of the block that grows).
_GROWING = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "signature_delta": ("signature", "signature"),
}


class HeldMessage:
    """The events of one answer and the message that they make. ended: its last one came."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.message: dict[str, Any] = {}
        self.size, self.ended = 0, False
        self._blocks: dict[int, dict[str, Any]] = {}
        self._inputs: dict[int, str] = {}

    def take(self, event: Event) -> None:
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
            given, field = _GROWING[kind]
            block[field] = str(block.get(field) or "") + str(delta.get(given) or "")

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
