"""The egress guard: every address is judged before it is dialled, without a second look-up."""

import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Any, cast

import anyio
import anyio.to_thread
import httpcore2
import httpx2

from warehouse.errors import UnusableInput

# Python 3.11 calls 64:ff9b::a00:1 (10.0.0.1 behind NAT64) and fec0::1 global.
_UNICAST = ipaddress.IPv6Network("2000::/3")
_SIX_TO_FOUR = ipaddress.IPv6Network("2002::/16")
_MOST_ADDRESSES = 4  # of one name that are tried
# A bucket's name, then what its keys are made of here; no part of dots alone.
_BUCKET = re.compile(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/(?!\.+(/|$))[\w.=+-]+)+/?", re.ASCII)

Resolve = Callable[[str, int], Awaitable[list[str]]]


class PrivateAddress(httpx2.ConnectError):
    """The host is at an address that no third party may send us to."""


class _EgressGuard:
    """Judges addresses: public ones, loopback where that is allowed, and whatever the operator
    named as a host himself (`trusted`: a model endpoint, a package registry)."""

    def __init__(self, *, allow_loopback: bool = False, trusted: Collection[str] = ()) -> None:
        self._allow_loopback = allow_loopback
        self._trusted = {host.lower() for host in trusted}

    def judge(self, host: str, addresses: Iterable[str]) -> list[str]:
        """The addresses of `host` to try. Raises PrivateAddress where any of them is private."""
        unique = list(dict.fromkeys(addresses))
        for address in unique:
            if host.lower() not in self._trusted and not is_admitted(
                address, allow_loopback=self._allow_loopback
            ):
                raise PrivateAddress(f"{host} is at {address}, which is not a public address")
        if not unique:
            raise httpcore2.ConnectError(f"{host}: no address")
        return unique[:_MOST_ADDRESSES]

    def judge_literal(self, host: str) -> None:
        """Judges a host that is an address literal; the addresses of a name are judged later."""
        if is_address(host):
            self.judge(host, [host])


class EgressConnector(_EgressGuard, httpcore2.AsyncNetworkBackend):
    """Connects to judged addresses only. count: gets the bytes of each read, headers included."""

    def __init__(
        self,
        *,
        allow_loopback: bool = False,
        trusted: Collection[str] = (),
        resolve: Resolve | None = None,
        inner: httpcore2.AsyncNetworkBackend | None = None,
    ) -> None:
        super().__init__(allow_loopback=allow_loopback, trusted=trusted)
        self._resolve = resolve or look_up
        # httpcore2 declares a stand-in for it where anyio is not installed.
        self._inner = inner or cast(httpcore2.AsyncNetworkBackend, httpcore2.AnyIOBackend())
        self.count: Callable[[int], None] | None = None

    async def find_addresses(self, host: str, port: int) -> list[str]:
        """The judged addresses of a host. Raises PrivateAddress and httpcore2.ConnectError."""
        try:
            addresses = await self._resolve(host, port)
        except (OSError, UnicodeError) as error:
            raise httpcore2.ConnectError(f"{host}: {error}") from error
        return self.judge(host, addresses)

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
                addresses = await self.find_addresses(host, port)
                share = timeout and timeout / len(addresses)
                stream = await self._dial(addresses, port, share, local_address, socket_options)
        except TimeoutError as error:
            raise httpcore2.ConnectTimeout(f"{host}: none in {timeout or 0:.0f} s") from error
        return _CountingStream(stream, self.count) if self.count else stream

    async def _dial(self, addresses: list[str], port: int, *more: Any) -> Any:
        """Connects to the first address that answers: IPv6 is not everywhere."""
        last: Exception | None = None
        for address in addresses:
            try:
                return await self._inner.connect_tcp(address, port, *more)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                last = error
        raise _make_failure(addresses[0], port, last)

    async def connect_unix_socket(self, *_: Any, **__: Any) -> httpcore2.AsyncNetworkStream:
        raise PrivateAddress("no Unix socket is opened")

    async def sleep(self, seconds: float) -> None:
        await self._inner.sleep(seconds)


class SyncConnector(_EgressGuard, httpcore2.NetworkBackend):
    """Connector for clients of one thread at a time."""

    _inner = httpcore2.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.NetworkStream:
        try:
            infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise httpcore2.ConnectError(f"{host}: {error}") from error
        addresses = self.judge(host, _list_addresses(infos))
        last: Exception | None = None
        for address in addresses:
            try:
                return self._inner.connect_tcp(
                    address, port, timeout, local_address, socket_options
                )
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                last = error
        raise _make_failure(addresses[0], port, last)

    def connect_unix_socket(self, *_: Any, **__: Any) -> httpcore2.NetworkStream:
        raise PrivateAddress("no Unix socket is opened")


class _CountingStream(httpcore2.AsyncNetworkStream):
    """A connection whose bytes are counted."""

    def __init__(self, inner: httpcore2.AsyncNetworkStream, count: Callable[[int], None]) -> None:
        self._inner, self._count = inner, count

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        data = await self._inner.read(max_bytes, timeout)
        self._count(len(data))
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        await self._inner.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def start_tls(self, *args: Any, **more: Any) -> httpcore2.AsyncNetworkStream:
        return _CountingStream(await self._inner.start_tls(*args, **more), self._count)

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


async def look_up(host: str, port: int) -> list[str]:
    """A name's addresses. A hung look-up is left behind, unlike `loop.getaddrinfo`'s."""
    if is_address(host):
        return [host]
    addresses = await anyio.to_thread.run_sync(
        lambda: socket.getaddrinfo(host, port, type=socket.SOCK_STREAM), abandon_on_cancel=True
    )
    return _list_addresses(addresses)


def is_admitted(address: str, *, allow_loopback: bool) -> bool:
    """Whether an address literal that a third party named may be dialled."""
    ip = ipaddress.ip_address(address)
    ip = getattr(ip, "ipv4_mapped", None) or ip
    if allow_loopback and ip.is_loopback:
        return True
    if isinstance(ip, ipaddress.IPv6Address) and (ip not in _UNICAST or ip in _SIX_TO_FOUR):
        return False  # the rest may carry a private IPv4 address (NAT64, 6to4, …)
    return ip.is_global and not ip.is_multicast


def is_address(host: str) -> bool:
    """Whether a host is an address literal, not a name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Whether a host name or address literal is this machine's loopback."""
    return ipaddress.ip_address(host).is_loopback if is_address(host) else host == "localhost"


def check_bucket_url(url: str) -> str:
    """The address of a bucket as it is. Raises UnusableInput, which shows no key."""
    if not _BUCKET.fullmatch(url):
        problem = "an address with a key in it" if re.search("[@?]|:.*:", url) else repr(url[:80])
        raise UnusableInput(
            f"a bucket: found {problem}, expected s3://BUCKET/PREFIX: BUCKET has 3 to 63 lower-case"
            " letters, digits, dots and hyphens, and begins and ends with a letter or digit; PREFIX"
            " has letters, digits and ._=+-, and no part of dots alone"
        )
    return url


def _list_addresses(infos: Iterable[Any]) -> list[str]:
    return [str(entry[4][0]).partition("%")[0] for entry in infos]


def _make_failure(address: str, port: int, last: Exception | None) -> Exception:
    if isinstance(last, httpcore2.ConnectTimeout):
        return last
    error = httpcore2.ConnectError(f"{address}:{port}: {last}")
    error.__cause__ = last
    return error
