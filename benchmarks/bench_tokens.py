"""What three honest tokens get of the meta-server while a fourth attacks it.

    python -m benchmarks.bench_tokens [--rounds 5] [--seconds 8]

Each round runs the arms in turn, each on a new server: nobody attacks; attack, limits as shipped;
attack, without limits (as before). The attacker opens sessions, pings, searches and holds calls
in closed loops, and keeps 300 half-sent headers and 40 bodies that never end. Attacker, honest
clients and server are processes of their own on the same cores.
"""

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from benchmarks.own_process import FRESH, run_alone

TOKENS = ("alice", "bob", "carol", "mallory")
ARMS = ("undisturbed", "attack, limits", "attack, no limits")
SLOW = 5.0  # seconds after which an honest request counts as not served
_HALF = b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "
_HEADERS = {"Accept": "application/json, text/event-stream"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=8.0)
    chosen = parser.parse_args()
    print_table([measure_round(chosen.seconds) for _ in range(chosen.rounds)])


def secret_of(name: str) -> str:
    """The secret of a token of this benchmark."""
    return sha256(name.encode()).hexdigest()


def measure_round(seconds: float) -> dict[str, list[float | None]]:
    """Seconds of each honest request by arm, None where it was not served."""
    found = {}
    for arm in ARMS:
        with run_server(unlimited=arm == ARMS[2]) as url:
            attacker = FRESH.Process(target=attack, args=(url, seconds + 2))
            if arm != ARMS[0]:
                attacker.start()
            time.sleep(2)  # the attack stands when the others come
            found[arm] = run_alone(ask_all, url, seconds)
            if arm != ARMS[0]:
                attacker.join()
    return found


@contextmanager
def run_server(unlimited: bool) -> Iterator[str]:
    """A meta-server in a process of its own; yields its address."""
    from benchmarks.tokens_server import serve_functions

    ours, theirs = FRESH.Pipe()
    with tempfile.TemporaryDirectory() as name:
        process = FRESH.Process(target=serve_functions, args=(Path(name), unlimited, theirs.send))
        process.start()
        try:
            if not ours.poll(60):
                raise SystemExit("the server did not start within 60 s")
            yield ours.recv()
        finally:
            process.kill()
            process.join()


def ask_all(url: str, seconds: float) -> list[float | None]:
    """What the honest tokens got, each searching and calling in turn, five times a second."""
    return asyncio.run(_ask_all(url, seconds))


def attack(url: str, seconds: float) -> None:
    """Everything at once, for so long."""
    os.nice(10)  # it is elsewhere: its own work is no part of what is measured
    asyncio.run(_attack(url, seconds))


async def _ask_all(url: str, seconds: float) -> list[float | None]:
    parts = await asyncio.gather(*(ask_one(url, name, seconds) for name in TOKENS[:3]))
    return [one for part in parts for one in part]


async def ask_one(url: str, name: str, seconds: float) -> list[float | None]:
    """Seconds of each request of one token; None where none came, or an error."""
    found: list[float | None] = []
    until, turn = time.monotonic() + seconds, 0
    async with open_http(name) as http:
        while time.monotonic() < until:
            turn += 1
            tool, arguments = "find_tools", {"query": f"read file number {turn}"}
            if turn % 2:
                tool = "call_tool"
                arguments = {"tool_id": f"npm:{name}::quick", "arguments": {}}
            began = time.monotonic()
            served = await post(http, url, tool, arguments)
            found.append(time.monotonic() - began if served else None)
            await asyncio.sleep(0.2)
    return found


def open_http(name: str, within: float = SLOW) -> Any:
    """An HTTP client of one token."""
    import httpx2

    headers = {**_HEADERS, "Authorization": f"Bearer {secret_of(name)}"}
    limits = httpx2.Limits(max_connections=200, max_keepalive_connections=100)
    return httpx2.AsyncClient(headers=headers, timeout=within, limits=limits)


