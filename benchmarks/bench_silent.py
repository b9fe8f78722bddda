"""What three tokens are served beside 520 connections that send requests and read no answer.

    python -m benchmarks.bench_silent [--rounds 3] [--seconds 6] [--connections 520]

Rounds without and with them take turns, before `serve --http` and before `proxy`. The silent ones
have no token, send as much as is taken, and open again within 20 s of being closed. Share: requests
that were answered; p95_ratio: p95 of their milliseconds undisturbed over that beside them.
"""

import argparse
import asyncio
import itertools
import json
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2

from benchmarks.bench_proxy import find_port, start_process

SECRETS = {name: f"secret-of-{name}-for-the-benchmark" for name in ("alice", "bob", "carol")}
_PACE_S = 0.05
_GET = b"GET /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 1_000
_TURNS = 100  # tenths of a second until a silent connection sends, or opens, again
_VERSION = "2026-07-28"


def run_server(kind: str, port: int) -> None:
    """Serves `serve` or `proxy` until the process ends."""
    from serving.meta.access_control import build_token
    from serving.meta.policy import HttpSettings

    tokens = tuple(build_token(secret, name) for name, secret in SECRETS.items())
    if kind == "proxy":
        import anyio

        from extensions.proxy.app import run_proxy
        from extensions.proxy.upstream import ProxySettings

        listening = HttpSettings(port=port, path="/v1", tokens=tokens)
        # Nobody is there: its 502 is an answer.
        settings = ProxySettings(f"http://127.0.0.1:{find_port()}")
        anyio.run(run_proxy, settings, listening, backend_options={"use_uvloop": True})
        return
    from dataclasses import replace

    from serving.meta.transports import run_http
    from tests.serving.meta_server import MetaServer, publish, served

    tokens = tuple(replace(token, requests_per_minute=None) for token in tokens)
    with tempfile.TemporaryDirectory() as folder:
        publish(Path(folder))
        meta = MetaServer(Path(folder))
        parts = (served(meta.place), meta.caller, meta.policy, meta.outcomes)
        run_http(*parts, HttpSettings(port=port, tokens=tokens))


def keep_silent(port: int, count: int) -> None:
    """Holds so many connections open, sends on each what is taken, and reads nothing."""
    held: list[socket.socket | None] = [None] * count
    for turn in itertools.count():
        for at in range(count):
            if turn and at % _TURNS != turn % _TURNS:
                continue
            client = held[at]
            try:
                if client is None:
                    client = held[at] = socket.socket()
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
                    client.settimeout(1)
                    client.connect(("127.0.0.1", port))
                    client.setblocking(False)
                client.send(_GET)
            except BlockingIOError:
                pass
            except OSError:
                client.close()
                held[at] = None
        if turn == 0:
            print("silent", flush=True)  # starting took the cores
        time.sleep(0.1)


async def ask_for(kind: str, port: int, seconds: float) -> tuple[int, list[float]]:
    """(requests sent, milliseconds of those that were answered), of all tokens."""
    sent, taken = 0, list[float]()
    ends = time.monotonic() + seconds

    async def ask(secret: str) -> None:
        nonlocal sent
        headers = {"authorization": f"Bearer {secret}"}
        async with httpx2.AsyncClient(trust_env=False, timeout=5, headers=headers) as client:
            while time.monotonic() < ends:
                began, sent = time.perf_counter(), sent + 1
                with suppress(httpx2.HTTPError):
                    answer = await _send_request(client, kind, port)
                    if answer.status_code in (200, 502):
                        taken.append(1000 * (time.perf_counter() - began))
                await asyncio.sleep(_PACE_S)

    await asyncio.gather(*[ask(secret) for secret in SECRETS.values() for _ in range(2)])
    return sent, taken


async def _send_request(client: httpx2.AsyncClient, kind: str, port: int) -> httpx2.Response:
    if kind == "proxy":
        body: dict[str, Any] = {"model": "m", "messages": []}
        return await client.post(f"http://127.0.0.1:{port}/v1/chat/completions", json=body)
    meta = {
        "io.modelcontextprotocol/protocolVersion": _VERSION,
        "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    params = {"name": "find_tools", "arguments": {"query": "read a file"}, "_meta": meta}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    headers = {
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": _VERSION,
        "mcp-method": "tools/call",
        "mcp-name": "find_tools",
    }
    return await client.post(f"http://127.0.0.1:{port}/mcp", json=body, headers=headers)


def measure(kind: str, rounds: int, seconds: float, connections: int) -> dict[str, Any]:
    """Share and p95 of one server with and without the silent ones."""
    port = find_port()
    command = [sys.executable, "-m", "benchmarks.bench_silent"]
    sent, taken = {False: 0, True: 0}, {False: list[float](), True: list[float]()}
    with start_process([*command, "--serve", kind, str(port)], port):
        asyncio.run(ask_for(kind, port, 2))
        for _ in range(rounds):
            for disturbed in (False, True):
                silent = None
                if disturbed:
                    attack = [*command, "--silent", str(port), str(connections)]
                    silent = subprocess.Popen(attack, stdout=subprocess.PIPE)
                    assert silent.stdout is not None
                    silent.stdout.readline()
                    time.sleep(3)  # what they sent at first is answered
                try:
                    count, times = asyncio.run(ask_for(kind, port, seconds))
                finally:
                    if silent is not None:
                        silent.kill()
                        silent.wait()
                sent[disturbed] += count
                taken[disturbed] += times
    p95 = {key: statistics.quantiles(times or [5000.0] * 2, n=20)[-1]
           for key, times in taken.items()}  # fmt: skip
    share = {key: len(times) / max(sent[key], 1) for key, times in taken.items()}
    return {
        "server": kind,
        "requests": [sent[False], sent[True]],
        "share": [round(share[False], 4), round(share[True], 4)],
        "p95_ms": [round(p95[False], 2), round(p95[True], 2)],
        "p95_ratio": round(p95[False] / p95[True], 3),
    }


def main() -> None:
    """Prints one JSON object a server; of pairs, the second is beside the silent ones."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--connections", type=int, default=520)
    parser.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--silent", nargs=2, type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        run_server(args.serve[0], int(args.serve[1]))
    elif args.silent:
        keep_silent(*args.silent)
    else:
        for kind in ("serve", "proxy"):
            print(json.dumps(measure(kind, args.rounds, args.seconds, args.connections)))


if __name__ == "__main__":
    main()
