"""The client of one address, before a server that writes what it is told, byte for byte."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import httpx2
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from warehouse.network import http1
from warehouse.network.egress import Connector
from warehouse.network.http1 import Http1Client

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nnoon"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nno\r\n2\r\non\r\n0\r\n\r\n"


class Server:
    """Answers each request with the bytes of `answer`, then closes where `closes`."""

    def __init__(self) -> None:
        self.answer, self.closes, self.opened = OK, False, 0
        self.heads: list[bytes] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.opened += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self.heads.append(head)
                length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
                await reader.readexactly(int(length or 0))
                writer.write(self.answer)
                await writer.drain()
                if self.closes:
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def run_client(read_s: float = 60.0) -> AsyncIterator[tuple[Server, Http1Client]]:
    server = Server()
    async with await asyncio.start_server(server.serve, "127.0.0.1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        guard = Connector(trusted=["127.0.0.1"])
        client = Http1Client(f"http://127.0.0.1:{port}/v1/", guard, read_s=read_s, connect_s=60)
        try:
            yield server, client
        finally:
            await client.aclose()


async def ask(client: Http1Client, method: str = "POST", body: bytes = b"{}") -> tuple[int, bytes]:
    response = await client.send(method, "/chat?a=b", [(b"x-one", b"1")], body)
    return response.status_code, b"".join([part async for part in response.aiter_raw()])


async def test_a_connection_serves_one_request_after_the_other() -> None:
    async with run_client() as (server, client):
        for server.answer in (OK, CHUNKED, OK):
            assert await ask(client) == (200, b"noon")
        await asyncio.gather(*[ask(client) for _ in range(3)])
        assert (server.opened, len(server.heads)) == (3, 6)
        first, host, *rest = server.heads[0].split(b"\r\n")
        assert first == b"POST /v1/chat?a=b HTTP/1.1"
        assert host.startswith(b"host: 127.0.0.1:")
        assert rest == [b"x-one: 1", b"content-length: 2", b"", b""]


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (b"HTTP/1.1 204 No Content\r\n\r\n", (204, b"")),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + OK, (200, b"noon")),
        (b"HTTP/1.0 200 OK\r\n\r\nuntil the end", (200, b"until the end")),
        (b"HTTP/1.1 429 Slow\r\ncontent-length: 0\r\n\r\n", (429, b"")),
    ],
)
async def test_forms_of_an_answer(answer: bytes, found: tuple[int, bytes]) -> None:
    async with run_client() as (server, client):
        server.answer, server.closes = answer, True
        assert await ask(client) == found


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        OK[:-1],
        CHUNKED[:-5],
        b"SSH-2.0-x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 30_000,
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
    ],
)
async def test_an_answer_that_breaks_off_is_no_answer(answer: bytes) -> None:
    async with run_client() as (server, client):
        server.answer, server.closes = answer, True
        with pytest.raises(httpx2.RemoteProtocolError):
            await ask(client)
        server.answer, server.closes = OK, False
        assert await ask(client) == (200, b"noon")


@pytest.mark.parametrize(
    "answer",
    [OK + OK, OK.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"), OK[:-4]],
)
async def test_a_connection_in_doubt_is_not_used_again(answer: bytes) -> None:
    async with run_client() as (server, client):
        server.answer = answer
        await ask(client, "HEAD" if answer == OK[:-4] else "POST", b"")
        server.answer = OK
        assert await ask(client) == (200, b"noon")
        assert server.opened == 2


async def test_an_answer_that_nobody_reads_waits_and_then_goes_on() -> None:
    body = bytes(8_000_000)
    async with run_client() as (server, client):
        server.answer = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
        response = await client.send("GET", "/", [], b"")
        held: Any = response.stream
        await wait_for(lambda: held._connection._paused)
        assert held._connection._size < 1_000_000
        assert sum([len(part) async for part in response.aiter_raw()]) == len(body)
        unread = await client.send("GET", "/", [], b"")
        await unread.aclose()
        assert (await ask(client))[0] == 200
        assert server.opened == 2


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """(certificate of 127.0.0.1 signed by itself, its key)."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "loopback")])
    host = x509.IPAddress(ip_address("127.0.0.1"))
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([host]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    secret = key.private_bytes(pem, form, serialization.NoEncryption())
    paths = folder / "certificate.pem", folder / "key.pem"
    for path, written in zip(paths, (made.public_bytes(pem), secret), strict=True):
        path.write_bytes(written)
    return paths


async def test_a_server_whose_certificate_nobody_vouches_for_is_not_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, key = make_certificate(tmp_path)
    own = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    own.load_cert_chain(certificate, key)
    server = Server()
    async with await asyncio.start_server(server.serve, "127.0.0.1", 0, ssl=own) as listening:
        url = f"https://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        guard = Connector(trusted=["127.0.0.1"])
        with pytest.raises(httpx2.ConnectError):
            await ask(Http1Client(url, guard, read_s=60, connect_s=60))
        known = ssl.create_default_context(cafile=str(certificate))
        monkeypatch.setattr(http1, "make_tls_context", lambda: known)
        client = Http1Client(url, guard, read_s=60, connect_s=60)
        for server.answer in (CHUNKED, OK):
            assert await ask(client) == (200, b"noon")
        assert len(server.heads) == 2
        await client.aclose()


async def wait_for(found: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not found():
            await asyncio.sleep(0.01)


async def test_a_silent_server_is_left_in_time() -> None:
    async with run_client(0.05) as (server, client):
        server.answer = b""
        with pytest.raises(httpx2.ReadTimeout):
            await ask(client)
        server.answer = OK[:-1]
        with pytest.raises(httpx2.ReadTimeout):
            await ask(client)


async def test_nothing_is_sent_that_would_be_another_request() -> None:
    async with run_client() as (server, client):
        for rest, headers in (
            ("/x y", []),
            ("/x\r\nhost: evil", []),
            ("/", [(b"x", b"1\r\nhost: evil")]),
            ("/", [(b"authorization", b"Bearer sk\n")]),
        ):
            with pytest.raises(httpx2.LocalProtocolError):
                await client.send("GET", rest, headers, b"")
        assert not server.heads


async def test_an_address_without_a_server_or_that_is_private() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    for guard in (Connector(trusted=["127.0.0.1"]), Connector()):
        with pytest.raises(httpx2.ConnectError):
            await Http1Client(url, guard, read_s=60, connect_s=60).send("GET", "/", [], b"")
