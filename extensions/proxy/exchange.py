"""One exchange with a client: what was sent of the answer until now."""

import json
from collections.abc import Sequence
from typing import Any

_JSON, _STREAM = b"application/json", b"text/event-stream"


class Refused(Exception):
    """What the client is told in the place of an answer, in one line."""

    def __init__(self, status: int, code: str, message: str, *, retry_s: int = 0) -> None:
        super().__init__(message)
        self.status, self.code, self.retry_s = status, code, retry_s

    def describe_error(self) -> bytes:
        """The body, in the shape of OpenAI's errors, and with the `type` of Anthropic's."""
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        error = {"message": str(self), "type": kind, "param": None, "code": self.code}
        return json.dumps({"type": "error", "error": error}).encode()


class Exchange:
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

    async def send_error(self, error: Refused) -> None:
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
