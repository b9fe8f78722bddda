"""The matcher: calls/s beside BFCL's checker and agreement with it.

    TOOLMILL_BFCL_PYTHON=var/bfcl-venv/bin/python python -m benchmarks.bench_match [--mutants 10]

`scripts/bfcl_env.sh` makes that environment; BFCL's data comes with it. Every item of its AST and
relevance categories is asked with a golden call made of its truth and with so many calls that go
wrong in one or two ways (`tests/contracts/bfcl_mutants.py`). Speed: the same AST calls, one process
and one thread each, in seconds of the processor, the best of three rounds for ours, BFCL's a single
one inside its own process (calls that raise or hang are in no figure). Ours reads the docs as JSON
Schema and compares with the golden call alone.
"""

import argparse
import os
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

from assets.contracts.match.match import CHECKER, MatchResult, match_call, match_parallel
from extensions.bench.bfcl_command import BfclItem, match_bfcl, read_bfcl
from extensions.bench.outside_items import to_contract
from tests.contracts.bfcl_mutants import golden, mutants, peer_answers
from warehouse.statistics import wilson_interval

Call = dict[str, Any]
Asked = tuple[BfclItem, list[Call], list[Call]]  # item, its golden calls, those that are asked
_FIND = "import importlib.util as u; print(u.find_spec('bfcl_eval').submodule_search_locations[0])"
_ROUNDS = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--mutants", type=int, default=10, help="of each item")
    mutant_count = parser.parse_args().mutants
    python = os.environ.get("TOOLMILL_BFCL_PYTHON")
    if not python:
        print("skipped: TOOLMILL_BFCL_PYTHON is not set; `scripts/bfcl_env.sh` says what to set")
        return
    found = subprocess.run([python, "-c", _FIND], capture_output=True, text=True, check=True)
    items = read_bfcl(Path(found.stdout.strip()) / "data")
    asked = list(make_calls(items, mutant_count, Random(17)))
    report_agreement(python, items, asked)


def make_calls(items: list[BfclItem], count: int, random: Random) -> Iterator[Asked]:
    for item in items:
        name = item.functions[0]["name"] if item.functions else "f"
        right = golden(item, random) if item.truth else [{"name": name, "arguments": {}}]
        yield item, right, right
        yield from ((item, right, calls) for calls in mutants(right, item, random, count))


def report_agreement(python: str, items: list[BfclItem], asked: list[Asked]) -> None:
    theirs, _ = peer_answers(python, items, [(item.id, calls) for item, _, calls in asked])
    ours = [match_like_bfcl(item, calls) for item, _, calls in asked]
    n, same, matching, raised = Counter(), Counter(), Counter(), Counter()
    for (item, _, _), answer, result in zip(asked, theirs, ours, strict=True):
        n[item.category] += 1
        same[item.category] += verdict_of(answer) == our_verdict(result)
        matching[item.category] += bool(answer.get("valid"))
        raised[item.category] += "valid" not in answer
    print("| category | calls | BFCL: match | BFCL: raises or hangs | same verdict |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for name in sorted(n):
        print(f"| {name} | {n[name]:,} | {matching[name]:,} | {raised[name]} | {same[name]:,} |")
    low, high = wilson_interval(same.total(), n.total())
    print(f"\nagreement {same.total():,} of {n.total():,} (95% {low:.5f} to {high:.5f}),")
    print("a raise or a hang told as one counts as the same verdict")
    wrong = [(i.id, c) for (i, _, c), t, r in zip(asked, theirs, ours, strict=True)
             if verdict_of(t) != our_verdict(r)]  # fmt: skip
    for one in wrong[:10]:
        print(f"  differs: {one}"[:300])
    unread = "decoder_wrong_output_format"  # never came to the checker
    came_back = [
        one
        for one, answer in zip(asked, theirs, strict=True)
        if "valid" in answer and answer["error"] != unread and one[0].truth
    ]
    report_speed(python, came_back)


def match_like_bfcl(item: BfclItem, calls: list[Call]) -> MatchResult:
    return match_bfcl(item.functions, item.truth, calls, category=item.category)


def verdict_of(answer: dict[str, Any]) -> Any:
    return "hangs" if "hang" in answer else answer.get("valid", "raises")


def our_verdict(result: MatchResult) -> Any:
    return "raises" if result.error_kind in CHECKER else result.match


def report_speed(python: str, asked: list[Asked]) -> None:
    items = list({item.id: item for item, _, _ in asked}.values())
    schemas = {item.id: {doc["name"]: to_contract(doc)["inputSchema"] for doc in item.functions}
               for item in items}  # fmt: skip
    _, spent = peer_answers(python, items, [(item.id, calls) for item, _, calls in asked])
    peer = spent["n"] / spent["seconds"]
    ways: dict[str, Callable[[Asked], Any]] = {
        "ours, compatibility mode": lambda one: match_like_bfcl(one[0], one[2]),
        "ours": lambda one: match_own(schemas[one[0].id], one[1], one[2]),
    }
    print("\n| matcher | calls/s | times BFCL's checker |\n| --- | ---: | ---: |")
    print(f"| BFCL's checker ({spent['n']:,} answers) | {peer:,.0f} | 1.00 |")
    for name, way in ways.items():
        speed = len(asked) / best_seconds(way, asked)
        print(f"| {name} ({len(asked):,} answers) | {speed:,.0f} | {speed / peer:.2f} |")


def match_own(schemas: dict[str, Any], expected: list[Call], calls: list[Call]) -> Any:
    if len(expected) == len(calls) == 1:
        return match_call(schemas.get(expected[0]["name"], {}), expected[0], calls[0])
    return match_parallel(schemas, expected, calls)


def best_seconds(work: Callable[[Asked], Any], asked: list[Asked]) -> float:
    times = []
    for _ in range(_ROUNDS):
        begun = time.process_time()
        for item in asked:
            work(item)
        times.append(time.process_time() - begun)
    return min(times)


if __name__ == "__main__":
    main()
