"""What one token, or one who has none, may take of the HTTP server that others share."""

import asyncio
import socket
from contextlib import suppress
from typing import Any

import anyio
import httpx2
import pytest

from serving.meta.policy import HttpSettings
from tests.serving.meta.test_http import ALICE, HEADERS, INITIALIZE, OTHER, SECRET, token
from tests.serving.meta_server import ERAS, connect, http_client, over_http, serve_app, wait_until
from tests.support.cases import cases

MALLORY = token(OTHER, "mallory", requests_per_minute=1)
THEIRS = {**HEADERS, "Authorization": f"Bearer {OTHER}"}
PING = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
HALF = b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "
GET = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n"
MUCH = b"x" * 16_000_000


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serving.meta.http_limits._PAUSE_S", 0.0)


async def ask(url: str, mode: str = "legacy") -> bool:
    """Whether alice is answered."""
    async with http_client(url, SECRET, mode) as client:
        return not (await client.call_tool("find_tools", {"query": "a file"})).is_error


async def talk(url: str, sent: bytes) -> bytes:
    """What a bare connection that sends this is answered until its end."""
    reader, writer = await connect(url)
    writer.write(sent)
    with anyio.fail_after(60):
        answer = await _read_all(reader)
    writer.close()
    return answer


async def keep_sending(writer: asyncio.StreamWriter, sent: bytes, reading: asyncio.Task) -> None:
    """Sends this again and again until the other side has closed the connection."""
    with anyio.fail_after(10):
        while not reading.done():
            writer.write(sent)
            await anyio.sleep(0.03)
    writer.close()


def serving(app: Any, **settings: Any) -> Any:
    """(port, server) of an application under the limits."""
    return serve_app(app, HttpSettings(port=0, **settings), "off")


async def test_a_token_opens_no_more_sessions_than_its_own_and_no_request_goes_uncounted(meta):
    settings = {"tokens": (ALICE, MALLORY), "max_sessions": 8, "token_sessions": 3}
    async with over_http(meta, **settings) as url, httpx2.AsyncClient() as http:
        opened = [await http.post(url, json=INITIALIZE, headers=THEIRS) for _ in range(12)]
        assert await ask(url)
        versions = ("2025-06-18", "2026-07-28")  # the SDK takes the first
        twice = [*THEIRS.items(), *(("MCP-Protocol-Version", version) for version in versions)]
        opened.append(await http.post(url, json=INITIALIZE, headers=twice))
        session = {**THEIRS, "Mcp-Session-Id": opened[0].headers["mcp-session-id"]}
        ended = await http.delete(url, headers=session)
        again = await http.post(url, json=INITIALIZE, headers=THEIRS)
    assert [item.status_code for item in opened] == [200] * 3 + [429] * 10
    assert opened[-1].headers["retry-after"] == "60"
    assert "3 sessions open, allowed are 3" in opened[-1].text
    assert (ended.status_code, again.status_code) == (200, 200)
    settings = {"tokens": (MALLORY,), "token_sessions": 3}
    async with over_http(meta, **settings) as url, httpx2.AsyncClient() as http:
        sent = (http.post(url, json=INITIALIZE, headers=THEIRS) for _ in range(20))
        codes = [item.status_code for item in await asyncio.gather(*sent)]
    assert 1 <= codes.count(200) <= 3
    assert set(codes) == {200, 429}
    async with over_http(meta, tokens=(ALICE, MALLORY)) as url, httpx2.AsyncClient() as http:
        opened = await http.post(url, json=INITIALIZE, headers=THEIRS)
        session = {**THEIRS, "Mcp-Session-Id": opened.headers["mcp-session-id"]}
        codes = [(await http.post(url, json=PING, headers=session)).status_code for _ in range(70)]
        assert await ask(url)
    assert codes == [200] * 59 + [429] * 11


