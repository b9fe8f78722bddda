"""Hostile servers: how many are contained, one and eight at a time; what a launch costs.

    python -m benchmarks.bench_hostile               # the catalogue of tests/hostile at N = 1 and 8
    python -m benchmarks.bench_hostile --launches 30 # seconds of a good server, from start to tools

Contained: its result has the kind that the catalogue says (or its tools, where it lists them all
the same), and none of its processes is left when all have ended. The second form prints median and
quartiles of one good server of ten lines: run it in two checkouts in turn to compare them.
"""

import argparse
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil

from assets.servers.probe.probe import ProbeResult
from tests.hostile.case import GOOD, Case
from tests.hostile.eaters import EATERS
from tests.hostile.lists import LISTS
from tests.hostile.wire import WIRE
from tests.support.untrusted_server import probe_source, tool_names

CASES = {**WIRE, **LISTS, **EATERS}


def main() -> None:
    asking = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asking.add_argument("--launches", type=int, help="time a good server this often instead")
    said = asking.parse_args()
    if said.launches:
        print_launches(said.launches)
        return
    print("| at once | hostile servers | contained | processes left | s |")
    print("| --- | --- | --- | --- | --- |")
    for count in (1, 8):
        started = time.monotonic()
        with ThreadPoolExecutor(count) as pool:
            wrong = [told for told in pool.map(probe_case, CASES, CASES.values()) if told]
        seconds = time.monotonic() - started
        held = f"{len(CASES) - len(wrong)} of {len(CASES)}"
        print(f"| {count} | {len(CASES)} | {held} | {count_processes()} | {seconds:.0f} |")
        for told in wrong:
            print(f"  {told}")


def probe_case(name: str, case: Case) -> str | None:
    """What is wrong with the result of one case, if anything is."""
    result = probe_in_folder(case.source, **case.limits)
    if result.error_kind != case.kind:
        return f"{name}: {result.error_kind}, expected {case.kind} ({result.hint})"
    listed = tool_names(result) if case.kind is None else list(case.tools)
    return None if listed == list(case.tools) else f"{name}: lists {listed[:5]}"


def print_launches(count: int) -> None:
    seconds = []
    for _ in range(count):
        started = time.monotonic()
        result = probe_in_folder(GOOD)
        assert result.error_kind is None, result.hint
        seconds.append(time.monotonic() - started)
    low, middle, high = statistics.quantiles(seconds, n=4)
    print(f"{count} launches: median {middle:.3f} s, quartiles {low:.3f} to {high:.3f}")


def probe_in_folder(source: str, **limits: Any) -> ProbeResult:
    with tempfile.TemporaryDirectory(prefix="hostile-") as folder:
        return probe_source(Path(folder), source, **limits)


def count_processes() -> int:
    """Processes that still run, or wait to be ended, below this one."""
    return len(psutil.Process().children(recursive=True))


if __name__ == "__main__":
    main()
