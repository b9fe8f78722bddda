"""How long a refresh of reliability takes over a long log of calls, and its peak memory.

    python -m benchmarks.outcomes.bench_refresh [--lines 1000000] [--tools 1000]

Writes the log into a temporary folder: 30 days of 50 tokens, calls and reports. Prints one JSON
object.
"""

import argparse
import json
import random
import resource
import time
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from assets.contracts.quarantined_tools import CLEAR
from assets.outcomes.policy import ReliabilityPolicy
from assets.outcomes.reliability.measure import update_overlay
from benchmarks.own_process import run_alone
from warehouse.store import Warehouse

_DAYS, _TOKENS, _SEED = 30, 50, 7


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--tools", type=int, default=1_000)
    args = parser.parse_args()
    with TemporaryDirectory() as place:
        home = Path(place)
        write_home(home, args.lines, args.tools)
        print(json.dumps({"lines": args.lines, **run_alone(measure_refresh, home)}))


def write_home(home: Path, lines: int, tools: int) -> None:
    """Contracts of so many tools and a log of so many lines, one in eight a report."""
    rng, now = random.Random(_SEED), time.time()
    contract = json.dumps({"name": "t", "inputSchema": {"properties": {"a": {}}}})
    ids = [(f"npm:server-{at // 10}", f"tool_{at}", f"c1:{at:064x}") for at in range(tools)]
    names = ("server_id", "tool", "contract_digest")
    known = {"contract": contract, "marketplace": "registry", "first_seen": "2020-01-01"}
    rows = [{**dict(zip(names, one, strict=True)), **known} for one in ids]
    tables = Warehouse(home, home / "state").tables
    tables.promote(tables.stage(CLEAR, CLEAR.frame(rows), "registry"), "bench", [])
    (home / "outcomes").mkdir()
    rates = [rng.betavariate(4, 1) for _ in ids]
    for day in range(_DAYS):
        at = now - (day + 1) * 86_400
        path = home / "outcomes" / f"{datetime.fromtimestamp(at, UTC).date()}.jsonl"
        with path.open("w") as file:
            for number in range(day, lines, _DAYS):
                place = rng.randrange(tools)
                line = _make_line(rng, number, ids[place], rates[place], at + number % 60_000)
                file.write(json.dumps(line) + "\n")


def _make_line(
    rng: random.Random, number: int, tool: tuple[str, str, str], rate: float, at: float
) -> dict[str, Any]:
    server_id, name, digest = tool
    line = {
        "at": at,
        "id": f"{number:032x}",
        "token": f"client-{number % _TOKENS}",
        "index": "b" * 64,
        "tool_id": f"{server_id}::{name}",
        "contract_digest": digest,
        "query": f"q1:{rng.randrange(5_000):064x}",
        "call_id": f"{number:032x}",
    }
    if rng.random() < 0.125:
        said = "worked" if rng.random() < rate else "failed"
        # Of a call of the same token, some lines before it in the file.
        return line | {
            "call_id": f"{max(number - _DAYS * _TOKENS, 0):032x}",
            "status": "reported",
            "reported": said,
        }
    if rng.random() < rate:
        return line | {"status": "ok", "seconds": round(rng.expovariate(2), 3)}
    return line | {"status": "tool_error", "blame": "tool", "error_kind": "tool_error"}


def measure_refresh(home: Path) -> dict[str, Any]:
    """Seconds and peak memory of one refresh, in a process of its own."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.perf_counter()
    found = update_overlay(Warehouse(home, home / "state"), ReliabilityPolicy())
    seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "versions": len(found.measured.rows),
        "observations": sum(found.sources.values()),
        "left_out": {why: n for why, n in found.left_out.items() if n},
        "log_mb": round(sum(p.stat().st_size for p in (home / "outcomes").iterdir()) / 1e6),
        "seconds": round(seconds, 2),
        "peak_mb": round(peak / 1024),
        "imports_mb": round(before / 1024),
    }


if __name__ == "__main__":
    main()
