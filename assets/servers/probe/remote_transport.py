"""The guarded HTTP client given to the SDK's transports: limits, redirects, filtered answers."""

import json
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urljoin, urlsplit

import anyio
import anyio.lowlevel
import httpx2

from assets.servers.probe.failure_kinds import ConversationEnd, ProbeFailure
from assets.servers.probe.json_message import AmbiguousJson, OversizeMessage, read_message
from assets.servers.probe.remote_outcome import (
    RefusedAnswer,
    RemoteFailure,
    classify_exception,
    classify_refusal,
    show_text,
    show_url,
)
from assets.servers.probe.transcript import MessageFilter
from warehouse.network.egress import EgressConnector
from warehouse.network.http import AsyncTransport

MIB = 1024 * 1024
MESSAGE = "toolmill.message"  # the extension of requests that carry MCP, not OAuth
_REDIRECTS = 3
_REDIRECT = (301, 302, 303, 307, 308)
_OTHER_BODY = MIB  # of answers that carry no MCP: OAuth's metadata and tokens
# What another origin is told: nothing that was configured for the first one.
_PLAIN = frozenset(
    (
        *("accept", "accept-encoding", "cache-control", "content-type", "content-length"),
        *("last-event-id", "mcp-protocol-version", "mcp-session-id", "user-agent"),
    )
)


class TransportRefusal(httpx2.TransportError):
    """What we do not send or read on; says why, and what to do."""

    def __init__(self, kind: str, detail: str, advice: str = "") -> None:
        super().__init__(detail)
        self.failure = RemoteFailure(kind, detail, advice)


@dataclass
class ByteMeter:
    """Counts what comes in. A stream of empty compressed blocks decodes to nothing and a bomb is
    small on the wire, so both are counted."""

    limit: int
    wire: int = 0
    decoded: int = 0

    def add(self, *, wire: int = 0, decoded: int = 0) -> None:
        self.wire, self.decoded = self.wire + wire, self.decoded + decoded
        if max(self.wire, self.decoded) > self.limit:
            raise TransportRefusal("oversize", f"more than {self.limit // MIB} MB in all")


@dataclass(frozen=True)
class RemotePolicy:
    """Limits of one remote probe. max_mb: bytes of all answers, on the wire and decompressed each;
    message_mb: of one answer or event; wall_s: for everything; connect_s: until a connection."""

    allow_loopback: bool = False
    max_mb: int = 64
    message_mb: int = 16
    wall_s: float = 60.0
    connect_s: float = 10.0


