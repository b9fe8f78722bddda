"""Does the right tool stay when a small window shows a few of many tools?

    python -m benchmarks.bench_sidecar_window [--items 200] [--window 4096] [--seed 7]

Good calls of the corpus on servers of the side `test` of the frozen split, each as a draft for a
tool that is not there (nothing of its name helps) and as one under a misspelt name, beside 8k, 32k
and 128k tokens of other servers' tools. `fit_request` keeps what the window holds. A token is four
characters of the prompt here: no real base's tokenizer is at hand.
"""

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

import numpy as np

from benchmarks.repair.calls import AskedCall, read_calls
from benchmarks.shared_data import SHARED, require_paths
from extensions.sidecar.flaws.flaws import make_flawed
from extensions.sidecar.select import fit_request, rank_candidates
from serving.repair.revision import RevisionRequest
from serving.repair.tools import Candidate
from training.evaluation.metrics import bootstrap_mean

SIZES = (8_000, 32_000, 128_000)  # tokens of tools
KINDS = ("tool that is not there", "tool misspelt")
_CHARS = 4  # of a token


class FourCharacters:
    """As much of a tokenizer as a prompt needs: the tools and messages as JSON."""

    chat_template = "json"

    def apply_chat_template(self, messages: Any, tools: Any, **_: Any) -> str:
        return json.dumps([tools, messages], ensure_ascii=False)

    def __call__(self, text: str, **_: Any) -> dict[str, Any]:
        return {"input_ids": range(len(text) // _CHARS)}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--items", type=int, default=200)
    parser.add_argument("--window", type=int, default=4096)
    parser.add_argument("--seed", type=int, default=7)
    given = parser.parse_args()
    require_paths(SHARED / "corpus", SHARED / "smithery" / "servers.jsonl")
    draw = Random(given.seed)
    calls = read_calls("corpus", "test")
    pool = list_tools(calls)
    chosen = draw.sample(calls, min(given.items, len(calls)))
    print("| tokens of tools | tools | draft | right tool shown | shown first | ms p50 / p99 |")
    print("| --- | --- | --- | --- | --- | --- |")
    for size in SIZES:
        for kind in KINDS:
            print_row(size, kind, list(measure_kept(chosen, pool, size, kind, given.window, draw)))


def list_tools(calls: Sequence[AskedCall]) -> list[Candidate]:
    """Every tool of the calls' servers, a name once."""
    tools: dict[str, Candidate] = {}
    for call in calls:
        for one in call.beside:
            tools.setdefault(one["name"], Candidate(one["name"], one, call.good.server))
    return list(tools.values())


def measure_kept(
    calls: Sequence[AskedCall],
    pool: Sequence[Candidate],
    size: int,
    kind: str,
    window: int,
    draw: Random,
) -> Iterator[tuple[str, int, bool, bool, float]]:
    """(server, tools on offer, right tool shown, first, ms) of each call."""
    for call in calls:
        draft = make_flawed(call.good, kind, draw)
        if draft is None:
            continue
        tools = draw_tools(call, pool, size, draw)
        request = RevisionRequest(
            call.conversation, tools, draft.name, dict(call.good.arguments), []
        )
        began = time.perf_counter()
        fitted = fit_request(FourCharacters(), rank_candidates(request), window)
        ms = (time.perf_counter() - began) * 1000
        shown = [candidate.name for candidate in fitted.request.candidates] if fitted else []
        first = shown[:1] == [call.good.name]
        yield call.good.server, len(tools), call.good.name in shown, first, ms


def draw_tools(
    call: AskedCall, pool: Sequence[Candidate], size: int, draw: Random
) -> list[Candidate]:
    """The right tool, its server's, then others up to `size` tokens, in no order."""
    own = [Candidate(one["name"], one, call.good.server) for one in call.beside]
    listed = {one.name: one for one in own if one.name != call.good.name}
    right = Candidate(call.good.name, call.good.contract, call.good.server)
    found, room = [right], size * _CHARS - len(json.dumps(right.contract))
    for one in [*listed.values(), *draw.sample(pool, len(pool))]:
        room -= len(json.dumps(one.contract))
        if room < 0:
            break
        if one.name != right.name:
            found.append(one)
    draw.shuffle(found)
    return found


def print_row(size: int, kind: str, rows: Sequence[tuple[str, int, bool, bool, float]]) -> None:
    servers = [row[0] for row in rows]
    kept, first = (bootstrap_mean([float(row[at]) for row in rows], servers) for at in (2, 3))
    ms = np.percentile([row[4] for row in rows], (50, 99))
    tools = int(np.median([row[1] for row in rows]))
    print(
        f"| {size:,} | {tools} | {kind} | {kept} (n = {len(rows)}, {len(set(servers))} servers) |"
        f" {first} | {ms[0]:.0f} / {ms[1]:.0f} |"
    )


if __name__ == "__main__":
    main()