async def test_a_token_holds_no_more_requests_open_than_its_own(meta):
    settings = {"tokens": (ALICE, MALLORY), "open_requests": 2}
    stuck = {**THEIRS, "Content-Length": "100", "Content-Type": "application/json"}

    async def trickle():
        yield b"{"
        await anyio.sleep(60)

    async def send(http: httpx2.AsyncClient, url: str) -> None:
        # Refused while a ping below holds a place, it would leave the place free for ever.
        for _ in range(100):
            with suppress(httpx2.HTTPError):
                await http.post(url, content=trickle(), headers=stuck)
            await anyio.sleep(0.01)

    async with (
        over_http(meta, **settings) as url,
        httpx2.AsyncClient() as http,
        anyio.create_task_group() as group,
    ):
        for _ in range(2):
            group.start_soon(send, http, url)
        with anyio.fail_after(60):
            while (await http.post(url, json=PING, headers=THEIRS)).status_code != 429:
                await anyio.sleep(0.02)
        assert await ask(url, "auto")
        group.cancel_scope.cancel()


@pytest.mark.parametrize("mode", ERAS)
async def test_half_sent_headers_keep_nobody_out(meta, mode):
    held: list = []
    async with over_http(meta, tokens=(ALICE,), max_connections=20, header_s=600.0) as url:
        for _ in range(60):
            held.append(await connect(url))
            held[-1][1].write(HALF)
            await held[-1][1].drain()
        assert await ask(url, mode)
        first = await asyncio.wait_for(_read_all(held[0][0]), 60)
        for _, writer in held:
            writer.close()
    assert first == b""  # the oldest made room


@cases(
    "sent",
    HALF,
    b"",
    b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n"
    b"Authorization: Bearer " + SECRET.encode() + b"\r\n\r\n{",
)
async def test_a_header_or_body_that_never_ends_is_cut_off(meta, sent):
    """One byte now and then does not set the clock back."""
    async with over_http(meta, tokens=(ALICE,), header_s=0.3, body_s=0.3) as url:
        reader, writer = await connect(url)
        writer.write(sent)
        reading = asyncio.create_task(_read_all(reader))
        await keep_sending(writer, b" " if sent else b"", reading)
        assert await ask(url)


async def test_with_too_long_a_header_or_without_a_token_no_connection_is_kept(meta):
    async with over_http(meta, tokens=(ALICE,), header_s=600) as url:
        answer = await talk(url, HALF + b"X: " + b"y" * 600_000)
        assert answer == b"" or answer.startswith(b"HTTP/1.1 400")
        assert await ask(url)
    async with over_http(meta, tokens=(ALICE,)) as url:
        sent = b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 2\r\n\r\n{}"
        answer = await talk(url, sent)
        assert await ask(url)
    assert answer.startswith(b"HTTP/1.1 401")
    assert b"connection: close" in answer.lower()


async def _read_on(scope: Any, receive: Any, send: Any) -> None:
    """Answers when the client has gone, as a stream does."""
    while (await receive())["type"] != "http.disconnect":
        pass


@cases(
    "sent, more, header_s",
    (GET + b"GET / HTTP/1.1\r\n", b"a: b\r\n", 600.0),
    (GET + b"GET / HTTP/1.1\r\n", b"", 0.2),
    (GET, b"\r\n", 600.0),
    (CHUNKED + b"0\r\n", b"a: b\r\n", 600.0),
    (CHUNKED + b"1", b";a=b", 600.0),
    ids=["pipelined", "pipelined-silent", "blank-lines", "trailers", "chunk-extension"],
)
async def test_what_is_sent_outside_a_body_ends(monkeypatch, sent, more, header_s):
    """Beside an open request a header, and behind the last chunk trailers, have the limits of a
    header."""
    monkeypatch.setattr("serving.meta.http_limits._MOST_HEAD", 1_000)
    async with serving(_read_on, header_s=header_s, body_s=600.0) as (port, server):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        reading = asyncio.create_task(_read_all(reader))
        await wait_until(lambda: len(server.server_state.tasks) == 1)
        await keep_sending(writer, more * 20, reading)
        await wait_until(lambda: not server.server_state.tasks)
        assert reading.result() == b""
        assert not server.server_state.connections


