"""Drift: how often each signal fires where nothing drifted, and where something did.

    python -m benchmarks.bench_drift [--trials 200]

Vectors are real: tools of the servers of MCP-Zero and requests of the corpus, by MiniLM
(development data that is not in this repository). Which tools came, and what was asked, is drawn:
at random where nothing drifted, else a share of them from the nearest sixty of one. Verdicts, hits
and contracts are drawn at known rates. Printed: fired of n trials with 95% intervals, at the
thresholds and the level of the default settings, each test alone and all four together.
"""

import argparse
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from assets.contracts.canonical import tool_text
from benchmarks.shared_data import SHARED, read_corpus, require_paths
from training.drift.champion_signals import measure_caller_decay, measure_retriever_decay
from training.drift.contract_moves import count_moves, make_contract_signal
from training.drift.decide import (
    ACCEPT_RATE,
    EMBEDDINGS,
    QUERIES,
    DriftSignal,
    RetrainPolicy,
    judge_signals,
)
from training.drift.shifts import measure_accept_shift, measure_query_shift
from warehouse.statistics import wilson_interval

POLICY = RetrainPolicy()
NEAR = 60  # tools, or requests, that are one neighbourhood
PERMUTATIONS = 300
RATES = (0.8, 6.0)  # mean share of accepted pairs, and how alike the pairs of a server are
Rng = np.random.Generator
Trial = Callable[[Rng], DriftSignal]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=200)
    trials = parser.parse_args().trials
    data = SHARED / "mcp-tools" / "mcp_zero_servers.jsonl"
    require_paths(data, SHARED / "corpus")
    began = time.process_time()
    tools, requests = embed_tools(data), embed_requests()
    print(f"{len(tools)} tools, {len(requests)} requests; {trials} trials a line\n")
    head = ("signal", "units", "what drifted", "fired [95%]", "median value")
    print(f"| {' | '.join(head)} |\n|{' --- |' * len(head)}")
    for name, units, drifted, trial in list_cases(tools, requests):
        made = [judge_alone(trial(rng)) for rng in spawn(trials)]
        print(f"| {name} | {units} | {drifted} | {format_fired(made)} |", flush=True)
    together = [
        any(signal.fired for signal in judge_signals(draw_calm(rng, tools, requests), POLICY.alpha))
        for rng in spawn(trials)
    ]
    low, high = wilson_interval(sum(together), trials)
    print(f"| all tests together | | nothing | {np.mean(together):.3f} [{low:.3f}, {high:.3f}] | |")
    print(f"\n{time.process_time() - began:.0f} s of processor time")


def list_cases(tools: np.ndarray, requests: np.ndarray) -> list[tuple[str, str, str, Trial]]:
    """(signal, units, what drifted, a trial of it)."""
    cases: list[tuple[str, str, str, Trial]] = []
    for came in (10, 30, 60):
        for share in (0.0, 0.25, 0.5, 1.0):
            cases.append(
                (EMBEDDINGS, f"{came} tools came", describe_share(share),
                 lambda rng, m=came, s=share: draw_shift(rng, tools, m, s, EMBEDDINGS))
            )  # fmt: skip
    for asked in (20, 60, 200):
        for share in (0.0, 0.25, 0.5) if asked < 200 else (0.0, 0.1, 0.25):
            cases.append(
                (QUERIES, f"{asked} searches since", describe_share(share),
                 lambda rng, m=asked, s=share: draw_shift(rng, requests, m, s, QUERIES))
            )  # fmt: skip
    for came in (15, 60):
        for lost in (0.0, 0.1, 0.2, 0.3):
            cases.append(
                (ACCEPT_RATE, f"{came} servers judged", f"rate {-lost:+.2f}" if lost else "nothing",
                 lambda rng, m=came, d=lost: draw_verdicts(rng, m, d))
            )  # fmt: skip
    for lost in (0.0, 0.02, 0.05, 0.1):
        harm = f"{lost:.0%} lost" if lost else "nothing (1% flip each way)"
        cases.append(("retriever_decay", "200 items", harm, lambda rng, d=lost: draw_hits(rng, d)))
    for rate in (0.0, 0.01, 0.05):
        cases.append(
            (
                "caller_decay",
                "200 calls",
                f"{rate:.0%} lost",
                lambda rng, r=rate: draw_calls(rng, r),
            )
        )
    for rate in (0.0, 0.005, 0.02, 0.07):
        cases.append(
            (
                "contracts",
                "300 tools",
                f"{rate:.1%} changed",
                lambda rng, r=rate: draw_moves(rng, r),
            )
        )
    return cases


