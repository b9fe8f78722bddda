"""Overhead of `toolmill proxy` against its upstream, at 32 concurrent streams.

    python -m benchmarks.bench_proxy [--rounds 4] [--streams 32] [--spread S] [--litellm VENV]

A scripted upstream on loopback answers with text and one call that does not fit, an event every
20 ms. Each of the streams at once begins within `spread` seconds and is followed by three more;
rounds of direct streams and of streams through each proxy take turns. Processor time of a server is
that of its own turns; the upstream's alone is `direct`. litellm: a virtual
environment that has LiteLLM's proxy; without it that row says `not run`.
"""

import argparse
import asyncio
import json
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import psutil
import uvicorn
from starlette.requests import Request
from starlette.responses import StreamingResponse

from tests.extensions.proxy.upstream_script import BROKEN, CHAT_TOOLS, stream_chat

_PACE_S, _IN_A_ROW = 0.02, 4
_KEY = "sk-nothing-of-this-is-secret"


async def answer_stream(scope: Any, receive: Any, send: Any) -> None:
    """The upstream: the same stream for every request."""
    await Request(scope, receive).body()

    async def iterate() -> AsyncIterator[bytes]:
        for part in stream_chat(BROKEN):
            yield part
            await asyncio.sleep(_PACE_S)

    await StreamingResponse(iterate(), media_type="text/event-stream")(scope, receive, send)


async def time_stream(client: httpx2.AsyncClient, url: str) -> tuple[float, float]:
    """Seconds to the first byte and to the end of one stream."""
    body = {"model": "m", "messages": [{"role": "user", "content": "weather?"}], "stream": True}
    began, first = time.perf_counter(), None
    headers = {"authorization": f"Bearer {_KEY}"}
    address, sent = f"{url}/v1/chat/completions", {**body, "tools": CHAT_TOOLS}
    async with client.stream("POST", address, json=sent, headers=headers) as answer:
        answer.raise_for_status()
        async for _ in answer.aiter_raw():
            first = first or time.perf_counter() - began
    return first or 0.0, time.perf_counter() - began


async def time_rounds(
    servers: dict[str, tuple[str, psutil.Process]], rounds: int, streams: int, spread_s: float
) -> tuple[dict[str, list[tuple[float, float]]], dict[str, float]]:
    """(the seconds of all streams by name, the processor seconds of each server over the turns of
    its own); the first round warms up and is left out."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in servers}
    spent = dict.fromkeys(servers, 0.0)
    limits = httpx2.Limits(max_connections=streams)
    draw = random.Random(0)
    async with httpx2.AsyncClient(trust_env=False, timeout=60, limits=limits) as client:

        async def time_some(url: str, pause_s: float) -> list[tuple[float, float]]:
            await asyncio.sleep(pause_s)
            return [await time_stream(client, url) for _ in range(_IN_A_ROW)]

        for at in range(rounds + 1):
            for name, (url, process) in servers.items():
                began = sum(process.cpu_times()[:2])
                pauses = [draw.uniform(0, spread_s) for _ in range(streams)]
                taken = await asyncio.gather(*[time_some(url, pause) for pause in pauses])
                if at:
                    found[name] += [item for row in taken for item in row]
                    spent[name] += sum(process.cpu_times()[:2]) - began
    return found, spent


@contextmanager
def start_process(command: list[str], port: int) -> Iterator[tuple[str, psutil.Process]]:
    """A server of its own process, once it listens: (address, process)."""
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            ends = time.monotonic() + 90
            while process.poll() is None and time.monotonic() < ends:
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.1)
            else:
                log.seek(0)
                raise SystemExit(f"{command[0]} does not listen: {log.read()[-800:].decode()}")
            yield f"http://127.0.0.1:{port}", psutil.Process(process.pid)
        finally:
            process.terminate()
            process.wait(20)


def find_port() -> int:
    """A free port of loopback."""
    with socket.create_server(("127.0.0.1", 0)) as one:
        return one.getsockname()[1]


def start_litellm(venv: Path, upstream: str, folder: Path) -> tuple[list[str], int]:
    """The command of LiteLLM's proxy before the same upstream, and its port."""
    port, config = find_port(), folder / "litellm.json"
    model = {"model": "openai/m", "api_base": f"{upstream}/v1", "api_key": _KEY}
    models = [{"model_name": "m", "litellm_params": model}]
    # On loopback without a key, as ours: 1.108 refuses to start without this word.
    general = {"dangerously_permit_weak_or_unset_master_key": True}
    config.write_text(json.dumps({"model_list": models, "general_settings": general}))
    where = ["--host", "127.0.0.1", "--port", str(port)]
    return [str(venv / "bin" / "litellm"), "--config", str(config), *where], port


