"""The model client against the clock, against a peer, and after kill -9.

    python -m benchmarks.bench_llm --peer-python PEER_VENV/bin/python --peer distilabel
    [--data servers.jsonl] [--calls 2000] [--concurrency 32] [--latency 0.3] [--errors 0.05]

Prompts are the real ones, rendered over the tools of `--data` (over made-up contracts without it).
All arms send them to the same loopback endpoint, one after the other, each in a fresh process.
Ideal: latency x requests the endpoint saw (tried again included) / concurrency.
"""

import argparse
import asyncio
import json
import os
import resource
import signal
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

ROOT = Path(__file__).resolve().parent.parent


def prompts(data: Path | None, calls: int) -> list[list[dict[str, str]]]:
    """As many different prompts for a generator."""
    from assets.synthesis.prompts import prompt

    file = prompt("generate")
    names = set(Template(file.user).get_identifiers())
    made = []
    for number, contract in enumerate(_contracts(data, calls)):
        values = dict.fromkeys(names, "none") | {"count": "3"}
        values["contract"] = json.dumps(contract, ensure_ascii=False, indent=1)[:24_000]
        made.append(file.messages(**values))
        made[-1][1]["content"] += f"\n\n(prompt {number})"
    return made


def _contracts(data: Path | None, calls: int) -> Iterator[dict[str, Any]]:
    tools: list[dict[str, Any]] = []
    if data is not None:
        with data.open() as file:
            tools = [tool for line in file for tool in json.loads(line).get("tools") or []]
    for number in range(calls):
        if tools:
            yield tools[number % len(tools)]
        else:
            member = {"type": "string", "description": f"what to look for, kind {number}"}
            shape = {"type": "object", "properties": {"query": member}, "required": ["query"]}
            yield {"name": f"find_{number}", "description": "Finds it.", "inputSchema": shape}


def ours(url: str, path: Path, concurrency: int, folder: Path) -> None:
    """The arm of this project, in a process of its own; no arm counts its imports."""
    import openai  # noqa: F401

    from assets.synthesis.common.role_schemas import Requests
    from warehouse.ledger.ledger import Ledger
    from warehouse.llm.client import LLM, Role
    from warehouse.storage.blobs import Blobs

    price = {"usd_in": 0.15, "usd_out": 0.6}
    role = Role("generator", "bench", url, "none", concurrency=concurrency, **price)
    ledger = Ledger(folder / "ledger.db", Blobs(folder / "blobs"))
    ledger.set_budget("usd", 100.0)
    llm = LLM([role], ledger)
    asked = json.loads(path.read_text())

    async def run() -> int:
        calls = [llm.complete("generator", messages, schema=Requests) for messages in asked]
        replies = await asyncio.gather(*calls)
        await llm.aclose()
        return sum(len(reply.value.requests) == 3 for reply in replies)

    began = time.perf_counter()
    answered = asyncio.run(run())
    wall = time.perf_counter() - began
    usage = resource.getrusage(resource.RUSAGE_SELF)
    cpu = usage.ru_utime + usage.ru_stime
    told = {"wall": wall, "cpu": cpu, "answered": answered, "cached": llm.counts["cached"]}
    print(json.dumps(told))


@contextmanager
def endpoint(latency: float, errors: float) -> Iterator[str]:
    command = [sys.executable, "-m", "benchmarks.loopback_llm"]
    options = ["--latency", str(latency), "--errors", str(errors)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([*command, *options], cwd=ROOT, **pipes) as server:  # type: ignore
        assert server.stdout
        assert server.stdin
        yield f"http://127.0.0.1:{int(server.stdout.readline())}"
        server.stdin.close()


def ask(url: str) -> dict[str, Any]:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return json.load(answer)


def arm(base: str, command: list[str]) -> dict[str, Any]:
    """One arm's own figures and what the endpoint saw of it."""
    ask(f"{base}/reset")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise SystemExit(f"{command[1:4]} failed: {done.stderr[-2000:]}")
    return {**json.loads(done.stdout.splitlines()[-1]), **ask(f"{base}/stats")}


def killed(base: str, command: list[str], calls: int) -> dict[str, Any]:
    """kill -9 when a third of the calls have been answered, then the same command again."""
    ask(f"{base}/reset")
    victim = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
    while ask(f"{base}/stats")["prompts"] < calls // 3:
        time.sleep(0.05)
    os.kill(victim.pid, signal.SIGKILL)
    victim.wait(10)
    time.sleep(1.0)  # what was in flight is answered now, into nothing
    paid = ask(f"{base}/stats")
    again = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    seen = json.loads(again.stdout.splitlines()[-1])
    after = ask(f"{base}/stats")
    return {"answered_before": paid["prompts"], "read_back": seen["cached"], **after}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--peer-python", type=Path)
    parser.add_argument("--peer", action="append", default=[])
    parser.add_argument("--calls", type=int, default=2000)
    parser.add_argument("--concurrency", type=int, default=32)
    parser.add_argument("--latency", type=float, default=0.3)
    parser.add_argument("--errors", type=float, default=0.05)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--no-kill", action="store_true")
    parser.add_argument("--arm", nargs=3, metavar=("URL", "PROMPTS", "FOLDER"))
    chosen = parser.parse_args()
    if chosen.arm:
        url, path, folder = chosen.arm
        ours(url, Path(path), chosen.concurrency, Path(folder))
        return
    with tempfile.TemporaryDirectory() as name, endpoint(chosen.latency, chosen.errors) as base:
        report(chosen, Path(name), base)


def report(chosen: argparse.Namespace, root: Path, base: str) -> None:
    path = root / "prompts.json"
    path.write_text(json.dumps(prompts(chosen.data, chosen.calls)))
    width = ["--concurrency", str(chosen.concurrency)]

    def mine(folder: str) -> list[str]:
        own = ["--arm", f"{base}/v1", str(path), str(root / folder)]
        return [sys.executable, "-m", "benchmarks.bench_llm", *width, *own]

    print(f"{chosen.calls} calls, {chosen.concurrency} at once, {chosen.latency:g} s latency,"
          f" {chosen.errors:.0%} errors")  # fmt: skip
    print(f"{'arm':<18}{'wall s':>8}{'ideal s':>9}{'ratio':>7}{'cpu s':>7}{'requests':>10}"
          f"{'errors':>8}{'answered':>10}{'at once':>9}")  # fmt: skip
    for number in range(chosen.rounds):
        arms = {"toolmill": mine(f"round{number}")}
        for peer in chosen.peer:
            script = [str(chosen.peer_python), "benchmarks/llm_peer.py", peer, f"{base}/v1"]
            arms[peer] = [*script, str(path), str(chosen.concurrency)]
        for name in list(arms)[:: -1 if number % 2 else 1]:
            seen = arm(base, arms[name])
            ideal = chosen.latency * seen["requests"] / chosen.concurrency
            print(f"{name:<18}{seen['wall']:>8.2f}{ideal:>9.2f}{seen['wall'] / ideal:>7.3f}"
                  f"{seen['cpu']:>7.1f}{seen['requests']:>10}{seen['errors']:>8}"
                  f"{seen['answered']:>10}{seen['most_at_once']:>9}", flush=True)  # fmt: skip
    if not chosen.no_kill:
        seen = killed(base, mine("killed"), chosen.calls)
        print(f"kill -9 after {seen['answered_before']} answers: {seen['read_back']} read back,"
              f" {seen['repeated']} asked twice ({chosen.concurrency} were in flight)")  # fmt: skip


if __name__ == "__main__":
    main()
