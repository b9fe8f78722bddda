"""The messages in a remote server's answers, and what of them the session sees."""

import json
import re
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urljoin, urlsplit

import httpx2

from assets.servers.probe.failure_kinds import Ended, Failure
from assets.servers.probe.transcript import Ambiguous, Listener, parse_message
from assets.servers.remote.outcome import RemoteFailure, show_text, show_url
from assets.servers.remote.transport import MIB

MAX_EVENTS = 10_000  # of one probe; a server of 200 pages sends some hundreds
_BATCH = 100  # messages in one body (a list, until the protocol of 2025-06-18)
_ID = re.compile(r"[\x21-\x7e]{1,512}")  # event ids come back to the server as a header


class Messages:
    """Reads bodies of one connection. A body becomes events of the SDK's own kind: JSON answers
    too, so that a list of messages and an answer to nothing have one form."""

    def __init__(self, listener: Listener, message_mb: int) -> None:
        self._listener, self._cap, self._events = listener, message_mb * MIB, 0

    async def of_json(self, response: httpx2.Response) -> AsyncIterator[bytes]:
        body = bytearray()
        async for piece in response.aiter_bytes():
            body += piece
            self._check_size(len(body))
        for message in self._parse_messages(body.decode("utf-8", "replace")):
            yield _encode_event(message, "")

    async def of_events(
        self, response: httpx2.Response, endpoint_of: str | None = None
    ) -> AsyncIterator[bytes]:
        """endpoint_of: the URL of the stream, where an SSE server names its endpoint in it."""
        source = httpx2.EventSource(_retype_events(response), max_event_size=self._cap)
        try:
            async for event in source:
                self._count()
                kept = event.id if _ID.fullmatch(event.id) else ""
                if event.event == "endpoint" and endpoint_of is not None:
                    yield _encode_endpoint(event.data, endpoint_of)
                    endpoint_of = None  # the SDK's reader fails on a second one
                elif event.event != "message":
                    self._listener.count_noise(f"event {event.event[:80]!r}")
                elif event.data:
                    for message in self._parse_messages(event.data):
                        yield _encode_event(message, kept)
                elif kept:
                    yield f"id: {kept}\ndata:\n\n".encode()
        except httpx2.SSEError as error:
            self._check_size(self._cap + 1, error)

    def _parse_messages(self, text: str) -> list[dict[str, Any]]:
        """What the session may see of one body or event."""
        try:
            found = parse_message(text)
        except Ambiguous as error:
            self._listener.transcript.broken = str(error)
            raise Ended(Failure("protocol_error", str(error))) from error
        except (ValueError, RecursionError):
            found = None
        passed = []
        for one in (found if isinstance(found, list) else [found])[:_BATCH]:
            if not isinstance(one, dict) or one.get("jsonrpc") != "2.0":
                self._listener.count_noise(show_text(repr(text[:120])))
            elif (message := self._listener.take(one)) is not None:
                passed.append(message)
        return passed

    def _count(self) -> None:
        self._events += 1
        if self._events > MAX_EVENTS:
            self._refuse_oversize(f"more than {MAX_EVENTS} events")

    def _check_size(self, size: int, cause: Exception | None = None) -> None:
        if size > self._cap:
            self._refuse_oversize(f"a message of more than {self._cap // MIB} MB", cause)

    def _refuse_oversize(self, detail: str, cause: Exception | None = None) -> None:
        self._listener.transcript.oversize = detail
        raise Ended(Failure("oversize", detail)) from cause


def _retype_events(response: httpx2.Response) -> httpx2.Response:
    """The same body as UTF-8 whatever its header says: event streams have no other encoding."""
    headers = {"content-type": "text/event-stream; charset=utf-8"}
    return httpx2.Response(200, headers=headers, stream=response.stream, request=response.request)


def _encode_event(message: dict[str, Any], event_id: str) -> bytes:
    try:
        data = json.dumps(message, ensure_ascii=False).encode("utf-8", "replace")
    except RecursionError:
        return b""
    return (f"id: {event_id}\n" if event_id else "").encode() + b"data: " + data + b"\n\n"


def _encode_endpoint(data: str, stream_url: str) -> bytes:
    """The endpoint event, where it names the origin of the stream (our headers go there)."""
    named = data
    try:
        named = urljoin(stream_url, data)
        ours, theirs = urlsplit(stream_url), urlsplit(named)
        same = (ours.scheme, ours.netloc) == (theirs.scheme, theirs.netloc)
    except ValueError:
        same = False
    if not same or len(named) > 2048:
        detail = f"its event stream names an endpoint elsewhere, {show_url(named)}"
        advice = "its headers would go to another origin; treat the server with suspicion"
        raise Ended(RemoteFailure("protocol_error", detail, advice))
    return f"event: endpoint\ndata: {named}\n\n".encode()
