"""The gateway: a sandbox's only way out, a SOCKS 5 and HTTP proxy that dials granted hosts."""

import ipaddress
import os
import re
import tempfile
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
from anyio.abc import ByteReceiveStream, ByteSendStream, SocketListener, SocketStream
from anyio.from_thread import start_blocking_portal
from anyio.streams.buffered import BufferedByteReceiveStream

from assets.servers.sandbox import tool_relay
from warehouse.network.egress import (
    EgressConnector,
    PrivateAddress,
    Resolve,
    is_address,
    is_loopback,
)
from warehouse.patterns import compile_pattern

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
class ProxyRequest:
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


async def read_request(received: BufferedByteReceiveStream, client: ByteSendStream) -> ProxyRequest:
    """What a client asks for. Raises ValueError for what is neither SOCKS 5 nor HTTP to a proxy."""
    first = await received.receive_exactly(1)
    if first == b"\5":
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
        return ProxyRequest(normalise_host(host), port)
    if not first.isalpha():
        raise ValueError("neither SOCKS 5 nor HTTP")
    return _parse_http(first + await received.receive_until(b"\r\n\r\n", _MOST_HEAD))


def _parse_http(head: bytes) -> ProxyRequest:
    """`CONNECT host:port`, or `GET http://host/path` with the lines behind it."""
    line, *fields = head.decode("latin-1").split("\r\n")
    method, target, version = line.split(" ")
    if method == "CONNECT":
        address = urlsplit(f"//{target}")
        return ProxyRequest(normalise_host(address.hostname or ""), address.port or 443, http=True)
    address = urlsplit(target)
    if address.scheme != "http" or not address.hostname:
        raise ValueError("no address that a proxy is asked for")
    path = address._replace(scheme="", netloc="", fragment="").geturl() or "/"
    headers = [field for field in fields if field and field.partition(":")[0].lower() not in _OURS]
    # One request a connection: the next one may be for another host.
    sent = "\r\n".join([f"{method} {path} {version}", *headers, "Connection: close", "", ""])
    host = normalise_host(address.hostname)
    return ProxyRequest(host, address.port or 80, sent.encode("latin-1"), http=True, tunnel=False)


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


GATEWAY = str(Path(tool_relay.SOCKET).parent)  # where the socket's folder is seen inside
Dial = Callable[[str, int], Awaitable[SocketStream]]

# Where uv looks unless told otherwise; npm always says which registry it uses.
_PYTHON_INDEX = ("https://pypi.org", "https://files.pythonhosted.org")
_NAMED_BY = re.compile(
    r"npm_config_registry|UV_(DEFAULT_INDEX|INDEX|INDEX_URL|EXTRA_INDEX_URL|FIND_LINKS)"
)
_PORTS = {"https": 443, "http": 80}
_HANDSHAKE_S = 10.0
_DIAL_S = 30.0
_MOST = 64  # connections at once, each of two descriptors of ours; uv opens 50
_MOST_REFUSED = 10_000


@dataclass
class HostLog:
    """A client's connections and their outcomes, by `host:port`. refused: what was asked for and is
    none of its hosts, each time; and why where it is one. waiting: of each connection whose host
    has not answered what it was sent last."""

    refused: list[str] = field(default_factory=list)
    waiting: dict[int, str] = field(default_factory=dict)

    def list_waiting(self) -> list[str]:
        """The hosts that owe an answer at this moment."""
        return sorted(dict.fromkeys(self.waiting.copy().values()))  # another thread writes it


class EgressGateway:
    """Dials its hosts and no other, for clients that speak SOCKS 5 or HTTP to a proxy.

    env: of the fetch phase, for the proxy that it names. dial: how a host is connected to, where
    that is not for the operator's resolver to say."""

    def __init__(
        self, hosts: frozenset[Host], env: Mapping[str, str], dial: Dial | None = None
    ) -> None:
        self._hosts, self._env, self._dial = hosts, env, dial or self._dial_named
        self._turn = anyio.Semaphore(_MOST)
        self.log = HostLog()

    @property
    def refused(self) -> list[str]:
        """What was asked for beyond its hosts."""
        return self.log.refused

    async def serve(self, listener: SocketListener) -> None:
        """All connections, at most 64 at once: what else a sandbox opens waits in the kernel, and
        is no open file of ours."""
        async with anyio.create_task_group() as group:
            while True:
                await self._turn.acquire()
                group.start_soon(self._serve_client, await listener.accept())

    async def _serve_client(self, client: SocketStream) -> None:
        """One connection to its end; whatever goes wrong on it ends it alone."""
        try:
            async with client:
                received = BufferedByteReceiveStream(client)
                with anyio.fail_after(_HANDSHAKE_S):
                    request = await read_request(received, client)
                if (request.host, request.port) not in self._hosts:
                    self._note_refusal(request)
                    await client.send(request.make_reply(REFUSED))
                    return
                await self._join(request, received, client)
        except Exception:  # from third-party bytes: the tool sees its connection end
            return
        finally:
            self._turn.release()

    async def _join(
        self, request: ProxyRequest, received: ByteReceiveStream, client: SocketStream
    ) -> None:
        try:
            with anyio.fail_after(_DIAL_S):
                remote = await self._dial(request.host, request.port)
        except PrivateAddress as error:
            self._note_refusal(request, f" ({error})")
            await client.send(request.make_reply(REFUSED))
            return
        except Exception:  # no name, no route, a proxy that refuses
            await client.send(request.make_reply(FAILED))
            return
        key, waiting = id(remote), self.log.waiting

        def note_asked() -> None:
            waiting[key] = f"{request.host}:{request.port}"

        try:
            async with remote, anyio.create_task_group() as group:
                if data := request.make_reply(0):
                    await client.send(data)
                if request.head:
                    note_asked()
                    await remote.send(request.head)
                group.start_soon(_copy_bytes, remote, client, lambda: waiting.pop(key, None))
                await _copy_bytes(received, remote, note_asked)
                # One side has ended: the other gets what is still under way.
        finally:
            waiting.pop(key, None)

    def _note_refusal(self, request: ProxyRequest, why: str = "") -> None:
        """What is no name of a host may be anything, and people read this."""
        is_host = is_address(request.host) or is_host_name(request.host)
        what = f"{request.host if is_host else '(no name of a host)'}:{request.port}{why}"
        if len(self.refused) < _MOST_REFUSED:
            self.refused.append(what)

    async def _dial_named(self, host: str, port: int) -> SocketStream:
        """No address is judged: the operator named the host, and his resolver says where it is."""
        proxy = _find_proxy(self._env, host, port)
        if proxy:
            # A tunnel through an HTTP proxy; the operator named it, so its address is not judged.
            address = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
            if address.scheme != "http" or not address.hostname:
                raise ValueError(f"the proxy {proxy!r} is no http:// URL")
            stream = await anyio.connect_tcp(address.hostname, address.port or 80)
            await stream.send(
                f"CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode()
            )
            head = b""
            while not head.endswith(b"\r\n\r\n") and len(head) < 8192:
                head += await stream.receive(1)
            if b" 200" not in head.partition(b"\r\n")[0]:
                await stream.aclose()
                raise OSError(f"the proxy refuses {host}:{port}")
            return stream
        return await anyio.connect_tcp(host, port)


def build_relayed(python: Path, argv: Sequence[str]) -> tuple[str, ...]:
    """The command with the relay around it, which carries its connections to the socket's folder,
    mounted at GATEWAY."""
    return (str(python), "-I", "-c", Path(tool_relay.__file__).read_text(), *argv)


@contextmanager
def open_gateway(gateway: EgressGateway, owner: int | None) -> Iterator[Path]:
    """The socket's folder while the gateway serves. owner: the one user that may connect."""
    with tempfile.TemporaryDirectory(prefix="toolmill-gateway-") as temporary:
        path = Path(temporary) / "socket"
        with (
            start_blocking_portal() as portal,
            portal.wrap_async_context_manager(_serve_socket(gateway, path)),
        ):
            if owner is not None:
                os.chown(path, owner, owner)
                os.chown(temporary, owner, owner)
            yield Path(temporary)


@asynccontextmanager
async def _serve_socket(gateway: EgressGateway, path: Path) -> AsyncIterator[None]:
    listener = await anyio.create_unix_listener(path, mode=0o600)
    async with listener, anyio.create_task_group() as group:
        group.start_soon(gateway.serve, listener)
        yield
        group.cancel_scope.cancel()


async def _copy_bytes(
    source: ByteReceiveStream, sink: SocketStream, note: Callable[[], object]
) -> None:
    """Everything from one to the other; the end too. note: called before each part is sent on."""
    try:
        async for chunk in source:
            note()
            await sink.send(chunk)
        await sink.send_eof()
    except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
        await sink.aclose()


def _find_proxy(env: Mapping[str, str], host: str, port: int) -> str | None:
    """The proxy that the environment of the fetch phase names for a host."""
    scheme = "http" if port == 80 else "https"
    exempt = env.get("no_proxy") or env.get("NO_PROXY") or env.get("npm_config_noproxy") or ""
    suffixes = [word.strip().lstrip(".").lower() for word in exempt.split(",")]
    if any(word == "*" or (word and f".{host}".endswith(f".{word}")) for word in suffixes):
        return None
    names = (f"{scheme}_proxy", f"{scheme}_proxy".upper(), f"npm_config_{scheme}_proxy")
    more = ("npm_config_proxy", "all_proxy", "ALL_PROXY")
    return next((env[name] for name in (*names, *more) if env.get(name)), None)


def list_registries(env: Mapping[str, str], more: Iterable[str] = ()) -> frozenset[Host]:
    """(host, port) of every registry that the environment of the fetch phase names.

    more: `host` or `host:port` as the settings name them, for a mirror that keeps its files
    elsewhere."""
    words = [*_PYTHON_INDEX, *(f"https://{name}" for name in more)]
    for name, value in env.items():
        if _NAMED_BY.fullmatch(name):
            # uv takes several, each with a name before it if it has one.
            words += [word[word.find("http") :] for word in re.split(r"[\s,]+", value)]
    hosts = (_read_host(word) for word in words)
    return frozenset(host for host in hosts if host)


def _read_host(url: str) -> Host | None:
    try:
        address = urlsplit(url)
        port = address.port or _PORTS.get(address.scheme)
    except ValueError:
        return None
    return (address.hostname.lower(), port) if address.hostname and port else None


HTTPS = 443
# How runtimes and libraries name the host that they did not reach.
_NAMED = compile_pattern(
    r"(?i)(?:ENOTFOUND|EAI_AGAIN|ECONNREFUSED|getaddrinfo|lookup|host="
    r"|resolve(?: host(?:name)?)?:?)"
    r"[ '\"]{0,2}((?:[a-z0-9_-]{1,63}\.){1,8}[a-z][a-z0-9-]{1,62})(?::([0-9]{1,5}))?"
    r"|(?:connect to(?: host)?|https://) ?"
    r"((?:[a-z0-9_-]{1,63}\.){1,8}[a-z][a-z0-9-]{1,62})(?::([0-9]{1,5}))?"
)
_EXPECTED = "expected NAME or NAME:PORT, as api.example.com or api.example.com:8443"


def parse_host(text: str) -> Host:
    """(host, port) of `NAME[:PORT]` or `ADDRESS[:PORT]`, an IPv6 address in brackets where a port
    follows; 443 unless said. Raises ValueError for anything more, or else."""
    detail = f"host {text[:200]!r}"
    for sign, what in (("://", "an address with its scheme"), ("*", "a wildcard")):
        if sign in text:
            raise ValueError(f"{detail}: {what}; {_EXPECTED}")
    for sign, what in (("/", "a path"), ("?", "a query"), ("#", "a fragment"), ("@", "a user")):
        if sign in text:
            raise ValueError(f"{detail}: {what} in it, and hosts are granted whole; {_EXPECTED}")
    name, port = _split_port(text, detail)
    host = normalise_host(name)
    if not is_address(host) and not is_host_name(host):
        raise ValueError(f"{detail}: no name of a host, nor an address; {_EXPECTED}")
    return host, port


def format_host(host: Host) -> str:
    """`NAME`, or `NAME:PORT` where that is not 443."""
    name, port = host
    bracketed = f"[{name}]" if ":" in name and port != HTTPS else name
    return bracketed if port == HTTPS else f"{bracketed}:{port}"


def find_wanted_host(message: str) -> str | None:
    """The host, as `parse_host` reads it, that a server's own words say it did not reach."""
    match = _NAMED.search(message[:20_000])
    if match is None:
        return None
    text = (match[1] or match[3]).lower() + (f":{port}" if (port := match[2] or match[4]) else "")
    try:
        return format_host(parse_host(text))
    except ValueError:
        return None


def make_granted_dial(
    hosts: Iterable[Host], resolve: Resolve | None = None
) -> Callable[[str, int], Coroutine[Any, Any, SocketStream]]:
    """Connects to public addresses of a name, and to what the user named as an address himself
    (`localhost` too): a name that leads to a private address is refused (PrivateAddress)."""
    addresses = {host for host, _ in hosts if is_address(host) or is_loopback(host)}
    return make_dialler(EgressConnector(trusted=addresses, resolve=resolve))


def make_dialler(
    connector: EgressConnector,
) -> Callable[[str, int], Coroutine[Any, Any, SocketStream]]:
    """Connects to the judged addresses of a host, without a second look-up."""

    async def dial(host: str, port: int) -> SocketStream:
        last: OSError | None = None
        for address in await connector.find_addresses(host, port):
            try:
                return await anyio.connect_tcp(address, port)
            except OSError as error:
                last = error
        raise last or OSError(f"{host}: no address")

    return dial


def _split_port(text: str, detail: str) -> tuple[str, int]:
    bracketed = re.fullmatch(r"\[([^\]]*)\](?::(.*))?", text)
    if bracketed:
        name, port = bracketed[1], bracketed[2]
    elif text.count(":") > 1:
        name, port = text, None  # an IPv6 address without a port
    else:
        name, colon, port = text.partition(":")
        port = port if colon else None
    if port is None:
        return name, HTTPS
    if not re.fullmatch(r"[0-9]{1,5}", port) or not 0 < int(port) < 65_536:
        raise ValueError(f"{detail}: port {port[:20]!r}, expected 1 to 65535")
    return name, int(port)
