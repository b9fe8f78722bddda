"""What one token, or one who has none, may take of the HTTP server that others share."""

import asyncio
from contextlib import suppress
from urllib.parse import urlsplit

import anyio
import httpx2
import pytest

from tests.serving.meta.test_http import (
    ALICE,
    HEADERS,
    INITIALIZE,
    OTHER,
    SECRET,
    token,
)
from tests.serving.meta_server import ERAS, MetaServer, http_client, over_http

MALLORY = token(OTHER, "mallory", requests_per_minute=1)
THEIRS = {**HEADERS, "Authorization": f"Bearer {OTHER}"}
PING = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
HALF = b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serving.meta.http_limits._PAUSE_S", 0.0)


async def ask(url: str, mode: str = "legacy") -> bool:
    """Whether alice is answered."""
    async with http_client(url, SECRET, mode) as client:
        return not (await client.call_tool("find_tools", {"query": "a file"})).is_error


async def send_half(url: str, stack: list) -> None:
    """Opens a connection and sends half a header."""
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    writer.write(HALF)
    await writer.drain()
    stack.append((reader, writer))


async def test_a_token_opens_no_more_sessions_than_its_own(meta: MetaServer) -> None:
    settings = {"tokens": (ALICE, MALLORY), "max_sessions": 8, "token_sessions": 3}
    async with over_http(meta, **settings) as url, httpx2.AsyncClient() as http:
        opened = [await http.post(url, json=INITIALIZE, headers=THEIRS) for _ in range(12)]
        assert await ask(url)
        session = {**THEIRS, "Mcp-Session-Id": opened[0].headers["mcp-session-id"]}
        ended = await http.delete(url, headers=session)
        again = await http.post(url, json=INITIALIZE, headers=THEIRS)
    assert [item.status_code for item in opened] == [200] * 3 + [429] * 9
    assert opened[-1].headers["retry-after"] == "60"
    assert "3 sessions open, allowed are 3" in opened[-1].text
    assert (ended.status_code, again.status_code) == (200, 200)


async def test_sessions_opened_at_once_do_not_pass_the_limit_together(meta: MetaServer) -> None:
    settings = {"tokens": (MALLORY,), "token_sessions": 3}
    async with over_http(meta, **settings) as url, httpx2.AsyncClient() as http:
        sent = (http.post(url, json=INITIALIZE, headers=THEIRS) for _ in range(20))
        codes = [item.status_code for item in await asyncio.gather(*sent)]
    assert 1 <= codes.count(200) <= 3
    assert set(codes) == {200, 429}


async def test_requests_that_ask_nothing_are_counted_too(meta: MetaServer) -> None:
    async with over_http(meta, tokens=(ALICE, MALLORY)) as url, httpx2.AsyncClient() as http:
        opened = await http.post(url, json=INITIALIZE, headers=THEIRS)
        session = {**THEIRS, "Mcp-Session-Id": opened.headers["mcp-session-id"]}
        codes = [(await http.post(url, json=PING, headers=session)).status_code for _ in range(70)]
        assert await ask(url)
    assert codes == [200] * 59 + [429] * 11


async def test_a_token_holds_no_more_requests_open_than_its_own(meta: MetaServer) -> None:
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
async def test_half_sent_headers_keep_nobody_out(meta: MetaServer, mode: str) -> None:
    held: list = []
    async with over_http(meta, tokens=(ALICE,), max_connections=20, header_s=600.0) as url:
        for _ in range(60):
            await send_half(url, held)
        assert await ask(url, mode)
        first = await asyncio.wait_for(_read_all(held[0][0]), 60)
        for _, writer in held:
            writer.close()
    assert first == b""  # the oldest made room


@pytest.mark.parametrize(
    "sent",
    [
        HALF,
        b"",
        b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n"
        b"Authorization: Bearer " + SECRET.encode() + b"\r\n\r\n{",
    ],
)
async def test_a_header_or_body_that_never_ends_is_cut_off(meta: MetaServer, sent: bytes) -> None:
    """One byte now and then does not set the clock back."""
    async with over_http(meta, tokens=(ALICE,), header_s=0.3, body_s=0.3) as url:
        address = urlsplit(url)
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        writer.write(sent)
        reading = asyncio.create_task(_read_all(reader))
        with anyio.fail_after(10):
            while not reading.done():
                if sent:
                    writer.write(b" ")
                await anyio.sleep(0.05)
        writer.close()
        assert await ask(url)


async def test_a_header_that_is_too_long_is_refused_before_its_end(meta: MetaServer) -> None:
    async with over_http(meta, tokens=(ALICE,), header_s=600) as url:
        address = urlsplit(url)
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        writer.write(HALF + b"X: " + b"y" * 600_000)
        with anyio.fail_after(60):
            answer = await _read_all(reader)
        writer.close()
        assert answer == b"" or answer.startswith(b"HTTP/1.1 400")
        assert await ask(url)


async def test_an_answer_that_takes_long_is_not_cut_off(meta: MetaServer) -> None:
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
