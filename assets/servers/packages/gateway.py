"""A sandbox's only way out: a SOCKS server on a Unix socket that dials the hosts it is given."""

import ipaddress
import os
import re
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import anyio
from anyio.abc import ByteReceiveStream, ByteSendStream, SocketStream
from anyio.from_thread import start_blocking_portal
from anyio.streams.buffered import BufferedByteReceiveStream

Host = tuple[str, int]
Dial = Callable[[str, int], Awaitable[SocketStream]]

# Where uv looks unless told otherwise; npm always says which registry it uses.
_PYTHON_INDEX = ("https://pypi.org", "https://files.pythonhosted.org")
_NAMED_BY = re.compile(
    r"npm_config_registry|UV_(DEFAULT_INDEX|INDEX|INDEX_URL|EXTRA_INDEX_URL|FIND_LINKS)"
)
_PORTS = {"https": 443, "http": 80}
_HANDSHAKE_S = 10.0
_DIAL_S = 30.0
_MOST = 128  # connections at once; uv opens 50
_REFUSED, _FAILED = 2, 5  # SOCKS: not allowed by ruleset, connection refused
_SIZES = {1: 4, 4: 16}  # bytes of an IPv4 and an IPv6 address


class Gateway:
    """Dials its hosts and no other. refused: what was asked for beyond them.

    env: of the fetch phase, for the proxy that it names. dial: how a host is connected to, where
    that is not for the operator's resolver to say."""

    def __init__(
        self, hosts: frozenset[Host], env: Mapping[str, str], dial: Dial | None = None
    ) -> None:
        self._hosts, self._env, self._dial = hosts, env, dial or self._dial_named
        self._turn = anyio.Semaphore(_MOST)
        self.refused: list[str] = []

    async def serve(self, client: SocketStream) -> None:
        """One connection to its end; whatever goes wrong on it ends it alone."""
        async with client, self._turn:
            try:
                received = BufferedByteReceiveStream(client)
                with anyio.fail_after(_HANDSHAKE_S):
                    host, port = await _read_request(received, client)
                if (host, port) not in self._hosts:
                    if len(self.refused) < _MOST:
                        self.refused.append(f"{host}:{port}"[:260])
                    await client.send(_make_reply(_REFUSED))
                    return
                await self._join(host, port, received, client)
            except Exception:  # from third-party bytes: the tool sees its connection end
                return

    async def _join(
        self, host: str, port: int, received: ByteReceiveStream, client: SocketStream
    ) -> None:
        try:
            with anyio.fail_after(_DIAL_S):
                remote = await self._dial(host, port)
        except Exception:  # no name, no route, a proxy that refuses
            await client.send(_make_reply(_FAILED))
            return
        async with remote, anyio.create_task_group() as group:
            await client.send(_make_reply(0))
            group.start_soon(_copy_bytes, remote, client)
            await _copy_bytes(received, remote)
            # One side has ended: the other gets what is still under way.

    async def _dial_named(self, host: str, port: int) -> SocketStream:
        """No address is judged: the operator named the host, and his resolver says where it is."""
        proxy = _find_proxy(self._env, host, port)
        if proxy:
            return await _open_tunnel(proxy, host, port)
        return await anyio.connect_tcp(host, port)


@contextmanager
def open_gateway(gateway: Gateway, owner: int | None) -> Iterator[Path]:
    """The socket's folder while the gateway serves. owner: the one user that may connect."""
    with tempfile.TemporaryDirectory(prefix="toolmill-gateway-") as made:
        path = Path(made) / "socket"
        with (
            start_blocking_portal() as portal,
            portal.wrap_async_context_manager(_serve_socket(gateway, path)),
        ):
            if owner is not None:
                os.chown(path, owner, owner)
                os.chown(made, owner, owner)
            yield Path(made)


@asynccontextmanager
async def _serve_socket(gateway: Gateway, path: Path) -> AsyncIterator[None]:
    listener = await anyio.create_unix_listener(path, mode=0o600)
    async with listener, anyio.create_task_group() as group:
        group.start_soon(listener.serve, gateway.serve)
        yield
        group.cancel_scope.cancel()


async def _read_request(received: BufferedByteReceiveStream, client: ByteSendStream) -> Host:
    """What a SOCKS 5 client asks to be connected to. Raises ValueError for anything else."""
    version, methods = await received.receive_exactly(2)
    await received.receive_exactly(methods)
    await client.send(b"\5\0")
    version, command, _, kind = await received.receive_exactly(4)
    if (version, command) != (5, 1) or kind not in (1, 3, 4):
        raise ValueError("no SOCKS 5 request to connect")
    size = _SIZES.get(kind) or (await received.receive_exactly(1))[0]
    raw = await received.receive_exactly(size)
    host = raw.decode("ascii") if kind == 3 else str(ipaddress.ip_address(raw))
    port = int.from_bytes(await received.receive_exactly(2), "big")
    return host.lower(), port


def _make_reply(code: int) -> bytes:
    return bytes([5, code, 0, 1]) + bytes(6)


async def _copy_bytes(source: ByteReceiveStream, sink: SocketStream) -> None:
    """Everything from one to the other; the end too."""
    try:
        async for chunk in source:
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


async def _open_tunnel(proxy: str, host: str, port: int) -> SocketStream:
    """A tunnel through an HTTP proxy; the operator named it, so its address is not judged."""
    parts = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    if parts.scheme != "http" or not parts.hostname:
        raise ValueError(f"the proxy {proxy!r} is no http:// URL")
    stream = await anyio.connect_tcp(parts.hostname, parts.port or 80)
    await stream.send(f"CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
    head = b""
    while not head.endswith(b"\r\n\r\n") and len(head) < 8192:
        head += await stream.receive(1)
    if b" 200" not in head.partition(b"\r\n")[0]:
        await stream.aclose()
        raise OSError(f"the proxy refuses {host}:{port}")
    return stream


def list_registries(env: Mapping[str, str], more: Iterable[str] = ()) -> frozenset[Host]:
    """(host, port) of every registry that the environment of the fetch phase names.

    more: `host` or `host:port` as the settings name them, for a mirror that keeps its files
    elsewhere."""
    words = [*_PYTHON_INDEX, *(f"https://{name}" for name in more)]
    for name, value in env.items():
        if _NAMED_BY.fullmatch(name):
            # uv takes several, each with a name before it if it has one.
            words += [word[word.find("http") :] for word in re.split(r"[\s,]+", value)]
    found = (_read_host(word) for word in words)
    return frozenset(host for host in found if host)


def _read_host(url: str) -> Host | None:
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS.get(parts.scheme)
    except ValueError:
        return None
    return (parts.hostname.lower(), port) if parts.hostname and port else None
