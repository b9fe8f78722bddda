"""One exchange with a client: the answer, events of a stream, and counters for Prometheus."""

import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from functools import cached_property
from typing import Any

from warehouse.json_types import JsonObject

_JSON, _STREAM = b"application/json", b"text/event-stream"
_BOUNDS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0)  # seconds
_HELP = {
    "requests": "answers by status",
    "refused": "requests that a limit refused, by reason",
    "first_calls": "conversations that a local model was asked to begin, by outcome",
    "upstream_failures": "requests that got no answer of the upstream, by reason",
    "calls_repaired": "calls that were changed",
    "calls_revised": "calls that a model was asked about, by outcome",
    "tool_searches": "searches for tools that a model made, by outcome",
    "calls_left": "calls that do not fit and were not changed",
}
_END = re.compile(rb"\r\n\r\n|\n\n|\r\r")


class RequestRefused(Exception):
    """What the client is told in the place of an answer, in one line."""

    def __init__(self, status: int, code: str, message: str, *, retry_s: int = 0) -> None:
        super().__init__(message)
        self.status, self.code, self.retry_s = status, code, retry_s

    def describe_error(self) -> bytes:
        """The body, in the shape of OpenAI's errors, and with the `type` of Anthropic's."""
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        error = {"message": str(self), "type": kind, "param": None, "code": self.code}
        return json.dumps({"type": "error", "error": error}).encode()


class HttpExchange:
    """Sends one answer. status: as sent, 0 before; repaired: calls that were changed in it."""

    def __init__(self, send: Any) -> None:
        self._send, self._streams = send, False
        self.status = self.repaired = 0

    @property
    def started(self) -> bool:
        """Whether the status is sent: another can no more be."""
        return self.status != 0

    async def start(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> None:
        """Sends status and headers."""
        self.status = status
        self._streams = dict(headers).get(b"content-type", b"").startswith(_STREAM)
        listed = [*headers]
        await self._send({"type": "http.response.start", "status": status, "headers": listed})

    async def send_part(self, part: bytes) -> None:
        """Sends bytes of the body."""
        await self._send({"type": "http.response.body", "body": part, "more_body": True})

    async def end(self) -> None:
        """Ends the body."""
        await self._send({"type": "http.response.body", "body": b""})

    async def send_whole(
        self, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes
    ) -> None:
        """Sends a body whose length is known."""
        await self.start(status, [*headers, (b"content-length", str(len(body)).encode())])
        await self._send({"type": "http.response.body", "body": body})

    async def send_text(self, text: str) -> None:
        """Sends plain text."""
        kind = (b"content-type", b"text/plain; version=0.0.4; charset=utf-8")
        await self.send_whole(200, [kind], text.encode())

    async def send_error(self, error: RequestRefused) -> None:
        """Tells an error: as the answer, as the last event of a stream; any other body that has
        begun is left without its end, so that nobody takes it for whole."""
        if not self.started:
            headers = [(b"content-type", _JSON)]
            if error.retry_s:
                headers.append((b"retry-after", str(error.retry_s).encode()))
            if error.status == 413:  # its rest is not read
                headers.append((b"connection", b"close"))
            await self.send_whole(error.status, headers, error.describe_error())
        elif self._streams:
            # The SDKs of Anthropic read no event without a name.
            await self.send_part(b"event: error\ndata: " + error.describe_error() + b"\n\n")
            await self.end()


class ProxyMetrics:
    """Counters, one gauge and one histogram, for one event loop."""

    def __init__(self) -> None:
        self.open = 0  # requests that are being answered
        self._counts: Counter[tuple[str, str]] = Counter()
        self._buckets: Counter[float] = Counter()
        self._sum, self._n = 0.0, 0

    def count(self, name: str, label: str = "", by: int = 1) -> None:
        """One more of a counter. label: like `status="200"`."""
        self._counts[name, label] += by

    def observe_overhead(self, seconds: float) -> None:
        """What one request cost here: reading, judging and writing; waiting left out."""
        self._sum, self._n = self._sum + seconds, self._n + 1
        bound = next((item for item in _BOUNDS if seconds <= item), None)
        if bound is not None:
            self._buckets[bound] += 1

    def render_text(self) -> str:
        """All of them, as `GET /metrics` answers."""
        return "\n".join([*self._render_counters(), *self._render_rest(), ""])

    def _render_counters(self) -> Iterator[str]:
        for name, words in _HELP.items():
            full = f"toolmill_proxy_{name}_total"
            yield f"# HELP {full} {words}"
            yield f"# TYPE {full} counter"
            labels = sorted(label for one, label in self._counts if one == name)
            for label in labels or [""]:
                shown = f"{{{label}}}" if label else ""
                yield f"{full}{shown} {self._counts[name, label]}"

    def _render_rest(self) -> Iterator[str]:
        yield "# HELP toolmill_proxy_open_requests requests that are being answered"
        yield "# TYPE toolmill_proxy_open_requests gauge"
        yield f"toolmill_proxy_open_requests {self.open}"
        full = "toolmill_proxy_overhead_seconds"
        yield f"# HELP {full} time spent in the proxy by one request, waiting left out"
        yield f"# TYPE {full} histogram"
        below = 0
        for bound in _BOUNDS:
            below += self._buckets[bound]
            yield f'{full}_bucket{{le="{bound}"}} {below}'
        yield f'{full}_bucket{{le="+Inf"}} {self._n}'
        yield f"{full}_sum {self._sum:.6f}"
        yield f"{full}_count {self._n}"


class StreamEvent:
    """raw: as it was sent, with the empty line that ends it. data: its JSON object, None for
    anything else, read when it is first asked for. whole: False for what came after the last whole
    event."""

    def __init__(self, raw: bytes, *, whole: bool = True, unread: bool = False) -> None:
        self.raw, self.whole = raw, whole
        if unread or not whole:
            self.data = None

    @cached_property
    def data(self) -> dict[str, Any] | None:
        lines = [line[5:] for line in self.raw.splitlines() if line.startswith(b"data:")]
        return read_object(b"\n".join(lines))

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

    def take(self, part: bytes) -> list[StreamEvent]:
        """The events that these bytes end."""
        buffer, found, begun = self._buffer + part, list[StreamEvent](), 0
        for match in _END.finditer(buffer, max(0, self._searched - 3)):
            found.append(StreamEvent(buffer[begun : match.end()]))
            begun = match.end()
        rest = buffer[begun:] if begun else buffer
        if len(rest) > self._most:
            found.append(StreamEvent(rest, unread=True))
            rest = b""
        self._buffer, self._searched = rest, len(rest)
        return found

    def end(self) -> list[StreamEvent]:
        """What came after the last whole event."""
        return [StreamEvent(self._buffer, whole=False)] if self._buffer else []


async def read_events(parts: AsyncIterator[bytes], most: int) -> AsyncIterator[StreamEvent]:
    """The events of a body, each longer than `most` bytes part by part, unread."""
    reader = EventReader(most)
    async for part in parts:
        for event in reader.take(part):
            yield event
    for event in reader.end():
        yield event


def write_event(data: JsonObject) -> bytes:
    """An event of a stream, named by its `type` where it has one."""
    name = f"event: {data['type']}\n" if "type" in data else ""
    return f"{name}data: {json.dumps(data)}\n\n".encode()


def read_object(text: str | bytes) -> dict[str, Any] | None:
    """The JSON object that is the whole text; None for anything else."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def list_dicts(holder: Any, key: str) -> list[dict[str, Any]]:
    """The objects in a list of an object; [] for anything else."""
    found = holder.get(key) if isinstance(holder, dict) else None
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []
