"""The HTTP clients of every package: httpx2 over the egress guard, or the environment's proxy.

Behind a proxy the proxy resolves names: there only literal addresses can be judged, and the proxy's
own rules hold.
"""

import ssl
from collections.abc import Collection
from functools import cache
from typing import Any
from urllib.request import getproxies, proxy_bypass

import httpcore2
import httpx2

from warehouse.network.body import ENCODING, bound_response
from warehouse.network.egress import Connector, SyncConnector, is_loopback

_LIMITS = httpx2.Limits(max_connections=10)


@cache
def make_tls_context() -> ssl.SSLContext:
    """One for all clients of a process: reading the authorities takes 30 ms of processor time."""
    return httpx2.create_ssl_context()


class AsyncTransport(httpx2.AsyncBaseTransport):
    """Sends each request over a guarded connector, or through the environment's proxy.

    most_bytes: of the body of an answer, decoded; reading more raises BodyTooLarge.
    """

    def __init__(
        self,
        connector: Connector,
        limits: httpx2.Limits = _LIMITS,
        *,
        most_bytes: int | None = None,
    ) -> None:
        self._connector, self._limits, self._most_bytes = connector, limits, most_bytes
        self._pools: dict[str | None, httpx2.AsyncHTTPTransport] = {}

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        proxy = find_proxy(request.url)
        if proxy:
            self._connector.judge_literal(request.url.host)
        if proxy not in self._pools:
            self._pools[proxy] = self._open_pool(proxy)
        if self._most_bytes is None:
            return await self._pools[proxy].handle_async_request(request)
        request.headers["accept-encoding"] = ENCODING
        return bound_response(
            await self._pools[proxy].handle_async_request(request), self._most_bytes
        )

    async def aclose(self) -> None:
        for pool in self._pools.values():
            await pool.aclose()

    def _open_pool(self, proxy: str | None) -> httpx2.AsyncHTTPTransport:
        pool = httpx2.AsyncHTTPTransport(
            verify=make_tls_context(), limits=self._limits, proxy=proxy
        )
        if not proxy:  # httpx2's transport takes no connector
            pool._pool = httpcore2.AsyncConnectionPool(
                network_backend=self._connector,
                **_make_pool_options(make_tls_context(), self._limits),
            )
        return pool


class Transport(httpx2.BaseTransport):
    """AsyncTransport for clients of one thread at a time.

    proxy: of the operator's configuration, in the place of the environment's.
    """

    def __init__(
        self,
        connector: SyncConnector,
        *,
        tls: ssl.SSLContext | None = None,
        proxy: str = "",
        most_bytes: int | None = None,
    ) -> None:
        self._connector, self._tls, self._configured = connector, tls or make_tls_context(), proxy
        self._most_bytes = most_bytes
        self._pools: dict[str | None, httpx2.HTTPTransport] = {}

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        proxy = self._configured or find_proxy(request.url)
        if proxy:
            self._connector.judge_literal(request.url.host)
        if proxy not in self._pools:
            self._pools[proxy] = self._open_pool(proxy)
        if self._most_bytes is None:
            return self._pools[proxy].handle_request(request)
        request.headers["accept-encoding"] = ENCODING
        return bound_response(self._pools[proxy].handle_request(request), self._most_bytes)

    def close(self) -> None:
        for pool in self._pools.values():
            pool.close()

    def _open_pool(self, proxy: str | None) -> httpx2.HTTPTransport:
        pool = httpx2.HTTPTransport(verify=self._tls, limits=_LIMITS, proxy=proxy)
        if not proxy:
            pool._pool = httpcore2.ConnectionPool(
                network_backend=self._connector, **_make_pool_options(self._tls, _LIMITS)
            )
        return pool


def open_client(
    *,
    trusted: Collection[str] = (),
    allow_loopback: bool = False,
    tls: ssl.SSLContext | None = None,
    proxy: str = "",
    most_bytes: int | None = None,
    **options: Any,
) -> httpx2.Client:
    """A guarded client; every redirect that it follows is judged like the first address.

    trusted: hosts that the operator named, at whatever address they are. most_bytes: of an
    answer's body, decoded. options: httpx2.Client's.
    """
    connector = SyncConnector(allow_loopback=allow_loopback, trusted=trusted)
    transport = Transport(connector, tls=tls, proxy=proxy, most_bytes=most_bytes)
    return httpx2.Client(transport=transport, **options)


def find_proxy(url: httpx2.URL) -> str | None:
    """The environment's proxy for an address, None where it is reached without one."""
    proxy = getproxies().get(url.scheme)
    return None if not proxy or is_loopback(url.host) or proxy_bypass(url.host) else proxy


def _make_pool_options(tls: ssl.SSLContext, limits: httpx2.Limits) -> dict[str, Any]:
    return {
        "ssl_context": tls,
        "max_connections": limits.max_connections,
        "max_keepalive_connections": limits.max_keepalive_connections,
        "keepalive_expiry": limits.keepalive_expiry,
    }
