"""Guard: connections that are refused before a packet is sent."""

import asyncio
import ipaddress
import socket
from collections.abc import Iterable
from typing import Any, cast
from urllib.request import getproxies, proxy_bypass

import httpcore
import httpx

# Python 3.11 calls 64:ff9b::a00:1 (10.0.0.1 behind NAT64) and fec0::1 global.
_UNICAST = ipaddress.IPv6Network("2000::/3")
_SIX_TO_FOUR = ipaddress.IPv6Network("2002::/16")


class PrivateAddress(httpcore.ConnectError):
    """The host is at an address a marketplace has no business at."""


class GuardedBackend(httpcore.AsyncNetworkBackend):
    """Opens TCP connections to public addresses only, and to loopback where that is allowed."""

    def __init__(
        self, *, allow_loopback: bool = False, inner: httpcore.AsyncNetworkBackend | None = None
    ) -> None:
        self.allow_loopback = allow_loopback
        # httpcore declares a stand-in for it where anyio is not installed.
        self.inner = inner or cast(httpcore.AsyncNetworkBackend, httpcore.AnyIOBackend())

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        address = await judged(host, port, allow_loopback=self.allow_loopback)
        return await self.inner.connect_tcp(address, port, timeout, local_address, socket_options)

    async def connect_unix_socket(self, *_: Any, **__: Any) -> httpcore.AsyncNetworkStream:
        raise PrivateAddress("a crawl opens no Unix sockets")

    async def sleep(self, seconds: float) -> None:
        await self.inner.sleep(seconds)


class GuardedTransport(httpx.AsyncHTTPTransport):
    """httpx's transport over a guarded backend. Behind a proxy the proxy resolves names: then only
    literal addresses can be judged (`http.py` does), and the proxy's own rules hold."""

    def __init__(self, backend: GuardedBackend, limits: httpx.Limits) -> None:
        context = httpx.create_ssl_context()
        super().__init__(verify=context, limits=limits)
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=context,
            max_connections=limits.max_connections,
            max_keepalive_connections=limits.max_keepalive_connections,
            keepalive_expiry=limits.keepalive_expiry,
            network_backend=backend,
        )


def transport(
    host: str, scheme: str, limits: httpx.Limits, *, allow_loopback: bool
) -> httpx.AsyncBaseTransport:
    """How requests to `host` leave this machine: guarded, or through the environment's proxy."""
    proxy = getproxies().get(scheme)
    if proxy and not is_loopback(host) and not proxy_bypass(host):
        return httpx.AsyncHTTPTransport(proxy=proxy, limits=limits)
    return GuardedTransport(GuardedBackend(allow_loopback=allow_loopback), limits)


async def judged(host: str, port: int, *, allow_loopback: bool) -> str:
    """The address to connect to. Raises PrivateAddress where any address of `host` is private."""
    addresses = await resolve(host, port)
    for address in addresses:
        if not admitted(address, allow_loopback=allow_loopback):
            raise PrivateAddress(
                f"{host} is at {address}, which is not a public address; only demo marketplaces"
                " may be on loopback (allow_loopback)"
            )
    return addresses[0]


async def resolve(host: str, port: int) -> list[str]:
    """Every address of a host name or literal. Raises httpcore.ConnectError where it has none."""
    try:
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise httpcore.ConnectError(f"{host}: {error}") from error
    return list(dict.fromkeys(str(entry[4][0]).split("%")[0] for entry in found))


def admitted(address: str, *, allow_loopback: bool) -> bool:
    """Whether a crawl may connect to an address literal."""
    ip = ipaddress.ip_address(address)
    mapped = getattr(ip, "ipv4_mapped", None)
    ip = mapped or ip
    if allow_loopback and ip.is_loopback:
        return True
    if isinstance(ip, ipaddress.IPv6Address) and (ip not in _UNICAST or ip in _SIX_TO_FOUR):
        return False  # the rest may carry a private IPv4 address (NAT64, 6to4, …)
    return ip.is_global and not ip.is_multicast


def is_loopback(host: str) -> bool:
    """Whether a host name or address literal is this machine's loopback."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
