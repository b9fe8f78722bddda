"""Crawl: records/s and peak memory of a marketplace's crawl, against a bare loop over its pages.

    python -m benchmarks.bench_crawl [--servers 1482] [--concurrency 8] [--rounds 3]

The replica runs in a process of its own with 50 ms of latency per request and politeness off. Every
measured figure comes from a fresh child process. The peer requests the very same URLs with the same
client in an asyncio loop of equal concurrency that does nothing but parse JSON. Memory is the peak
resident size of the child, its imports included.
"""

import argparse
import asyncio
import json
import os
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks.shared_data import FRESH, run_alone

LATENCY_MS = 50
SITE = "smithery"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--servers", type=int, default=1482)
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    figures: dict[str, list[dict[str, Any]]] = {}
    for _ in range(options.rounds):
        _measure_round(options, figures)
    _print_table(options, figures)


def _measure_round(options: argparse.Namespace, figures: dict[str, list[Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)

        def measure(name: str, run: Callable[..., dict[str, Any]], *args: str) -> None:
            found = run_alone(_measure_peak, run, home, options.concurrency, *args)
            figures.setdefault(name, []).append(found)

        with run_replica(options.servers, day=1) as url:
            measure("crawl, cold", _measure_crawl, url, "1")
            measure("bare asyncio loop", _measure_bare_loop)
            measure("crawl, next run, unchanged", _measure_crawl, url, "2")
        with run_replica(options.servers, day=2, port=int(url.rsplit(":", 1)[1])) as url:
            measure("crawl, next run, 1% changed", _measure_crawl, url, "3")


@contextmanager
def run_replica(servers: int, day: int, port: int = 0) -> Iterator[str]:
    """The replica in a process of its own; yields its URL."""
    ours, theirs = FRESH.Pipe()
    process = FRESH.Process(target=_serve_replica, args=(servers, day, port, theirs))
    process.start()
    theirs.close()  # else nothing ends the wait for a process that died
    try:
        yield ours.recv()
    finally:
        ours.close()
        process.join(60)


def _serve_replica(servers: int, day: int, port: int, pipe: Connection) -> None:
    """Serves until the other end is closed."""
    from demo.server import replicas

    faults, ports = {SITE: f"latency:{LATENCY_MS}"}, {SITE: port}
    with replicas(day, "full", faults, ports, servers=servers, sites=(SITE,)) as urls:
        pipe.send(urls[SITE])
        with suppress(EOFError):
            pipe.recv()


def _measure_peak(run: Callable[..., dict[str, Any]], *args: Any) -> dict[str, Any]:
    measured = run(*args)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"peak_mb": round(peak), **measured}


def _measure_crawl(home: Path, concurrency: int, url: str, run_date: str) -> dict[str, Any]:
    from assets.marketplaces.crawl.crawl import crawl, load_adapter
    from assets.marketplaces.crawl.fetcher import PageFetcher
    from assets.marketplaces.policy import CrawlPolicy
    from warehouse.ledger.ledger import Ledger
    from warehouse.storage.blobs import Blobs

    policy = CrawlPolicy(
        base_url=url,
        site_url=url,
        requests_per_second=0,
        concurrency=concurrency,
        detail_cap=10**6,
        allow_loopback=True,
    )
    asked: list[str] = []
    send = PageFetcher.get

    async def noted(self: Any, url: str, *args: Any) -> Any:
        asked.append(url)
        return await send(self, url, *args)

    PageFetcher.get = noted  # type: ignore[method-assign]
    ledger = Ledger(home / "ledger.db", Blobs(home / "blobs"))
    chosen = load_adapter(SITE, policy)
    started = time.perf_counter()
    result = crawl(chosen, ledger=ledger, run_date=run_date)
    seconds = time.perf_counter() - started
    if run_date == "1":
        (home / "urls").write_text("\n".join(asked))
    assert result.completeness == "complete", result.completeness
    return {
        "seconds": seconds,
        "records": len(result.frame),
        "requests": result.requests,
        "details": sum("/servers/" in url for url in asked),
    }


def _measure_bare_loop(home: Path, concurrency: int) -> dict[str, Any]:
    import httpx2

    urls = (home / "urls").read_text().split("\n")

    async def run() -> None:
        waiting = iter(urls)
        async with httpx2.AsyncClient(timeout=30) as client:

            async def work() -> None:
                for url in waiting:
                    body = (await client.get(url)).content
                    if body[:1] in (b"{", b"["):
                        json.loads(body)

            await asyncio.gather(*(work() for _ in range(concurrency)))

    started = time.perf_counter()
    asyncio.run(run())
    return {"seconds": time.perf_counter() - started, "requests": len(urls)}


def _print_table(options: argparse.Namespace, figures: dict[str, list[dict[str, Any]]]) -> None:
    bare = statistics.median(figure["seconds"] for figure in figures["bare asyncio loop"])
    cores = len(os.sched_getaffinity(0))
    print(
        f"{options.servers:,} servers, {LATENCY_MS} ms latency, concurrency"
        f" {options.concurrency}, {cores} cores, median of {options.rounds} rounds\n"
    )
    print("| what | seconds | requests | records/s | x bare loop | peak MB |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for name, runs in figures.items():
        seconds = statistics.median(run["seconds"] for run in runs)
        last = runs[-1]
        rate = f"{last['records'] / seconds:,.0f}" if "records" in last else "-"
        ratio = f"{seconds / bare:.2f}"
        peak = max(run["peak_mb"] for run in runs)
        print(f"| {name} | {seconds:.2f} | {last['requests']:,} | {rate} | {ratio} | {peak} |")
    changed = figures["crawl, next run, 1% changed"][-1]
    print(f"\n1% changed: {changed['details']} records' pages of {changed['records']} records")


if __name__ == "__main__":
    main()
