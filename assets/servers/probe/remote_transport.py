"""The guarded HTTP transport of remote servers: requests, redirects, and how much is read."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

import anyio
import anyio.lowlevel
import httpx2

from assets.servers.probe.failure_kinds import ProbeFailure
from assets.servers.probe.remote_outcome import RemoteFailure, show_text, show_url
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
    """What we do not send or read on; says why."""

    def __init__(self, failure: ProbeFailure) -> None:
        super().__init__(failure.detail)
        self.failure = failure


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
            raise TransportRefusal(
                ProbeFailure("oversize", f"more than {self.limit // MIB} MB in all")
            )


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
                return self._decoded(response, hop)
            await response.aclose()
            hop = _follow_redirect(hop, response.status_code, location)
        raise TransportRefusal(RemoteFailure("protocol_error", f"more than {_REDIRECTS} redirects"))

    async def aclose(self) -> None:
        await self._inner.aclose()

    def _decoded(self, raw: httpx2.Response, request: httpx2.Request) -> httpx2.Response:
        encodings = raw.headers.get("content-encoding", "identity").lower().strip()
        if encodings not in ("identity", "gzip", "deflate"):
            detail = f"content encoding {show_text(encodings, 40)!r}, expected gzip or none"
            raise TransportRefusal(RemoteFailure("protocol_error", detail))
        cap = None if request.extensions.get(MESSAGE) else _OTHER_BODY
        headers = [
            (name, value)
            for name, value in raw.headers.multi_items()
            if name.lower() not in ("content-encoding", "content-length", "transfer-encoding")
        ]
        stream = _CountedBody(raw, self.meter, cap)
        return httpx2.Response(raw.status_code, headers=headers, stream=stream)


class _CountedBody(httpx2.AsyncByteStream):
    """A body, decompressed in pieces of at most 1 MiB (httpx2's bound), each of them counted."""

    def __init__(self, response: httpx2.Response, meter: ByteMeter, cap: int | None) -> None:
        self._response, self._meter, self._cap = response, meter, cap

    async def __aiter__(self) -> AsyncIterator[bytes]:
        total = 0
        async for piece in self._response.aiter_bytes():
            self._meter.add(decoded=len(piece))
            total += len(piece)
            if self._cap is not None and total > self._cap:
                raise TransportRefusal(
                    ProbeFailure("oversize", f"an answer of more than {self._cap // MIB} MB")
                )
            yield piece
            await anyio.lowlevel.checkpoint()  # a flood must not starve the clocks

    async def aclose(self) -> None:
        await self._response.aclose()


def _follow_redirect(request: httpx2.Request, status: int, location: str) -> httpx2.Request:
    """The request that follows a redirect. Raises Refused where it must not be followed."""
    here = request.url
    try:
        there = here.join(location)
    except httpx2.InvalidURL as error:
        detail = f"answered {status} to an address that is none"
        raise TransportRefusal(RemoteFailure("protocol_error", detail)) from error
    to = show_url(str(there))
    if there.scheme not in ("http", "https") or not there.host or there.userinfo:
        fix = "only plain http(s) addresses are followed"
        raise TransportRefusal(RemoteFailure("policy_denied", f"a redirect to {to}", fix))
    if here.scheme == "https" and there.scheme == "http":
        detail, fix = f"a redirect from https to {to}", "list the server under its https address"
        raise TransportRefusal(RemoteFailure("policy_denied", detail, fix))
    message = bool(request.extensions.get(MESSAGE))
    same = _is_same_origin(here, there)
    if request.method == "POST" and (status in (302, 303) or (not message and not same)):
        detail = f"answered POST with {status} to {to}, which would lose or leak what was sent"
        raise TransportRefusal(
            RemoteFailure("protocol_error", detail, "use that address if it is the server")
        )
    headers = [("host", there.netloc.decode())]
    headers += [
        (name, value)
        for name, value in request.headers.multi_items()
        if name.lower() != "host" and (same or name.lower() in _PLAIN)
    ]
    return httpx2.Request(
        request.method, there, headers=headers, stream=request.stream, extensions=request.extensions
    )


def _is_same_origin(a: httpx2.URL, b: httpx2.URL) -> bool:
    if (a.scheme, a.host, a.port) == (b.scheme, b.host, b.port):
        return True
    ours = a.host == b.host and (a.port, b.port) == (None, None)
    return ours and (a.scheme, b.scheme) == ("http", "https")
