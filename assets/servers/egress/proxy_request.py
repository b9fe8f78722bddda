"""What a client asks a gateway for: a host and a port, in SOCKS 5 or as to an HTTP proxy."""

import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from anyio.abc import ByteSendStream
from anyio.streams.buffered import BufferedByteReceiveStream

Host = tuple[str, int]
REFUSED, FAILED = 2, 5  # SOCKS: not allowed by ruleset, connection refused
_SIZES = {1: 4, 4: 16}  # bytes of an IPv4 and an IPv6 address
_LABEL = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)")
_MOST_HEAD = 32_768  # bytes
# Not 403: what a program says of that reads like a key that is refused.
_STATUS = {REFUSED: "421 Not granted", FAILED: "502 Bad Gateway"}
# Of this connection alone, and not for the host behind it.
_OURS = ("proxy-authorization", "proxy-connection", "connection", "keep-alive")


@dataclass(frozen=True)
class Request:
    """Where a client wants to go. head: what the host is sent first, in the client's name. http:
    whether it is answered as an HTTP proxy answers; tunnel: whether it asked for bytes alone."""

    host: str
    port: int
    head: bytes = b""
    http: bool = False
    tunnel: bool = True

    def make_reply(self, code: int) -> bytes:
        """The answer: 0 for a connection that stands, else why there is none."""
        if not self.http:
            return bytes([5, code, 0, 1]) + bytes(6)
        if not code:
            return b"HTTP/1.1 200 Connection established\r\n\r\n" if self.tunnel else b""
        why = "was not granted" if code == REFUSED else "does not answer"
        body = f"{self.host}:{self.port} {why}\n".encode()
        head = f"HTTP/1.1 {_STATUS[code]}\r\nContent-Type: text/plain\r\nConnection: close\r\n"
        return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


async def read_request(received: BufferedByteReceiveStream, client: ByteSendStream) -> Request:
    """What a client asks for. Raises ValueError for what is neither SOCKS 5 nor HTTP to a proxy."""
    first = await received.receive_exactly(1)
    if first == b"\5":
        return await _read_socks(received, client)
    if not first.isalpha():
        raise ValueError("neither SOCKS 5 nor HTTP")
    return _parse_http(first + await received.receive_until(b"\r\n\r\n", _MOST_HEAD))


async def _read_socks(received: BufferedByteReceiveStream, client: ByteSendStream) -> Request:
    (methods,) = await received.receive_exactly(1)
    await received.receive_exactly(methods)
    await client.send(b"\5\0")
    version, command, _, kind = await received.receive_exactly(4)
    if (version, command) != (5, 1) or kind not in (1, 3, 4):
        raise ValueError("no SOCKS 5 request to connect")
    size = _SIZES.get(kind) or (await received.receive_exactly(1))[0]
    raw = await received.receive_exactly(size)
    host = raw.decode("ascii") if kind == 3 else str(ipaddress.ip_address(raw))
    port = int.from_bytes(await received.receive_exactly(2), "big")
    return Request(normalise_host(host), port)


def _parse_http(head: bytes) -> Request:
    """`CONNECT host:port`, or `GET http://host/path` with the lines behind it."""
    line, *fields = head.decode("latin-1").split("\r\n")
    method, target, version = line.split(" ")
    if method == "CONNECT":
        parts = urlsplit(f"//{target}")
        return Request(normalise_host(parts.hostname or ""), parts.port or 443, http=True)
    parts = urlsplit(target)
    if parts.scheme != "http" or not parts.hostname:
        raise ValueError("no address that a proxy is asked for")
    path = parts._replace(scheme="", netloc="", fragment="").geturl() or "/"
    kept = [field for field in fields if field and field.partition(":")[0].lower() not in _OURS]
    # One request a connection: the next one may be for another host.
    sent = "\r\n".join([f"{method} {path} {version}", *kept, "Connection: close", "", ""])
    host = normalise_host(parts.hostname)
    return Request(host, parts.port or 80, sent.encode("latin-1"), http=True, tunnel=False)


def is_host_name(host: str) -> bool:
    """Whether it is a name of ASCII letters, as `normalise_host` gives it. `127.1` and `2130706433`
    are addresses to a resolver: no name ends in a number."""
    labels = host.split(".")
    return (
        len(host) <= 253
        and all(_LABEL.fullmatch(label) for label in labels)
        and re.fullmatch(r"[0-9]+|0x[0-9a-f]*", labels[-1]) is None
    )


def normalise_host(host: str) -> str:
    """A host as it is compared: lower case, without the dot behind it, an address in one form."""
    name = host.lower().rstrip(".")
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        return name
