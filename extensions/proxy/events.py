"""Server-sent events, read one by one without changing a byte of them."""

import json
import re
from collections.abc import AsyncIterator
from functools import cached_property
from typing import Any

_END = re.compile(rb"\r\n\r\n|\n\n|\r\r")


class Event:
    """raw: as it was sent, with the empty line that ends it. data: its JSON object, None for
    anything else, read when it is first asked for. whole: False for what came after the last whole
    event."""

    def __init__(self, raw: bytes, *, whole: bool = True, unread: bool = False) -> None:
        self.raw, self.whole = raw, whole
        if unread or not whole:
            self.data = None

    @cached_property
    def data(self) -> dict[str, Any] | None:
        return _read_data(self.raw)

    def encode(self) -> bytes:
        """The event with `data` as it is now."""
        kept = [line for line in self.raw.splitlines() if line and not line.startswith(b"data")]
        body = json.dumps(self.data, separators=(",", ":")).encode()  # half a pair is no UTF-8
        return b"\n".join([*kept, b"data: " + body]) + b"\n\n"


class EventReader:
    """Cuts the bytes of a body into its events. One longer than `most` bytes is handed on part by
    part, unread."""

    def __init__(self, most: int) -> None:
        self._most, self._buffer, self._searched = most, b"", 0

    def take(self, part: bytes) -> list[Event]:
        """The events that these bytes end."""
        buffer, found, begun = self._buffer + part, list[Event](), 0
        for match in _END.finditer(buffer, max(0, self._searched - 3)):
            found.append(Event(buffer[begun : match.end()]))
            begun = match.end()
        rest = buffer[begun:] if begun else buffer
        if len(rest) > self._most:
            found.append(Event(rest, unread=True))
            rest = b""
        self._buffer, self._searched = rest, len(rest)
        return found

    def end(self) -> list[Event]:
        """What came after the last whole event."""
        return [Event(self._buffer, whole=False)] if self._buffer else []


async def read_events(parts: AsyncIterator[bytes], most: int) -> AsyncIterator[Event]:
    """The events of a body, each longer than `most` bytes part by part, unread."""
    reader = EventReader(most)
    async for part in parts:
        for event in reader.take(part):
            yield event
    for event in reader.end():
        yield event


def _read_data(raw: bytes) -> dict[str, Any] | None:
    lines = [line[5:].lstrip(b" ") for line in raw.splitlines() if line.startswith(b"data:")]
    try:
        value = json.loads(b"\n".join(lines))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def list_dicts(holder: Any, key: str) -> list[dict[str, Any]]:
    """The objects in a list of an object; [] for anything else."""
    found = holder.get(key) if isinstance(holder, dict) else None
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
