"""Server-sent events, read one by one without changing a byte of them."""

import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

_END = re.compile(rb"\r\n\r\n|\n\n|\r\r")


@dataclass(eq=False)
class Event:
    """raw: as it was sent, with the empty line that ends it. data: its JSON object, None for
    anything else. whole: False for what came after the last whole event."""

    raw: bytes
    data: dict[str, Any] | None
    whole: bool = True

    def encode(self) -> bytes:
        """The event with `data` as it is now."""
        kept = [line for line in self.raw.splitlines() if line and not line.startswith(b"data")]
        body = json.dumps(self.data, separators=(",", ":")).encode()  # half a pair is no UTF-8
        return b"\n".join([*kept, b"data: " + body]) + b"\n\n"


async def read_events(parts: AsyncIterator[bytes], most: int) -> AsyncIterator[Event]:
    """The events of a body. One longer than `most` bytes is handed on part by part, unread."""
    buffer, searched = b"", 0
    async for part in parts:
        buffer += part
        while match := _END.search(buffer, max(0, searched - 3)):
            raw, buffer, searched = buffer[: match.end()], buffer[match.end() :], 0
            yield Event(raw, _read_data(raw))
        searched = len(buffer)
        if len(buffer) > most:
            yield Event(buffer, None)
            buffer, searched = b"", 0
    if buffer:
        yield Event(buffer, None, whole=False)


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