async def test_a_body_in_small_chunks_is_no_header(monkeypatch):
    monkeypatch.setattr("serving.meta.http_limits._MOST_HEAD", 1_000)
    body = b""

    async def read_and_answer(scope: Any, receive: Any, send: Any) -> None:
        nonlocal body
        more = True
        while more:
            message = await receive()
            body += message["body"]
            more = message["more_body"]
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async with serving(read_and_answer) as (port, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(CHUNKED)
        for _ in range(20):
            writer.write(b"1\r\nx\r\n" * 50)
            await anyio.sleep(0)
        writer.write(b"0\r\nSum: 1\r\n\r\n")
        with anyio.fail_after(10):
            answer = await reader.readuntil(b"\r\n\r\n")
        writer.close()
    assert answer.startswith(b"HTTP/1.1 204")
    assert body == b"x" * 1_000


async def test_an_answer_that_takes_long_is_not_cut_off(meta):
    async with (
        over_http(meta, tokens=(ALICE,), header_s=0.2, body_s=0.2) as url,
        http_client(url, SECRET) as client,
        anyio.create_task_group() as group,
    ):
        ended = []

        async def call() -> None:
            ended.append(await client.call_tool("call_tool", {"tool_id": "npm:odd::slow"}))

        group.start_soon(call)
        await anyio.sleep(0.6)
        assert meta.caller.called
        assert not ended
        group.cancel_scope.cancel()


async def _read_all(reader: asyncio.StreamReader) -> bytes:
    with suppress(ConnectionError):
        return await reader.read()
    return b""


async def _send_much(scope: Any, receive: Any, send: Any) -> None:
    """Answers with more than sockets hold."""
    length = (b"content-length", str(len(MUCH)).encode())
    await send({"type": "http.response.start", "status": 200, "headers": [length]})
    await send({"type": "http.response.body", "body": MUCH})


async def open_silent(port: int, sent: bytes) -> socket.socket:
    """A connection that sends and reads nothing."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    client.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(client, ("127.0.0.1", port))
    await loop.sock_sendall(client, sent)
    return client


async def test_an_answer_is_cut_off_where_nobody_reads_it_but_not_where_slowly():
    async with serving(_send_much, write_s=0.3) as (port, server):
        clients = [await open_silent(port, GET) for _ in range(3)]
        await wait_until(lambda: server.server_state.total_requests == 3)
        await wait_until(lambda: not server.server_state.connections)
        assert server.server_state.total_requests == 3
        for client in clients:
            client.close()
    loop, read = asyncio.get_running_loop(), 0
    async with serving(_send_much, write_s=0.2) as (port, _):
        client = await open_silent(port, GET)
        with anyio.fail_after(60):
            while part := await loop.sock_recv(client, 1_000_000):
                read += len(part)
                if read >= len(MUCH):
                    break
                await anyio.sleep(0.1 if read < 60_000 else 0)
        client.close()
    assert read >= len(MUCH)


async def test_who_does_not_read_makes_room_before_who_says_nothing_yet():
    async with serving(_send_much, write_s=600.0, max_connections=4) as (port, server):
        state = server.server_state

        async def wait_for_waiting(count: int) -> None:
            await wait_until(lambda: sum(item.cycle is None for item in state.connections) == count)

        silent = [await open_silent(port, HALF)]
        silent += [await open_silent(port, GET) for _ in range(3)]
        await wait_until(lambda: state.total_requests == 3)
        for count in range(3):
            silent.append(await open_silent(port, HALF))
            await wait_for_waiting(2 + count)
            assert len(state.connections) == 4
        for client in silent:
            client.close()


@cases("asked, answered", (2, 2), (3, 0))
async def test_one_request_is_pipelined_and_no_more(asked, answered):
    opened = asyncio.Event()

    async def wait_and_answer(scope: Any, receive: Any, send: Any) -> None:
        await opened.wait()
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async with serving(wait_and_answer) as (port, server):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(GET * asked)
        await wait_until(lambda: len(server.server_state.tasks) == 1)
        opened.set()
        writer.write_eof()
        with anyio.fail_after(30):
            answer = await _read_all(reader)
        writer.close()
    assert answer.count(b"204 No Content") == answered
