"""Concurrent clients on the HTTP meta-server while new index versions are published under it.

The versions share no tool: each holds another part of the pool's servers, so an answer that names
one version and holds a tool of another is a stale mix. Clients are of the `mcp` SDK and share one
process.

    python -m benchmarks.router_serve PLACE                    the server alone; prints its address
    python -m benchmarks.router_serve PLACE EVERY VERSION …    the publisher alone
"""

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np

from assets.vectors.embed import MiniLM, save_encoder
from benchmarks.router_clients import Asking, Seen, client
from benchmarks.router_data import Pool, queries, smithery
from benchmarks.router_index import source_of
from benchmarks.router_vectors import Kept
from serving.index.folder import build_index, load_index, point_to
from warehouse.storage.digest import digest

_VERSIONS = 3
_SECRET_NAME = "TOOLMILL_BENCH_TOKEN"


def serve(asked: argparse.Namespace) -> dict[str, Any]:
    """{requests, per_second, errors, stale_mix, ms, versions, published}."""
    place, held, texts = _world(asked)
    from serving.meta import new_token

    secret, _ = new_token()
    env = {**os.environ, _SECRET_NAME: secret, "OMP_NUM_THREADS": "1"}
    with _running([str(place)], env) as server:
        url = server.stdout.readline().strip() if server.stdout else ""
        if not url:
            raise RuntimeError("the meta-server ended before it was ready; see its log above")
        publishing = [str(place), str(asked.every), *held]
        asking = Asking(url, secret, asked.seconds, held)
        seen, published, spent = asyncio.run(_asked(asking, asked.clients, publishing, texts))
        memory = _rss_mb(server.pid)
    return _figures(seen, published, spent, memory, {v: len(of) for v, of in held.items()})


@contextmanager
def _running(arguments: list[str], env: dict[str, str]) -> "Iterator[subprocess.Popen[str]]":
    command = [sys.executable, "-m", "benchmarks.router_serve", *arguments]
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def _world(asked: argparse.Namespace) -> tuple[Path, dict[str, set[str]], list[str]]:
    """Versions of disjoint tools under one place, the encoder beside them, the first one served."""
    pool, place = smithery(), asked.home / "serve"
    texts = [query.text for query in queries(pool)]
    model = MiniLM(threads=1)
    save_encoder(model, place)
    kept = Kept(model, asked.home)
    held: dict[str, set[str]] = {}
    for part in range(_VERSIONS):
        ids = [name for name in pool.ids if _part(name, pool) == part]
        version = build_index(place, source_of(pool, ids), kept.embed, embedder=model.id)
        held[version] = {tool.tool_id for tool in load_index(place, version).tools}
    point_to(place, next(iter(held)))
    return place, held, texts


def _part(name: str, pool: Pool) -> int:
    return int(digest(["serve", name.rpartition("::")[0]])[-8:], 16) % _VERSIONS


async def _asked(
    asking: Asking, clients: int, publishing: list[str], texts: list[str]
) -> tuple[Seen, int, float]:
    """Connects every client, then asks and publishes for the time that was asked for."""
    seen, go = Seen(), asyncio.Event()
    tasks = [
        asyncio.create_task(client(asking, texts[at::clients], go, seen)) for at in range(clients)
    ]
    while seen.connected + sum(seen.errors.values()) < clients:
        await asyncio.sleep(0.1)
    with _running(publishing, dict(os.environ)) as publisher:
        began = time.perf_counter()
        go.set()
        await asyncio.gather(*tasks)
        spent = time.perf_counter() - began
        publisher.send_signal(signal.SIGTERM)
        told, _ = await asyncio.to_thread(publisher.communicate, None, 30)
    return seen, len(told.splitlines()), spent


def _figures(
    seen: Seen,
    published: int,
    spent: float,
    memory: float,
    sizes: dict[str, int],
) -> dict[str, Any]:
    took = seen.took or [float("nan")]
    p50, p95, p99 = (round(float(ms), 1) for ms in np.quantile(took, [0.5, 0.95, 0.99]))
    return {
        "clients": seen.connected,
        "seconds": round(spent, 1),
        "requests": len(seen.took),
        "per_second": round(len(seen.took) / spent, 1),
        "errors": sum(seen.errors.values()),
        "errors_by_text": dict(seen.errors),
        "stale_mix": seen.mixed,
        "published": published,
        "answers_by_version": dict(seen.versions),
        "tools_by_version": {version[:12]: size for version, size in sizes.items()},
        "ms": {"p50": p50, "p95": p95, "p99": p99},
        "server_rss_mb": memory,
        "load_average": os.getloadavg()[0],
    }


def _rss_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return round(int(line.split()[1]) / 1024, 1)
    return 0.0


def main() -> None:
    place, *publishing = sys.argv[1:]
    if publishing:
        _publish(Path(place), float(publishing[0]), publishing[1:])
    else:
        _serve(Path(place))


def _publish(place: Path, every: float, versions: list[str]) -> None:
    """Points to the next version every few seconds, and prints each."""
    for version in cycle([*versions[1:], versions[0]]):
        time.sleep(every)
        point_to(place, version)
        print(version, flush=True)


def _serve(place: Path) -> None:
    """The server alone, until it is told to end."""
    from assets.servers.calls.log import Outcomes
    from serving.meta import HttpSettings, MetaPolicy, run_http
    from serving.meta.access.tokens import token_of
    from serving.router import ServedRouter

    bench = token_of(
        os.environ[_SECRET_NAME], "bench", calls=False, requests_per_minute=None, concurrent=None
    )
    settings = HttpSettings(port=0, tokens=(bench,))
    run_http(
        ServedRouter(place), None, MetaPolicy(poll_s=0.5), Outcomes(place), settings,
        ready=lambda url: print(url, flush=True),
    )  # fmt: skip


if __name__ == "__main__":
    main()
