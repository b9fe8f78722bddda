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
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LATENCY_MS = 50
SITE = "smithery"


def main() -> None:
    options = _parse_options()
    if options.child:
        print(json.dumps(_measure_child(options.child, json.loads(options.facts))))
        return
    figures: dict[str, list[dict[str, Any]]] = {}
    for number in range(options.rounds):
        _measure_round(options, number, figures)
    _print_table(options, figures)


def _measure_round(options: argparse.Namespace, number: int, figures: dict[str, list[Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        facts = {"home": folder, "concurrency": options.concurrency, "urls": f"{folder}/urls"}

        def measure(what: str, name: str, **more: Any) -> None:
            figures.setdefault(name, []).append(_run_child(what, {**facts, **more}))

        with _Replica(options.servers, day=1) as url:
            measure("crawl", "crawl, cold", base_url=url)
            measure("bare", "bare asyncio loop", base_url=url)
            measure("crawl", "crawl, next run, unchanged", base_url=url, run_date="2")
        with _Replica(options.servers, day=2, port=int(url.rsplit(":", 1)[1])) as url:
            measure("crawl", "crawl, next run, 1% changed", base_url=url, run_date="3")


class _Replica:
    """The replica in a process of its own."""

    def __init__(self, servers: int, day: int, port: int = 0) -> None:
        facts = {"servers": servers, "day": day, "port": port}
        command = [
            sys.executable,
            "-m",
            "benchmarks.bench_crawl",
            "--child",
            "replica",
            "--facts",
            json.dumps(facts),
        ]
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True, cwd=ROOT
        )

    def __enter__(self) -> str:
        assert self._process.stdout
        return self._process.stdout.readline().strip()

    def __exit__(self, *_: object) -> None:
        self._process.communicate("", timeout=60)


def _run_child(what: str, facts: dict[str, Any]) -> dict[str, Any]:
    command = [
        sys.executable,
        "-m",
        "benchmarks.bench_crawl",
        "--child",
        what,
        "--facts",
        json.dumps(facts),
    ]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def _measure_child(what: str, facts: dict[str, Any]) -> dict[str, Any]:
    if what == "replica":
        return _serve_replica(facts)
    measured = {"crawl": _measure_crawl, "bare": _measure_bare_loop}[what](facts)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"peak_mb": round(peak), **measured}


def _serve_replica(facts: dict[str, Any]) -> dict[str, Any]:
    from demo.server import replicas

    faults, ports = {SITE: f"latency:{LATENCY_MS}"}, {SITE: facts["port"]}
    with replicas(
        facts["day"], "full", faults, ports, servers=facts["servers"], sites=(SITE,)
    ) as urls:
        print(urls[SITE], flush=True)
        sys.stdin.read()
    return {}


def _measure_crawl(facts: dict[str, Any]) -> dict[str, Any]:
    from assets.marketplaces.crawl.crawl import crawl, load_adapter
    from assets.marketplaces.fetch.fetcher import Fetcher
    from assets.marketplaces.policy import CrawlPolicy
    from warehouse.ledger.ledger import Ledger
    from warehouse.storage.blobs import Blobs

    home = Path(facts["home"])
    policy = CrawlPolicy(
        base_url=facts["base_url"],
        site_url=facts["base_url"],
        requests_per_second=0,
        concurrency=facts["concurrency"],
        detail_cap=10**6,
        allow_loopback=True,
    )
    asked: list[str] = []
    send = Fetcher.get

    async def noted(self: Any, url: str, *args: Any) -> Any:
        asked.append(url)
        return await send(self, url, *args)

    Fetcher.get = noted  # type: ignore[method-assign]
    ledger = Ledger(home / "ledger.db", Blobs(home / "blobs"))
    chosen = load_adapter(SITE, policy)
    started = time.perf_counter()
    result = crawl(chosen, ledger=ledger, run_date=facts.get("run_date", "1"))
    seconds = time.perf_counter() - started
    if facts.get("run_date", "1") == "1":
        Path(facts["urls"]).write_text("\n".join(asked))
    assert result.completeness == "complete", result.completeness
    return {
        "seconds": seconds,
        "records": len(result.frame),
        "requests": result.requests,
        "details": sum("/servers/" in url for url in asked),
    }


def _measure_bare_loop(facts: dict[str, Any]) -> dict[str, Any]:
    import httpx2

    urls = Path(facts["urls"]).read_text().split("\n")

    async def run() -> None:
        waiting = iter(urls)
        async with httpx2.AsyncClient(timeout=30) as client:

            async def work() -> None:
                for url in waiting:
                    _parse_body((await client.get(url)).content)

            await asyncio.gather(*(work() for _ in range(facts["concurrency"])))

    started = time.perf_counter()
    asyncio.run(run())
    return {"seconds": time.perf_counter() - started, "requests": len(urls)}


def _parse_body(body: bytes) -> None:
    if body[:1] in (b"{", b"["):
        json.loads(body)


def _print_table(options: argparse.Namespace, figures: dict[str, list[dict[str, Any]]]) -> None:
    bare = statistics.median(one["seconds"] for one in figures["bare asyncio loop"])
    cores = len(os.sched_getaffinity(0))
    print(
        f"{options.servers:,} servers, {LATENCY_MS} ms latency, concurrency"
        f" {options.concurrency}, {cores} cores, median of {options.rounds} rounds\n"
    )
    print("| what | seconds | requests | records/s | x bare loop | peak MB |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for name, runs in figures.items():
        seconds = statistics.median(one["seconds"] for one in runs)
        last = runs[-1]
        rate = f"{last['records'] / seconds:,.0f}" if "records" in last else "-"
        ratio = f"{seconds / bare:.2f}"
        peak = max(one["peak_mb"] for one in runs)
        print(f"| {name} | {seconds:.2f} | {last['requests']:,} | {rate} | {ratio} | {peak} |")
    changed = figures["crawl, next run, 1% changed"][-1]
    print(f"\n1% changed: {changed['details']} records' pages of {changed['records']} records")


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--servers", type=int, default=1482)
    parser.add_argument("--concurrency", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--facts", default="{}", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
