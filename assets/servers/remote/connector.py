"""The connector of remote servers: where it may connect, and what comes in counted."""

import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

import anyio
import anyio.to_thread
import httpcore2
import httpx2

from assets.servers.probe.failure_kinds import Failure
from warehouse.network.egress import PrivateAddress, admitted

MIB = 1024 * 1024
_ADDRESSES = 4  # of one name that are tried

Resolve = Callable[[str, int], Awaitable[list[str]]]


class Refused(httpx2.TransportError):
    """What we do not send or read on; says why."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.detail)
        self.failure = failure


@dataclass
class Meter:
    """Counts what comes in. A stream of empty compressed blocks decodes to nothing and a bomb is
    small on the wire, so both are counted."""

    limit: int
    wire: int = 0
    decoded: int = 0

    def add(self, *, wire: int = 0, decoded: int = 0) -> None:
        self.wire, self.decoded = self.wire + wire, self.decoded + decoded
        if max(self.wire, self.decoded) > self.limit:
            raise Refused(Failure("oversize", f"more than {self.limit // MIB} MB in all"))


async def resolve(host: str, port: int) -> list[str]:
    """Every address of a name. A look-up that hangs is left behind: `loop.getaddrinfo` would hold
    up the end of the event loop."""
    found = await anyio.to_thread.run_sync(
        lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM), abandon_on_cancel=True
    )
    return list(dict.fromkeys(str(entry[4][0]).partition("%")[0] for entry in found))


class Connector(httpcore2.AsyncNetworkBackend):
    """Opens connections to judged addresses only, without a second look-up."""

    def __init__(
        self,
        *,
        allow_loopback: bool = False,
        resolve: Resolve = resolve,
        inner: httpcore2.AsyncNetworkBackend | None = None,
    ) -> None:
        self.allow_loopback, self._resolve = allow_loopback, resolve
        # httpcore2 declares a stand-in for it where anyio is not installed.
        self._inner = inner or cast(httpcore2.AsyncNetworkBackend, httpcore2.AnyIOBackend())
        self.meter: Meter | None = None

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        try:
            with anyio.fail_after(timeout):
                addresses = await self._judged(host, port)
                share = timeout and timeout / len(addresses)
                stream = await self._first(addresses, port, share, local_address, socket_options)
        except TimeoutError as error:
            raise httpcore2.ConnectTimeout(f"{host}: none in {timeout or 0:.0f} s") from error
        return _Metered(stream, self.meter) if self.meter else stream

    async def _judged(self, host: str, port: int) -> list[str]:
        try:
            addresses = await self._resolve(host, port)
        except (OSError, UnicodeError) as error:
            raise httpcore2.ConnectError(f"{host}: {error}") from error
        for address in addresses:
            if not admitted(address, allow_loopback=self.allow_loopback):
                raise PrivateAddress(f"{host} is at {address}, which is not a public address")
        if not addresses:
            raise httpcore2.ConnectError(f"{host}: no address")
        return addresses[:_ADDRESSES]

    async def _first(self, addresses: list[str], port: int, *more: Any) -> Any:
        """A connection to the first address that takes one: a name's IPv6 address is of no use to
        a machine without IPv6."""
        last: Exception | None = None
        for address in addresses:
            try:
                return await self._inner.connect_tcp(address, port, *more)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                last = error
        if isinstance(last, httpcore2.ConnectTimeout):
            raise last
        raise httpcore2.ConnectError(f"{addresses[0]}:{port}: {last}") from last

    async def connect_unix_socket(self, *_: Any, **__: Any) -> httpcore2.AsyncNetworkStream:
        raise PrivateAddress("a probe opens no Unix sockets")

    async def sleep(self, seconds: float) -> None:
        await self._inner.sleep(seconds)


class _Metered(httpcore2.AsyncNetworkStream):
    """A connection whose bytes are counted: headers, chunk sizes and 1xx answers as well."""

    def __init__(self, inner: httpcore2.AsyncNetworkStream, meter: Meter) -> None:
        self._inner, self._meter = inner, meter

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        data = await self._inner.read(max_bytes, timeout)
        self._meter.add(wire=len(data))
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        await self._inner.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def start_tls(self, *args: Any, **more: Any) -> httpcore2.AsyncNetworkStream:
        return _Metered(await self._inner.start_tls(*args, **more), self._meter)

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


@cache
def _tls() -> ssl.SSLContext:
    """One for all probes of a process: reading the authorities takes 30 ms of processor time."""
    return httpx2.create_ssl_context()


class Pool(httpx2.AsyncHTTPTransport):
    """httpx2's transport over our connector (it takes none itself)."""

    def __init__(self, connector: Connector) -> None:
        context = _tls()
        super().__init__(verify=context)
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=context, max_connections=10, network_backend=connector
        )
