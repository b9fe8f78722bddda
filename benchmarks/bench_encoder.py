"""The serving encoder (MiniLM by ONNX Runtime) against the same weights in torch, in one run.

    python -m benchmarks.bench_encoder [--tools 60]

Prints texts per second of both for tools' texts and requests, in turns, with the ratio of each
turn, and milliseconds for one query of 10, 30 and 100 tokens. Processor seconds stand beside the
clock's: they hardly change when other work shares the machine.
"""

import argparse
import os
import time
from collections.abc import Callable

import numpy as np

from assets.contracts.canonical import tool_text
from assets.vectors.embed import MiniLM, find_base_path
from assets.vectors.encoders.session import count_cores
from benchmarks.router_data import read_queries, read_smithery

VIEWS = ("full", "brief", "name")
TURNS = 5
Embed = Callable[[list[str]], np.ndarray]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tools", type=int, default=60)
    chosen = parser.parse_args()
    tools, requests = read_texts()
    picked = [tools[at] for at in np.random.default_rng(0).permutation(len(tools))]
    print(f"{count_cores()} cores, {os.getloadavg()[0]:.1f} at work; {len(tools)} tools known")
    ours, small = MiniLM(), MiniLM(precision="int8")
    compare_bulk(
        ours, small, {"tools": render_views(picked[: chosen.tools]), "requests": requests[:100]}
    )
    compare_one_query(
        {"onnx": ours.embed, "int8": small.embed, "torch, 1 thread": open_torch_encoder(1)}
    )


def read_texts() -> tuple[list[dict], list[str]]:
    """Contracts and requests: of the development data, or made up."""
    try:
        pool = read_smithery()
        return list(pool.contracts.values()), [query.text for query in read_queries(pool)]
    except OSError:
        return make_texts()


def make_texts() -> tuple[list[dict], list[str]]:
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
    return tools, [f"Could you {tool['name'].replace('_', ' ')}?" for tool in tools]


def render_views(tools: list[dict]) -> list[str]:
    return [tool_text(tool, view) for tool in tools for view in VIEWS]


def open_torch_encoder(threads: int) -> Embed:
    import torch
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(find_base_path()))
    model.max_seq_length = 128

    def embed(texts: list[str]) -> np.ndarray:
        torch.set_num_threads(threads)
        return np.asarray(model.encode(texts, normalize_embeddings=True))

    return embed


def compare_bulk(ours: MiniLM, small: MiniLM, sets: dict[str, list[str]]) -> None:
    """Each embeds the same texts in turns; the ratio is that of a turn, so that other work on the
    machine weighs on both sides of it."""
    rivals: dict[str, Embed] = {
        "torch": open_torch_encoder(count_cores()),
        "torch, 1 thread": open_torch_encoder(1),
        "onnx": ours.embed,
        "int8": small.embed,
    }
    print(f"\n{'texts':<10}{'n':>5}  {'what':<16}{'/s':>6}{'ms cpu':>8}{'times torch (range)':>26}")
    for name, texts in sets.items():
        texts = list(dict.fromkeys(texts))
        found = {
            who: [time_embedding(embed, texts)] for who, embed in rivals.items()
        }  # left out below
        for _ in range(TURNS):
            for who, embed in rivals.items():
                found[who].append(time_embedding(embed, texts))
        for who, turns in found.items():
            turns = turns[1:]
            ratios = [t[0] / o[0] for t, o in zip(found["torch"][1:], turns, strict=True)]
            rate, cpu = len(texts) / np.median([t[0] for t in turns]), np.median(turns, axis=0)[1]
            spread = f"{np.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
            print(
                f"{name:<10}{len(texts):>5}  {who:<16}{rate:>6.0f}"
                f"{1000 * cpu / len(texts):>8.2f}{spread:>26}"
            )


def time_embedding(embed: Embed, texts: list[str]) -> tuple[float, float]:
    clock, processor = time.perf_counter(), time.process_time()
    embed(texts)
    return time.perf_counter() - clock, time.process_time() - processor


def compare_one_query(rivals: dict[str, Embed], times: int = 60) -> None:
    print(f"\none query, {times} times each in turns: ms p50 / p95 (processor p50)")
    for tokens in (10, 30, 100):
        text = " ".join(["file"] * (tokens - 3))
        found: dict[str, list] = {who: [] for who in rivals}
        for turn in range(times):
            for who, embed in rivals.items():
                found[who].append(time_embedding(embed, [f"{text} {turn}"]))
        told = []
        for who, turns in found.items():
            clock, processor = 1000 * np.array(turns).T
            p50, p95 = np.percentile(clock, (50, 95))
            told.append(f"{who} {p50:.1f} / {p95:.1f} ({np.median(processor):.1f})")
        print(f"{tokens:>4} tokens   " + "   ".join(told))


if __name__ == "__main__":
    main()
