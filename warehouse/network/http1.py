"""A client of HTTP/1.1 for one address, for streams of many small parts.

httpx2 over httpcore2 took half of the processor time of `toolmill proxy`. This has no redirects, no
cookies, one host and none of the environment's proxies; httptools reads what comes.
"""

import asyncio
import ssl
from collections.abc import Iterable

import anyio
import httpcore2
import httpx2

from warehouse.network.egress import Connector
from warehouse.network.http import make_tls_context
from warehouse.network.http1_connection import Http1Connection


class Http1Client:
    """Sends requests to one address over connections that are kept, for one event loop.

    read_s: without a byte of an answer; connect_s: until a connection stands.
    """

    def __init__(self, base: str, connector: Connector, *, read_s: float, connect_s: float) -> None:
        url = httpx2.URL(base)
        self._base, self._host_header = url.raw_path.rstrip(b"/"), url.netloc
        self._host, self._tls = url.host, make_tls_context() if url.scheme == "https" else None
        self._port = url.port or (443 if self._tls else 80)
        self._connector, self._read_s, self._connect_s = connector, read_s, connect_s
        self._idle: list[Http1Connection] = []  # the one used last is last

    async def send(
        self, method: str, rest: str, headers: Iterable[tuple[bytes, bytes]], body: bytes
    ) -> httpx2.Response:
        """The answer, its body unread; `aclose` frees its connection. rest: of the address, with
        the query. Raises httpx2.HTTPError."""
        head = self._write_head(method, rest, headers, len(body))
        connection = self._take_idle() or await self._connect()
        try:
            return await connection.begin(head, body, self._read_s)
        except BaseException:
            connection.drop()
            raise

    async def aclose(self) -> None:
        """Closes the connections that are idle; those in use end with their answers."""
        for one in self._idle:
            one.drop()
        self._idle = []

    def keep(self, connection: Http1Connection) -> None:
        """Takes back a connection whose answer is read."""
        self._idle = [one for one in self._idle if one.is_usable()]
        self._idle.append(connection)

    def _take_idle(self) -> Http1Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_usable():
                return connection
            connection.drop()
        return None

    def _write_head(
        self, method: str, rest: str, headers: Iterable[tuple[bytes, bytes]], length: int
    ) -> bytes:
        target = self._base + rest.encode("latin-1")
        if not target.startswith(b"/") or any(one <= 32 or one == 127 for one in target):
            raise httpx2.LocalProtocolError("no path of HTTP")
        lines = [b"%b %b HTTP/1.1\r\nhost: %b\r\n" % (method.encode(), target, self._host_header)]
        for name, value in headers:
            if any(one in value or one in name for one in (b"\r", b"\n", b"\0")):
                raise httpx2.LocalProtocolError("no header of HTTP")
            lines.append(b"%b: %b\r\n" % (name, value))
        if length or method in ("POST", "PUT", "PATCH"):
            lines.append(b"content-length: %d\r\n" % length)
        return b"".join([*lines, b"\r\n"])

    async def _connect(self) -> Http1Connection:
        """A new connection to the first address of the host that takes one."""
        loop, last = asyncio.get_running_loop(), None
        name = self._host if self._tls else None
        try:
            with anyio.fail_after(self._connect_s):
                for address in await self._connector.find_addresses(self._host, self._port):
                    try:
                        _, made = await loop.create_connection(
                            lambda: Http1Connection(self.keep),
                            address,
                            self._port,
                            ssl=self._tls,
                            server_hostname=name,
                        )
                        return made
                    except (OSError, ssl.SSLError) as error:
                        last = error
        except TimeoutError:
            raise httpx2.ConnectTimeout(f"none in {self._connect_s:g} s") from None
        except httpcore2.ConnectError as error:
            raise httpx2.ConnectError(str(error)) from None
        raise httpx2.ConnectError(str(last)) from last