async def post(
    http: Any, url: str, tool: str, arguments: dict[str, Any], within: float = SLOW
) -> bool:
    """Whether a call of one of our tools is answered without an error (protocol 2026-07-28)."""
    import httpx2

    version = "2026-07-28"
    meta = {
        "io.modelcontextprotocol/protocolVersion": version,
        "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    params = {"name": tool, "arguments": arguments, "_meta": meta}
    sent = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    headers = {"MCP-Protocol-Version": version, "Mcp-Method": "tools/call", "Mcp-Name": tool}
    try:
        async with asyncio.timeout(within):
            answer = await http.post(url, json=sent, headers=headers)
    except (httpx2.HTTPError, TimeoutError):
        return False
    return answer.status_code == 200 and '"isError":false' in answer.text.replace(" ", "")


async def _attack(url: str, seconds: float) -> None:
    async with open_http("mallory", 60.0) as http:

        async def initialize(_: int) -> None:
            about = {"name": "x", "version": "1"}
            asked = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": about}
            sent = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": asked}
            await http.post(url, json=sent)

        async def ping(_: int) -> None:
            await http.post(url, json={"jsonrpc": "2.0", "id": 1, "method": "ping"})

        async def search(turn: int) -> None:
            await post(http, url, "find_tools", {"query": f"file {turn} " * 200, "k": 50})

        async def hold(turn: int) -> None:
            await post(http, url, "call_tool", {"tool_id": f"npm:m{turn % 9}::slow"}, 60.0)

        jobs = [repeat(hold, at) for at in range(16)]  # first, while it has requests left
        jobs += [repeat(one) for one in (initialize, ping, search) for _ in range(16)]
        body = b"Content-Length: 9\r\nAuthorization: Bearer " + secret_of("mallory").encode()
        jobs += [repeat(lambda _: hold_connection(url, _HALF)) for _ in range(300)]
        slow = b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n" + body + b"\r\n\r\n{"
        jobs += [repeat(lambda _: hold_connection(url, slow)) for _ in range(40)]
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await asyncio.gather(*jobs)


async def repeat(once: Callable[[int], Awaitable[None]], turn: int = 0) -> None:
    """For ever, whatever comes of it."""
    while True:
        turn += 1
        with suppress(Exception):
            await once(turn)
        await asyncio.sleep(0.01)


async def hold_connection(url: str, sent: bytes) -> None:
    """Sends part of a request, and waits until it is cut off."""
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    try:
        writer.write(sent)
        await reader.read()
    finally:
        writer.close()


def print_table(rounds: list[dict[str, list[float | None]]]) -> None:
    """Served share and p95 of the honest tokens; ratios to `undisturbed` of the same round, the
    median of the rounds and their range."""
    print("| arm | requests | served | share | p50 ms | p95 ms | share, ratio | p95, ratio |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | --- | --- |")
    for arm in ARMS:
        every = [one for of in rounds for one in of[arm]]
        served = [one for one in every if one is not None]
        p50, p95 = (np.percentile(served, [50, 95]) * 1000) if served else (np.nan, np.nan)
        shares = [share_of(of[arm]) / share_of(of[ARMS[0]]) for of in rounds]
        speeds = [p95_of(of[ARMS[0]]) / p95_of(of[arm]) for of in rounds]
        print(
            f"| {arm} | {len(every)} | {len(served)} | {share_of(every):.3f} | {p50:.0f} |"
            f" {p95:.0f} | {show_range(shares)} | {show_range(speeds)} |"
        )


def share_of(found: list[float | None]) -> float:
    """Share of requests that were served."""
    return sum(one is not None for one in found) / max(1, len(found))


def p95_of(found: list[float | None]) -> float:
    """Seconds; a request that was not served took as long as one waits for it."""
    return float(np.percentile([SLOW if one is None else one for one in found], 95))


def show_range(values: list[float]) -> str:
    """`median (lowest to highest)`."""
    return f"{np.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


if __name__ == "__main__":
    main()
