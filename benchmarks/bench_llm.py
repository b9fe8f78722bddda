"""The model client against the clock, and after kill -9.

    python -m benchmarks.bench_llm [--calls 2000] [--concurrency 32] [--latency 0.3] [--errors 0.05]

Ideal: latency x requests the endpoint saw (tried again included) / concurrency.
"""

import argparse
import asyncio
import json
import resource
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from string import Template
from typing import Any

from benchmarks.own_process import FRESH, run_alone

ROOT = Path(__file__).resolve().parent.parent
_COUNTS = ("requests", "errors", "answered", "most_at_once")


def make_prompts(calls: int) -> list[list[dict[str, str]]]:
    """As many different prompts for a generator, over made-up contracts."""
    from assets.synthesis.prompts import read_prompt

    file = read_prompt("generate")
    names = set(Template(file.user).get_identifiers())
    results = []
    for number in range(calls):
        member = {"type": "string", "description": f"what to look for, kind {number}"}
        shape = {"type": "object", "properties": {"query": member}, "required": ["query"]}
        contract = {"name": f"find_{number}", "description": "Finds it.", "inputSchema": shape}
        values = dict.fromkeys(names, "none") | {"count": "3"}
        results.append(file.make_messages(**values | {"contract": json.dumps(contract, indent=1)}))
    return results


def run_calls(url: str, asked: list[Any], concurrency: int, folder: Path) -> dict[str, Any]:
    """Asks all, as a process of its own; its imports are in no figure."""
    import openai  # noqa: F401

    from assets.synthesis.role_schemas import RequestDrafts
    from warehouse.ledger.ledger import Ledger
    from warehouse.llm.client import LLM, Role
    from warehouse.storage.blobs import Blobs

    price = {"usd_in": 0.15, "usd_out": 0.6}
    role = Role(
        "generator", model="bench", base_url=url, api_key="none", concurrency=concurrency, **price
    )
    ledger = Ledger(folder / "ledger.db", Blobs(folder / "blobs"))
    ledger.set_budget("usd", 100.0)
    llm = LLM([role], ledger)

    async def run() -> int:
        calls = [llm.complete("generator", messages, schema=RequestDrafts) for messages in asked]
        replies = await asyncio.gather(*calls)
        await llm.aclose()
        return sum(len(reply.value.requests) == 3 for reply in replies)

    began = time.perf_counter()
    answered = asyncio.run(run())
    wall = time.perf_counter() - began
    usage = resource.getrusage(resource.RUSAGE_SELF)
    cpu = usage.ru_utime + usage.ru_stime
    return {"wall": wall, "cpu": cpu, "answered": answered, "cached": llm.counts["cached"]}


@contextmanager
def start_endpoint(latency: float, errors: float) -> Iterator[str]:
    command = [sys.executable, "-m", "benchmarks.loopback_llm"]
    options = ["--latency", str(latency), "--errors", str(errors)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([*command, *options], cwd=ROOT, **pipes) as server:  # type: ignore
        assert server.stdout
        assert server.stdin
        yield f"http://127.0.0.1:{int(server.stdout.readline())}"
        server.stdin.close()


def get_json(url: str) -> dict[str, Any]:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return json.load(answer)


def run_whole(base: str, *args: Any) -> dict[str, Any]:
    """Our own figures and what the endpoint saw."""
    get_json(f"{base}/reset")
    return {**run_alone(run_calls, f"{base}/v1", *args), **get_json(f"{base}/stats")}


def run_killed(base: str, asked: list[Any], *args: Any) -> dict[str, Any]:
    """kill -9 when a third of the calls have been answered, then the same again."""
    get_json(f"{base}/reset")
    victim = FRESH.Process(target=run_calls, args=(f"{base}/v1", asked, *args))
    victim.start()
    while get_json(f"{base}/stats")["prompts"] < len(asked) // 3:
        time.sleep(0.05)
    victim.kill()
    victim.join(10)
    time.sleep(1.0)  # what was in flight is answered now, into nothing
    paid = get_json(f"{base}/stats")
    seen = run_alone(run_calls, f"{base}/v1", asked, *args)
    after = get_json(f"{base}/stats")
    return {"answered_before": paid["prompts"], "read_back": seen["cached"], **after}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--concurrency", type=int, default=32)
    parser.add_argument("--latency", type=float, default=0.3)
    parser.add_argument("--errors", type=float, default=0.05)
    chosen = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as name,
        start_endpoint(chosen.latency, chosen.errors) as base,
    ):
        print_report(chosen, Path(name), base)


def print_report(chosen: argparse.Namespace, root: Path, base: str) -> None:
    prompts = make_prompts(chosen.calls)
    print(f"{chosen.calls} calls, {chosen.concurrency} at once, {chosen.latency:g} s latency,"
          f" {chosen.errors:.0%} errors")  # fmt: skip
    seen = run_whole(base, prompts, chosen.concurrency, root / "whole")
    ideal = chosen.latency * seen["requests"] / chosen.concurrency
    print("| wall s | ideal s | ratio | cpu s | requests | errors | answered | at once |")
    print("| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    cells = [f"{seen['wall']:.2f}", f"{ideal:.2f}", f"{seen['wall'] / ideal:.3f}"]
    cells += [f"{seen['cpu']:.1f}", *(str(seen[name]) for name in _COUNTS)]
    print(f"| {' | '.join(cells)} |")
    seen = run_killed(base, prompts, chosen.concurrency, root / "killed")
    print(f"kill -9 after {seen['answered_before']} answers: {seen['read_back']} read back,"
          f" {seen['repeated']} asked twice ({chosen.concurrency} were in flight)")  # fmt: skip


if __name__ == "__main__":
    main()