def describe_overhead(base: list[float], other: list[float]) -> dict[str, list[float]]:
    """p50 and p99 over the direct ones in ms, each with the 95% interval of 1,000 bootstraps."""
    draw = random.Random(0)
    points: dict[str, Callable[[list[float]], float]] = {
        "p50": statistics.median,
        "p99": lambda values: sorted(values)[int(0.99 * (len(values) - 1))],
    }
    result = {}
    for name, take in points.items():
        drawn = sorted(
            take(draw.choices(other, k=len(other))) - take(draw.choices(base, k=len(base)))
            for _ in range(1000)
        )
        low_high = take(other) - take(base), drawn[25], drawn[974]
        result[name] = [round(1000 * item, 2) for item in low_high]
    return result


def main() -> None:
    """Prints one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--streams", type=int, default=32)
    parser.add_argument("--spread", type=float, default=0.3, help="seconds; 0: all in step")
    parser.add_argument("--litellm", type=Path, help="virtual environment with litellm[proxy]")
    parser.add_argument("--upstream", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.upstream:
        uvicorn.run(answer_stream, port=args.upstream, log_level="critical", lifespan="off")
        return
    with ExitStack() as stack:
        port = find_port()
        own = [sys.executable, "-m", "benchmarks.bench_proxy", "--upstream", str(port)]
        servers = {"direct": stack.enter_context(start_process(own, port))}
        upstream, port = servers["direct"][0], find_port()
        run = "from orchestration.cli.app import main; main()"
        command = [sys.executable, "-c", run, "proxy", "--upstream", upstream]
        command += ["--port", str(port)]
        servers["toolmill"] = stack.enter_context(start_process(command, port))
        if args.litellm:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            command, port = start_litellm(args.litellm, upstream, folder)
            servers["litellm"] = stack.enter_context(start_process(command, port))
        timed = time_rounds(servers, args.rounds, args.streams, args.spread)
        taken, spent = asyncio.run(timed)
        metrics = httpx2.get(f"{servers['toolmill'][0]}/metrics", trust_env=False).text
    n = args.rounds * args.streams * _IN_A_ROW
    shown: dict[str, Any] = {"n": n, "streams": args.streams}
    for name in ("toolmill", "litellm"):
        if name not in taken:
            shown[name] = "not run"
            continue
        parts = {"first_byte_ms": 0, "whole_ms": 1}
        shown[name] = {
            part: describe_overhead([x[at] for x in taken["direct"]], [x[at] for x in taken[name]])
            for part, at in parts.items()
        }
    shown["processor_ms"] = {name: round(1000 * one / n, 2) for name, one in spent.items()}
    told = dict(line.split(" ") for line in metrics.splitlines() if not line.startswith("#"))
    full = "toolmill_proxy_overhead_seconds"
    shown["own_ms_mean"] = round(1000 * float(told[f"{full}_sum"]) / int(told[f"{full}_count"]), 3)
    shown["repaired"] = int(told["toolmill_proxy_calls_repaired_total"])
    print(json.dumps(shown))


if __name__ == "__main__":
    main()
