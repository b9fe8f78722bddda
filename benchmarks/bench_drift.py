"""Drift: how often each signal fires where nothing drifted, and where something did.

    python -m benchmarks.bench_drift [--trials 200]

Hits, calls and contracts are drawn at known rates. Printed: fired of n trials with 95% intervals,
at the thresholds and the level of the default settings.
"""

import argparse
import time
from collections.abc import Callable, Sequence

import numpy as np

from training.drift.signals import (
    DriftSignal,
    count_moves,
    judge_signal,
    make_contract_signal,
    measure_retriever_decay,
)
from training.settings import RetrainPolicy
from warehouse.statistics import wilson_interval

POLICY = RetrainPolicy()
Rng = np.random.Generator
Trial = Callable[[Rng], DriftSignal]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=200)
    trials = parser.parse_args().trials
    began = time.process_time()
    head = ("signal", "units", "what drifted", "fired [95%]", "median value")
    print(f"| {' | '.join(head)} |\n|{' --- |' * len(head)}")
    for name, units, drifted, trial in list_cases():
        made = [judge_signal(trial(rng), POLICY.alpha) for rng in spawn(trials)]
        print(f"| {name} | {units} | {drifted} | {format_fired(made)} |", flush=True)
    print(f"\n{time.process_time() - began:.0f} s of processor time")


def list_cases() -> list[tuple[str, str, str, Trial]]:
    """(signal, units, what drifted, a trial of it)."""
    cases: list[tuple[str, str, str, Trial]] = []
    for lost in (0.0, 0.02, 0.05, 0.1):
        harm = f"{lost:.0%} lost" if lost else "nothing (1% flip each way)"
        cases.append(("retriever_decay", "200 items", harm, lambda rng, d=lost: draw_hits(rng, d)))
    for rate in (0.0, 0.005, 0.02, 0.07):
        harm = f"{rate:.1%} changed"
        cases.append(("contracts", "300 tools", harm, lambda rng, r=rate: draw_moves(rng, r)))
    return cases


def draw_hits(rng: Rng, lost: float, n: int = 200) -> DriftSignal:
    before = rng.random(n) < 0.8
    # As many are lost as are won where nothing drifted: 1% of the hits, 4% of the misses.
    flips = rng.random(n) < np.where(before, 0.01, 0.04)
    gone = before & (rng.random(n) < lost / 0.8)
    after = (before ^ flips) & ~gone
    rows = [{"pair_id": str(i), "server_id": "s", "tool": str(i), "rank": 1 if hit else 9}
            for i, hit in enumerate(before)]  # fmt: skip
    ranks = {str(i): 1 if hit else 9 for i, hit in enumerate(after)}
    texts = {("s", str(i)): "" for i in range(n)}
    return measure_retriever_decay(rows, lambda _: ranks, texts, POLICY.min_decay)


def draw_moves(rng: Rng, rate: float, n: int = 300) -> DriftSignal:
    """Half of the changes are of wording only; calls are spread by Zipf's law."""
    then = {str(i): "1" for i in range(n)}
    now = {tool: "2" if rng.random() < rate else "1" for tool in then}
    classes = {tool: "wording" if rng.random() < 0.5 else "breaking" for tool in then}
    calls = {tool: int(200 / rank) for rank, tool in enumerate(rng.permutation(list(then)), 1)}
    return make_contract_signal(count_moves(then, now, classes, calls), POLICY.min_share)


def format_fired(made: Sequence[DriftSignal]) -> str:
    fired = sum(item.fired for item in made)
    low, high = wilson_interval(fired, len(made))
    values = [item.value for item in made if item.value is not None]
    return f"{fired / len(made):.3f} [{low:.3f}, {high:.3f}] | {np.median(values):.4f}"


def spawn(trials: int, seed: int = 19) -> list[Rng]:
    return [np.random.default_rng(item) for item in np.random.SeedSequence(seed).spawn(trials)]


if __name__ == "__main__":
    main()
