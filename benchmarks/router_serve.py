"""Concurrent clients on the HTTP meta-server while new index versions are published under it.

What belongs here: the server in a process of its own, the clients, the publisher, what an answer
must satisfy. What does not: the server (`serving/meta`), times of a search (`router_latency.py`).

The versions share no tool: each holds another part of the pool's servers, so an answer that names
one version and holds a tool of another is a stale mix. Clients are of the `mcp` SDK and share one
process; the server has its own.

    python -m benchmarks.router_serve PLACE     the server alone; prints its address
"""

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from assets.vectors.embed import MiniLM, save_encoder
from benchmarks.router_data import Pool, queries, smithery
from benchmarks.router_index import source_of
from benchmarks.router_vectors import Kept
from serving.index import build_index, load_index, point_to
from warehouse.digest import digest

_VERSIONS = 3
_SECRET_NAME = "TOOLMILL_BENCH_TOKEN"


@dataclass
class Seen:
    """What the clients saw."""

    took: list[float] = field(default_factory=list)
    versions: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    mixed: int = 0


def serve(asked: argparse.Namespace) -> dict[str, Any]:
    """{requests, per_second, errors, stale_mix, ms, versions, published}."""
    place, held, texts = _world(asked)
    from serving.meta import new_token

    secret, _ = new_token()
    env = {**os.environ, _SECRET_NAME: secret, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "benchmarks.router_serve", str(place)]
    server = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        url = server.stdout.readline().strip()
        if not url:
            raise RuntimeError("the meta-server ended before it was ready; see its log above")
        seen, published, spent = asyncio.run(_minute(asked, url, secret, place, held, texts))
        memory = _rss_mb(server.pid)
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(20)
    return _figures(asked, seen, published, spent, memory, {v: len(of) for v, of in held.items()})


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


async def _minute(
    asked: argparse.Namespace,
    url: str,
    secret: str,
    place: Path,
    held: dict[str, set[str]],
    texts: list[str],
) -> tuple[Seen, int, float]:
    seen, began = Seen(), time.perf_counter()
    until = began + asked.seconds
    clients = [
        asyncio.create_task(_client(url, secret, texts[at :: asked.clients], until, held, seen))
        for at in range(asked.clients)
    ]
    published = await _publish(place, list(held), until, asked.every)
    await asyncio.gather(*clients)
    return seen, published, time.perf_counter() - began


async def _publish(place: Path, versions: list[str], until: float, every: float) -> int:
    """Points to the next version every few seconds; how many times it did."""
    count = 0
    while time.perf_counter() + every < until:
        await asyncio.sleep(every)
        count += 1
        await asyncio.to_thread(point_to, place, versions[count % len(versions)])
    await asyncio.sleep(max(0.0, until - time.perf_counter()))
    return count


async def _client(
    url: str, secret: str, texts: list[str], until: float, held: dict[str, set[str]], seen: Seen
) -> None:
    import httpx2
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client

    headers = {"Authorization": f"Bearer {secret}"}
    try:
        async with (
            httpx2.AsyncClient(headers=headers, timeout=60) as http,
            Client(streamable_http_client(url, http_client=http)) as client,
        ):
            at = 0
            while time.perf_counter() < until:
                began = time.perf_counter()
                given = {"query": texts[at % len(texts)], "k": 5}
                answer = await client.call_tool("find_tools", given)
                _note(answer, time.perf_counter() - began, held, seen)
                at += 1
    except Exception as error:
        seen.errors[f"{type(error).__name__}: {str(error)[:200]}"] += 1


def _note(answer: Any, took: float, held: dict[str, set[str]], seen: Seen) -> None:
    told = answer.structured_content
    if answer.is_error or not told:
        seen.errors[str(answer.content)[:200]] += 1
        return
    version = told["index"]
    hits = {hit["tool_id"] for row in told["answers"] for hit in row["hits"]}
    if version not in held:
        seen.errors[f"an index that was never published: {version[:20]}"] += 1
    elif not hits <= held[version]:
        seen.mixed += 1
    seen.took.append(took * 1000)
    seen.versions[version[:12]] += 1


def _figures(
    asked: argparse.Namespace,
    seen: Seen,
    published: int,
    spent: float,
    memory: float,
    sizes: dict[str, int],
) -> dict[str, Any]:
    took = seen.took or [float("nan")]
    p50, p95, p99 = (round(float(ms), 1) for ms in np.quantile(took, [0.5, 0.95, 0.99]))
    return {
        "clients": asked.clients,
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
    """The server alone, until it is told to end."""
    from serving.meta import HttpSettings, MetaPolicy, Token, run_http
    from serving.meta.tokens import token_of
    from serving.outcomes import Outcomes
    from serving.router import ServedRouter

    place = Path(sys.argv[1])
    bench: Token = token_of(
        os.environ[_SECRET_NAME], "bench", calls=False, requests_per_minute=None, concurrent=None
    )
    settings = HttpSettings(port=0, tokens=(bench,))
    run_http(
        ServedRouter(place), None, MetaPolicy(poll_s=0.5), Outcomes(place), settings,
        ready=lambda url: print(url, flush=True),
    )  # fmt: skip


if __name__ == "__main__":
    main()
