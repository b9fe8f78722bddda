"""The serving encoder (MiniLM by ONNX Runtime) against the same weights in torch, in one run.

python -m benchmarks.bench_encoder [--part all|bulk|query|int8] [--tools 60] [--cold 0]
Prints: texts per second of both for tools' texts and requests, in turns, and the ratio of each
turn; milliseconds for one query of 10, 30 and 100 tokens; what int8 changes. `--cold N` embeds the
texts of N tools once, as the first index of them does. Processor seconds stand beside the clock's:
they hardly change when other work shares the machine.

Tools and requests are those of the development data where it is there (`shared_data.py`), else
texts made from the demo's: the int8 figures then say little.
"""

import argparse
import json
import os
import time
from collections.abc import Callable

import numpy as np

from assets.contracts.canonical import tool_text
from assets.vectors.embed import MiniLM, base_path
from assets.vectors.encoders.session import cores
from benchmarks.shared_data import SHARED
from training.evaluation.metrics import bootstrap, paired

VIEWS = ("full", "brief", "name")
TURNS = 5
Embed = Callable[[list[str]], np.ndarray]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--part", choices=("all", "bulk", "query", "int8"), default="all")
    parser.add_argument("--tools", type=int, default=60)
    parser.add_argument("--cold", type=int, default=0)
    asked = parser.parse_args()
    tools, requests = world()
    picked = [tools[i] for i in np.random.default_rng(0).permutation(len(tools))]
    print(f"{cores()} cores, {os.getloadavg()[0]:.1f} at work; {len(tools)} tools known")
    ours, small = MiniLM(), MiniLM(precision="int8")
    if asked.cold:
        cold(ours, views(picked[: asked.cold]), asked.cold)
        return
    if asked.part in ("all", "bulk"):
        texts = {"tools": views(picked[: asked.tools]), "requests": list(requests)[:100]}
        bulk(ours, small, texts)
    if asked.part in ("all", "query"):
        one_query({"onnx": ours.embed, "int8": small.embed, "torch, 1 thread": torch_encoder(1)})
    if asked.part in ("all", "int8"):
        quality(ours, small, tools, requests, picked[:1500])


def world() -> tuple[list[dict], dict[str, int]]:
    """Contracts, and requests with the place of the tool that each is for."""
    servers, pairs = SHARED / "smithery" / "servers.jsonl", sorted(SHARED.glob("corpus/pairs_A*"))
    if not (servers.exists() and pairs):
        return made_up()
    from assets.synthesis.judging.adhoc.files import read_tools

    known = read_tools(servers).by_id
    at = {name: place for place, name in enumerate(known)}
    rows = [json.loads(line) for file in pairs for line in file.read_text().splitlines()]
    good = {r["instruction"]: at[r["tool_id"]] for r in rows if r["kind"] != "flawed"}
    return list(known.values()), good


def made_up() -> tuple[list[dict], dict[str, int]]:
    verbs = ("find", "delete", "convert", "list", "compare", "draw", "send", "rename")
    things = ("notes of last week", "miles in kilometres", "open issues", "paintings", "invoices")
    tools = [
        {
            "name": f"{verb}_{thing.replace(' ', '_')}",
            "description": f"Use this to {verb} the {thing} of a workspace. " * (1 + n % 4),
            "inputSchema": {"properties": {"author": {"description": f"Whose {thing}."}}},
        }
        for n, (verb, thing) in enumerate((verb, thing) for verb in verbs for thing in things)
    ]
    return tools, {f"Could you {t['name'].replace('_', ' ')}?": n for n, t in enumerate(tools)}


def views(tools: list[dict]) -> list[str]:
    return [tool_text(tool, view) for tool in tools for view in VIEWS]


def torch_encoder(threads: int) -> Embed:
    import torch
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(base_path()))
    model.max_seq_length = 128

    def embed(texts: list[str]) -> np.ndarray:
        torch.set_num_threads(threads)
        return np.asarray(model.encode(texts, normalize_embeddings=True))

    return embed


def cold(ours: MiniLM, texts: list[str], tools: int) -> None:
    clock, processor = time.perf_counter(), time.process_time()
    ours.embed(texts)
    clock, processor = time.perf_counter() - clock, time.process_time() - processor
    distinct = len(set(texts))
    print(f"{tools} tools, {len(texts)} texts ({distinct} distinct): {clock:.1f} s,")
    print(f"{processor:.1f} processor seconds; {os.getloadavg()[0]:.1f} at work")