class GuardedTransport(httpx2.AsyncBaseTransport):
    """Sends requests within the policy and hands back what answers, decompressed.

    Behind the environment's proxy bytes are counted decompressed only.
    """

    def __init__(
        self,
        policy: RemotePolicy,
        connector: EgressConnector | None = None,
        inner: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self.policy = policy
        self.meter = ByteMeter(policy.max_mb * MIB)
        connector = connector or EgressConnector(allow_loopback=policy.allow_loopback)
        connector.count = lambda size: self.meter.add(wire=size)
        self._inner = inner or AsyncTransport(connector)
        self._timeout = httpx2.Timeout(policy.wall_s, connect=policy.connect_s).as_dict()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        hop = request
        for _ in range(_REDIRECTS + 1):
            hop.extensions["timeout"] = self._timeout  # OAuth's own requests come without any
            response = await self._inner.handle_async_request(hop)
            location = response.headers.get("location")
            if response.status_code not in _REDIRECT or not location:
                return self._decode(response, hop)
            await response.aclose()
            hop = _follow_redirect(hop, response.status_code, location)
        raise TransportRefusal("protocol_error", f"more than {_REDIRECTS} redirects")

    async def aclose(self) -> None:
        await self._inner.aclose()

    def _decode(self, raw: httpx2.Response, request: httpx2.Request) -> httpx2.Response:
        encodings = raw.headers.get("content-encoding", "identity").lower().strip()
        if encodings not in ("identity", "gzip", "deflate"):
            detail = f"content encoding {show_text(encodings, 40)!r}, expected gzip or none"
            raise TransportRefusal("protocol_error", detail)
        cap = None if request.extensions.get(MESSAGE) else _OTHER_BODY
        changed = ("content-encoding", "content-length", "transfer-encoding")
        pairs = raw.headers.multi_items()
        headers = [(name, value) for name, value in pairs if name.lower() not in changed]
        stream = _CountedBody(raw, self.meter, cap)
        return httpx2.Response(raw.status_code, headers=headers, stream=stream)


@dataclass
class _CountedBody(httpx2.AsyncByteStream):
    """A body, decompressed in pieces of at most 1 MiB (httpx2's bound), each of them counted."""

    response: httpx2.Response
    meter: ByteMeter
    cap: int | None

    async def __aiter__(self) -> AsyncIterator[bytes]:
        total = 0
        async for piece in self.response.aiter_bytes():
            self.meter.add(decoded=len(piece))
            total += len(piece)
            if self.cap is not None and total > self.cap:
                raise TransportRefusal("oversize", f"an answer of more than {self.cap // MIB} MB")
            yield piece
            await anyio.lowlevel.checkpoint()  # a flood must not starve the clocks

    async def aclose(self) -> None:
        await self.response.aclose()


def _follow_redirect(request: httpx2.Request, status: int, location: str) -> httpx2.Request:
    """The request that follows. Raises TransportRefusal where it must not be followed."""
    here = request.url
    try:
        there = here.join(location)
    except httpx2.InvalidURL as error:
        detail = f"answered {status} to an address that is none"
        raise TransportRefusal("protocol_error", detail) from error
    to = show_url(str(there))
    if there.scheme not in ("http", "https") or not there.host or there.userinfo:
        fix = "only plain http(s) addresses are followed"
        raise TransportRefusal("policy_denied", f"a redirect to {to}", fix)
    if here.scheme == "https" and there.scheme == "http":
        fix = "list the server under its https address"
        raise TransportRefusal("policy_denied", f"a redirect from https to {to}", fix)
    same = (here.scheme, here.host, here.port) == (there.scheme, there.host, there.port)
    upgraded = (here.scheme, here.port, there.scheme, there.port) == ("http", None, "https", None)
    same = same or (here.host == there.host and upgraded)
    message = bool(request.extensions.get(MESSAGE))
    if request.method == "POST" and (status in (302, 303) or (not message and not same)):
        detail = f"answered POST with {status} to {to}, which would lose or leak what was sent"
        fix = "use that address if it is the server"
        raise TransportRefusal("protocol_error", detail, fix)
    headers = [("host", there.netloc.decode())]
    headers += [
        (name, value)
        for name, value in request.headers.multi_items()
        if name.lower() != "host" and (same or name.lower() in _PLAIN)
    ]
    return httpx2.Request(
        request.method, there, headers=headers, stream=request.stream, extensions=request.extensions
    )


MAX_EVENTS = 10_000  # of one probe; a server of 200 pages sends some hundreds
_BATCH = 100  # messages in one body (a list, until the protocol of 2025-06-18)
_ID = re.compile(r"[\x21-\x7e]{1,512}")  # ids of events and sessions come back as headers


class MessageReader:
    """Reads bodies of one connection. A body becomes events of the SDK's own kind: JSON answers
    too, so that a list of messages and an answer to nothing have one form."""

    def __init__(self, listener: MessageFilter, message_mb: int) -> None:
        self._listener, self._cap, self._events = listener, message_mb * MIB, 0

    async def read_json(self, response: httpx2.Response) -> AsyncIterator[bytes]:
        body = bytearray()
        async for piece in response.aiter_bytes():
            body += piece
            if len(body) > self._cap:
                raise self._make_oversize_end()
        for event in await self._filter_messages(body.decode("utf-8", "replace"), ""):
            yield event

    async def read_events(
        self, response: httpx2.Response, endpoint_of: str | None = None
    ) -> AsyncIterator[bytes]:
        """endpoint_of: the URL of the stream, where an SSE server names its endpoint in it."""
        # As UTF-8 whatever its header says: event streams have no other encoding.
        facts = {"headers": {_TYPE: _EVENT_STREAM}, "request": response.request}
        retyped = httpx2.Response(200, stream=response.stream, **facts)
        try:
            async for event in httpx2.EventSource(retyped, max_event_size=self._cap):
                self._events += 1
                if self._events > MAX_EVENTS:
                    raise self._make_oversize_end(f"more than {MAX_EVENTS} events")
                event_id = event.id if _ID.fullmatch(event.id) else ""
                if event.event == "endpoint" and endpoint_of is not None:
                    yield _encode_endpoint(event.data, endpoint_of)
                    endpoint_of = None  # the SDK's reader fails on a second one
                elif event.event != "message":
                    self._listener.count_noise(f"event {event.event[:80]!r}")
                elif event.data:
                    for encoded in await self._filter_messages(event.data, event_id):
                        yield encoded
                elif event_id:
                    yield f"id: {event_id}\ndata:\n\n".encode()
        except httpx2.SSEError as error:
            raise self._make_oversize_end() from error

    async def _filter_messages(self, text: str, event_id: str) -> list[bytes]:
        """What the session may see of one body or event, as events."""
        try:
            parsed = await read_message(text)
        except AmbiguousJson as error:
            self._listener.transcript.broken = str(error)
            raise ConversationEnd(ProbeFailure("protocol_error", str(error))) from error
        except OversizeMessage as error:
            raise self._make_oversize_end(str(error)) from error
        except (ValueError, RecursionError):
            parsed = None
        prefix, passed = f"id: {event_id}\n".encode() if event_id else b"", []
        for item in (parsed if isinstance(parsed, list) else [parsed])[:_BATCH]:
            if not isinstance(item, dict) or item.get("jsonrpc") != "2.0":
                self._listener.count_noise(show_text(repr(text[:120])))
            elif (message := self._listener.take(item)) is not None:
                data = json.dumps(message, ensure_ascii=False).encode("utf-8", "replace")
                passed.append(prefix + b"data: " + data + b"\n\n")
        return passed

    def _make_oversize_end(self, detail: str = "") -> ConversationEnd:
        detail = detail or f"a message of more than {self._cap // MIB} MB"
        self._listener.transcript.oversize = detail
        return ConversationEnd(ProbeFailure("oversize", detail))


def _encode_endpoint(data: str, stream_url: str) -> bytes:
    """The endpoint event, where it names the origin of the stream (our headers go there)."""
    endpoint = data
    try:
        endpoint = urljoin(stream_url, data)
        ours, theirs = urlsplit(stream_url), urlsplit(endpoint)
        same = (ours.scheme, ours.netloc) == (theirs.scheme, theirs.netloc)
    except ValueError:
        same = False
    if not same or len(endpoint) > 2048:
        detail = f"its event stream names an endpoint elsewhere, {show_url(endpoint)}"
        advice = "its headers would go to another origin; treat the server with suspicion"
        raise ConversationEnd(RemoteFailure("protocol_error", detail, advice))
    return f"event: endpoint\ndata: {endpoint}\n\n".encode()


MAX_REQUESTS = 1000  # of one attempt: 3 x 200 pages of tools, 60 of the rest, 200 declined requests
MAX_STREAMS = 10  # GETs: a server that ends its stream at once is asked again each second
_SESSION, _TYPE = "mcp-session-id", "content-type"
_EVENT_STREAM = "text/event-stream; charset=utf-8"
_EXCERPT = 64 * 1024
_FAREWELL_S = 2.0  # for the DELETE of a session

Transport = Literal["http", "sse"]


class ClientWatch:
    """What a client noticed. failure ends the attempt; refusal is the last answer to a message
    that is no MCP; trouble the last lost connection that the SDK may get over."""

    def __init__(self, url: str, scope: anyio.CancelScope) -> None:
        self.url = url
        self._scope = scope
        self.failure: ProbeFailure | None = None
        self.refusal: RefusedAnswer | None = None
        self.trouble: ProbeFailure | None = None

    def stop(self, failure: ProbeFailure) -> None:
        self.failure = self.failure or failure
        self._scope.cancel()


class RemoteClient(httpx2.AsyncClient):
    """One attempt's client."""

    def __init__(
        self,
        wire: GuardedTransport,
        transport: Transport,
        listener: MessageFilter,
        watch: ClientWatch,
        *,
        headers: Mapping[str, str],
        auth: httpx2.Auth | None,
    ) -> None:
        super().__init__(
            transport=wire,
            trust_env=False,  # a .netrc of this host is not for third parties
            auth=auth,
            headers={"user-agent": "toolmill", **headers, "accept-encoding": "gzip"},
        )
        self._sse, self._listener, self._watch = transport == "sse", listener, watch
        self._messages = MessageReader(listener, wire.policy.message_mb)
        self.requests = self._streams = 0
        self.tokens: set[str] = set()  # what was sent as Authorization by `auth`

    def build_request(self, *args: Any, **more: Any) -> httpx2.Request:
        """The SDK builds its messages here, and OAuth's requests elsewhere."""
        request = super().build_request(*args, **more)
        request.extensions[MESSAGE] = True
        return request

    async def send(self, request: httpx2.Request, **more: Any) -> httpx2.Response:
        if not request.extensions.get(MESSAGE):
            return await super().send(request, **more)
        if request.method == "DELETE":
            with anyio.fail_after(_FAREWELL_S):
                return await _make_empty_response(await super().send(request, **more))
        try:
            self.requests += 1
            self._streams += request.method == "GET"
            if self.requests > MAX_REQUESTS:
                raise TransportRefusal("oversize", f"more than {MAX_REQUESTS} requests")
            if self._streams > MAX_STREAMS:
                raise httpx2.ReadError("its stream has ended too often")
            message = json.loads(request.content) if request.method == "POST" else {}
            self._listener.note_request(message)
            response = await super().send(request, **more)
            asks = "method" in message and "id" in message
            content_type = response.headers.get(_TYPE, "").partition(";")[0].strip().lower()
            events, good = content_type == "text/event-stream", response.is_success
            if request.method == "GET":
                if good and events:
                    return self._filter_response(response, events=True)
                if self._sse:
                    await self._note_refusal(request, response)
                return await _make_empty_response(response)
            if not good:
                return await self._note_refusal(request, response)
            self._watch.refusal = None
            if not asks or self._sse:
                return await _make_empty_response(response)
            session_id = response.headers.get(_SESSION)
            if session_id is not None and not _ID.fullmatch(session_id):
                fix = "the server has to fix it"
                raise TransportRefusal("protocol_error", "its session id is no visible ASCII", fix)
            if not events and content_type != "application/json":
                self._watch.refusal = RefusedAnswer(request.method, response)
                return await _make_empty_response(response)
            return self._filter_response(response, events=events)
        except Exception as error:
            failure = classify_exception(error, self._watch.url)
            optional = request.method == "GET" and not self._sse
            if optional and failure.kind not in ("policy_denied", "oversize"):
                self._watch.trouble = failure
            else:
                self._watch.stop(failure)
            raise
        finally:
            if sent := request.headers.get("authorization"):
                self.tokens.add(sent.rpartition(" ")[2])

    async def _note_refusal(
        self, request: httpx2.Request, response: httpx2.Response
    ) -> httpx2.Response:
        """Notes the refusal; the SDK gets a JSON-RPC error where the body is one."""
        body = bytearray()
        async for piece in response.aiter_bytes():
            body += piece[: _EXCERPT - len(body)]
            if len(body) >= _EXCERPT:
                break
        excerpt = body.decode("utf-8", "replace")
        in_session = _SESSION in request.headers
        self._watch.refusal = RefusedAnswer(request.method, response, in_session, excerpt)
        self._listener.transcript.note_error(self._watch.refusal.error)
        if self._sse:
            self._watch.stop(classify_refusal(self._watch.refusal, self._watch.url))
        return await _make_empty_response(response, bytes(body))

    def _filter_response(self, response: httpx2.Response, *, events: bool) -> httpx2.Response:
        endpoint_of = self._watch.url if self._sse else None
        read = self._messages.read_events(response, endpoint_of) if events else None
        body = read or self._messages.read_json(response)
        stream = _FilteredStream(body, response, self._watch, self._sse)
        headers = [(name, value) for name, value in response.headers.multi_items() if name != _TYPE]
        facts = {"headers": [*headers, (_TYPE, _EVENT_STREAM)], "request": response.request}
        return httpx2.Response(response.status_code, stream=stream, **facts)


@dataclass
class _FilteredStream(httpx2.AsyncByteStream):
    """only: it is the one stream of an SSE server, without which the SDK waits for ever."""

    _read: AsyncIterator[bytes]
    _response: httpx2.Response
    _watch: ClientWatch
    _only: bool

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async with aclosing(self._read) as events:  # type: ignore[type-var]
                async for event in events:
                    yield event
        except Exception as error:
            failure = classify_exception(error, self._watch.url)
            if self._only or hasattr(error, "failure"):
                self._watch.stop(failure)
            self._watch.trouble = failure
            raise

    async def aclose(self) -> None:
        await self._response.aclose()


async def _make_empty_response(response: httpx2.Response, body: bytes = b"") -> httpx2.Response:
    """The answer without what is left of its body: the SDK would read one without end."""
    await response.aclose()
    pairs = response.headers.items()
    headers = {name: value for name, value in pairs if name in (_TYPE, _SESSION)}
    return httpx2.Response(
        response.status_code, headers=headers, content=body, request=response.request
    )