def describe_share(share: float) -> str:
    return f"{share:.0%} from one neighbourhood" if share else "nothing"


def draw_shift(
    rng: Rng, vectors: np.ndarray, came: int, share: float, name: str, before: int = 200
) -> DriftSignal:
    """A sample of 200 units, and `came` others: a share of them from one neighbourhood."""
    order = rng.permutation(len(vectors))
    old, rest = order[:before], order[before:]
    anchor = vectors[rng.choice(rest)]
    near = rest[np.argsort(-(vectors[rest] @ anchor))[:NEAR]]
    drifted = rng.choice(near, min(round(came * share), NEAR), replace=False)
    others = rng.choice(np.setdiff1d(rest, drifted), came - len(drifted), replace=False)
    chosen = np.concatenate([drifted, others])
    found = measure_query_shift(
        vectors[old], vectors[chosen], POLICY.min_shift, permutations=PERMUTATIONS
    )
    return replace(found, name=name)


def draw_verdicts(rng: Rng, came: int, lost: float, before: int = 150) -> DriftSignal:
    """Nine pairs a server; rates of servers by a beta distribution."""
    mean, alike = RATES
    rows, then = [], set()
    for at in range(before + came):
        rate = mean - lost * (at >= before)
        accepted = rng.random(9) < rng.beta(rate * alike, (1 - rate) * alike)
        for index, yes in enumerate(accepted):
            pair = f"{at}-{index}"
            verdict = "accept" if yes else "reject"
            rows.append({"pair_id": pair, "server_id": str(at), "verdict": verdict})
            if at < before:
                then.add(pair)
    return measure_accept_shift(then, rows, POLICY.min_accept_shift, permutations=PERMUTATIONS)


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


def draw_calls(rng: Rng, rate: float, n: int = 200) -> DriftSignal:
    lost = rng.random(n) < rate
    right = [{"calls": [{"lost": bool(item)}]} for item in lost]
    return measure_caller_decay(right, lambda row, call: not call["lost"], POLICY.min_decay)


def draw_moves(rng: Rng, rate: float, n: int = 300) -> DriftSignal:
    """Half of the changes are of wording only; calls are spread by Zipf's law."""
    then = {str(i): "1" for i in range(n)}
    now = {tool: "2" if rng.random() < rate else "1" for tool in then}
    classes = {tool: "wording" if rng.random() < 0.5 else "breaking" for tool in then}
    calls = {tool: int(200 / rank) for rank, tool in enumerate(rng.permutation(list(then)), 1)}
    return make_contract_signal(count_moves(then, now, classes, calls), POLICY.min_share)


def draw_calm(rng: Rng, tools: np.ndarray, requests: np.ndarray) -> list[DriftSignal]:
    """All four tests where nothing drifted."""
    return [
        draw_shift(rng, tools, 30, 0.0, EMBEDDINGS),
        draw_shift(rng, requests, 60, 0.0, QUERIES),
        draw_verdicts(rng, 30, 0.0),
        draw_hits(rng, 0.0),
    ]


def judge_alone(signal: DriftSignal) -> DriftSignal:
    return judge_signals([signal], POLICY.alpha)[0]


def format_fired(made: Sequence[DriftSignal]) -> str:
    fired = sum(item.fired for item in made)
    low, high = wilson_interval(fired, len(made))
    values = [item.value for item in made if item.value is not None]
    return f"{fired / len(made):.3f} [{low:.3f}, {high:.3f}] | {np.median(values):.4f}"


def spawn(trials: int, seed: int = 19) -> list[Rng]:
    return [np.random.default_rng(item) for item in np.random.SeedSequence(seed).spawn(trials)]


def embed_tools(data: Path) -> np.ndarray:
    """A vector of each tool; a trial draws few of many, so hardly two of one server."""
    texts = []
    for line in data.read_text(encoding="utf-8").splitlines():
        for tool in json.loads(line)["tools"]:
            schema = tool.get("input_schema") or {"type": "object"}
            about = tool["description"] or ""
            contract = {"name": tool["tool_name"], "description": about, "inputSchema": schema}
            texts.append(tool_text(contract))
    return embed_all(sorted(set(texts)))


def embed_requests() -> np.ndarray:
    return embed_all(sorted({row["instruction"] for row in read_corpus()}))


def embed_all(texts: Sequence[str]) -> np.ndarray:
    from assets.vectors.encoders.minilm import MiniLM

    return MiniLM().embed(texts)


if __name__ == "__main__":
    main()