def bulk(ours: MiniLM, small: MiniLM, sets: dict[str, list[str]]) -> None:
    """Each embeds the same texts in turns; the ratio is that of a turn, so that other work on the
    machine weighs on both sides of it."""
    rivals: dict[str, Embed] = {
        "torch": torch_encoder(cores()),
        "torch, 1 thread": torch_encoder(1),
        "onnx": ours.embed,
        "int8": small.embed,
    }
    print(f"\n{'texts':<10}{'n':>5}  {'what':<16}{'/s':>6}{'ms cpu':>8}{'times torch (range)':>26}")
    for name, texts in sets.items():
        texts = list(dict.fromkeys(texts))
        found = {who: [timed(embed, texts)] for who, embed in rivals.items()}  # left out below
        for _ in range(TURNS):
            for who, embed in rivals.items():
                found[who].append(timed(embed, texts))
        for who, turns in found.items():
            turns = turns[1:]
            ratios = [t[0] / o[0] for t, o in zip(found["torch"][1:], turns, strict=True)]
            rate, cpu = len(texts) / np.median([t[0] for t in turns]), np.median(turns, axis=0)[1]
            spread = f"{np.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
            print(
                f"{name:<10}{len(texts):>5}  {who:<16}{rate:>6.0f}"
                f"{1000 * cpu / len(texts):>8.2f}{spread:>26}"
            )


def timed(embed: Embed, texts: list[str]) -> tuple[float, float]:
    clock, processor = time.perf_counter(), time.process_time()
    embed(texts)
    return time.perf_counter() - clock, time.process_time() - processor


def one_query(rivals: dict[str, Embed], times: int = 60) -> None:
    print(f"\none query, {times} times each in turns: ms p50 / p95 (processor p50)")
    for tokens in (10, 30, 100):
        text = " ".join(["file"] * (tokens - 3))
        found: dict[str, list] = {who: [] for who in rivals}
        for turn in range(times):
            for who, embed in rivals.items():
                found[who].append(timed(embed, [f"{text} {turn}"]))
        told = []
        for who, turns in found.items():
            clock, processor = 1000 * np.array(turns).T
            p50, p95 = np.percentile(clock, (50, 95))
            told.append(f"{who} {p50:.1f} / {p95:.1f} ({np.median(processor):.1f})")
        print(f"{tokens:>4} tokens   " + "   ".join(told))


def quality(
    ours: MiniLM,
    small: MiniLM,
    tools: list[dict],
    requests: dict[str, int],
    picked: list[dict],
) -> None:
    """What int8 changes: cosines, neighbours, and the rank of the right tool."""
    texts = list(dict.fromkeys([tool_text(tool) for tool in picked]))
    pool = list(dict.fromkeys([*texts, *(tool_text(tools[at]) for at in requests.values())]))
    place = {text: at for at, text in enumerate(pool)}
    gold = np.array([place[tool_text(tools[at])] for at in requests.values()])
    full, eight = ({who.id: who.embed(pool) for who in (ours, small)}).values()
    asked, asked8 = (who.embed(list(requests)) for who in (ours, small))
    cosines = (full * eight).sum(axis=1)[: len(texts)]
    near, near8 = (nearest(v[: len(texts)], v[: len(texts)], own=True) for v in (full, eight))
    by_text = bootstrap(shared(near, near8), texts)
    of_requests, of_requests8 = nearest(asked, full), nearest(asked8, eight)
    of_tool = [pool[at] for at in gold]  # a tool's requests are drawn together
    by_request = bootstrap(shared(of_requests, of_requests8), of_tool)
    print(f"\nint8 against fp32, {len(texts)} tools' texts: cosine mean {cosines.mean():.4f},")
    print(f"  lowest {cosines.min():.3f}; top-10 overlap {by_text}")
    print(f"  {len(gold)} requests over {len(pool)} tools: top-10 overlap {by_request}")
    hits, hits8 = ((n[:, 0] == gold).astype(float).tolist() for n in (of_requests, of_requests8))
    print(f"  Recall@1 fp32 {bootstrap(hits, of_tool)}, int8 {bootstrap(hits8, of_tool)},")
    print(f"  int8 less fp32 {paired(hits8, hits, of_tool)}")


def shared(ours: np.ndarray, theirs: np.ndarray) -> list[float]:
    """The share of each row's ten that the other row has too."""
    rows = zip(ours.tolist(), theirs.tolist(), strict=True)
    return [len(set(a) & set(b)) / len(a) for a, b in rows]


def nearest(rows: np.ndarray, pool: np.ndarray, own: bool = False) -> np.ndarray:
    """Places of the ten nearest of the pool, best first; `own`: the row itself is left out."""
    scores = rows @ pool.T
    if own:
        np.fill_diagonal(scores, -1)
    return np.argsort(-scores, axis=1, kind="stable")[:, :10]


if __name__ == "__main__":
    main()
