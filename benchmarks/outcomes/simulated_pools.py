"""Tools and requests that the simulator of failures is played on: read from `--data`, or made up.

A pool is some 60 tools with their requests, and variants of them under opaque ids whose
descriptions are paraphrased by rules; each is embedded once and kept beside the program's output.
"""

import csv
import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from assets.contracts.canonical import tool_text
from extensions.bench.robustness.paraphrase import paraphrase_text
from extensions.recommender.tool_pool import ToolFacts, ToolPool

SERVERS = 16


@dataclass(frozen=True)
class SimulatedRequests:
    """Requests in words, their unit vectors [requests, dim], the place of the right tool."""

    texts: tuple[str, ...]
    vectors: np.ndarray
    gold: np.ndarray


@dataclass(frozen=True)
class SimulatedStage:
    """A pool whose first `real` tools are real; `origin` [tools] is the real tool that each is a
    variant of (its own place for a real one)."""

    name: str
    pool: ToolPool
    real: int
    origin: np.ndarray
    requests: SimulatedRequests


def make_random_stage(
    seed: int, real: int, variants: int, requests: int, dim: int = 48
) -> SimulatedStage:
    """A stage without words of any meaning: requests lie about the vector of their tool."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(8, dim))
    base = _normalise(centres[rng.integers(0, 8, real)] + rng.normal(size=(real, dim)))
    origin = np.concatenate([np.arange(real), rng.integers(0, real, variants)])
    noise = rng.normal(size=(len(origin), dim)) * 0.05
    noise[:real] = 0
    gold = rng.integers(0, real, requests)
    asked = _normalise(base[gold] + rng.normal(size=(requests, dim)) * 0.13)
    tools = [_make_tool(f"tool {place}", "does a thing", place, real, {}) for place in origin]
    named = [_rename(tool, at, at >= real, seed) for at, tool in enumerate(tools)]
    texts = tuple(f"request {row} for tool {place}" for row, place in enumerate(gold))
    pool = ToolPool(named, _normalise(base[origin] + noise).astype(np.float32))
    return SimulatedStage(
        "random", pool, real, origin, SimulatedRequests(texts, asked.astype(np.float32), gold)
    )


def read_stage(
    name: str, data: Path, cache: Path, seed: int, real: int, variants: int, requests: int
) -> SimulatedStage:
    """A stage of the set `name` under `data`: `metatool-a`, `metatool-b` (halves of its tools), or
    sets in the format of `retrieval/`, several joined by `+`. Vectors are kept under `cache`."""
    rng = np.random.default_rng(seed)
    contracts, asked = _read_set(name, data)
    often = sorted(asked, key=lambda tool: (-len(asked[tool]), tool))[: real * 3 // 2]
    chosen = [often[at] for at in np.sort(rng.permutation(len(often))[:real])]
    share = max(requests // len(chosen), 1)
    texts, gold = [], []
    for place, tool in enumerate(chosen):
        rows = rng.permutation(len(asked[tool]))[:share]
        texts += [asked[tool][row] for row in rows]
        gold += [place] * len(rows)
    origin = np.concatenate([np.arange(len(chosen)), rng.integers(0, len(chosen), variants)])
    tools = []
    for at, place in enumerate(origin.tolist()):
        contract = contracts[chosen[place]]
        about = str(contract.get("description") or "")
        if at >= len(chosen):
            about = paraphrase_text(about, seed + at)
        tools.append(_make_tool(str(contract["name"]), about, place, len(chosen), contract))
    named = [_rename(tool, at, at >= len(chosen), seed) for at, tool in enumerate(tools)]
    vectors = _embed([tool_text(tool.contract) for tool in named], cache)
    held = _embed(texts, cache)
    order = rng.permutation(len(texts))
    asked_for = SimulatedRequests(
        tuple(texts[row] for row in order), held[order], np.array(gold, int)[order]
    )
    return SimulatedStage(name, ToolPool(named, vectors), len(chosen), origin, asked_for)


def _make_tool(name: str, about: str, place: int, real: int, contract: dict[str, Any]) -> ToolFacts:
    schema = contract.get("inputSchema")
    schema = schema if isinstance(schema, dict) else {"type": "object", "properties": {}}
    body = {"name": name, "description": about, "inputSchema": schema}
    server = f"real-{place * SERVERS // max(real, 1)}"
    return ToolFacts(f"{server}::{name}", server, body)


def _rename(tool: ToolFacts, at: int, variant: bool, seed: int) -> ToolFacts:
    """The tool under an id of its own; a variant's says nothing, and its server is another."""
    mark = hashlib.sha256(f"{seed}/{at}".encode()).hexdigest()
    name = f"ep_{mark[:8]}" if variant else f"{tool.contract['name']}"
    server = f"syn-{mark[8:12]}" if variant else tool.server_id
    server = f"syn-{int(mark[8:12], 16) % 24}" if variant else server
    unique = name if variant else f"{name}-{at}"
    return ToolFacts(f"{server}::{unique}", server, {**tool.contract, "name": unique})


def _read_set(name: str, data: Path) -> tuple[dict[str, Any], dict[str, list[str]]]:
    """(contract by tool id, requests by tool id)."""
    asked: dict[str, list[str]] = defaultdict(list)
    contracts: dict[str, Any] = {}
    if name.startswith("metatool"):
        about = json.loads((data / "metatool" / "plugin_des.json").read_text(encoding="utf-8"))
        half = sorted(about)[0 if name.endswith("a") else 1 :: 2]
        contracts = {tool: {"name": tool, "description": about[tool]} for tool in half}
        path = data / "metatool" / "all_clean_data.csv"
        with path.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                if row["Tool"] in contracts:
                    asked[row["Tool"]].append(row["Query"])
        return contracts, asked
    for part in name.split("+"):
        folder = data / "retrieval" / part
        for server in _read_lines(folder / "servers.jsonl"):
            for tool in server["tools"]:
                contracts[f"{server['qualified_name']}::{tool['name']}"] = tool
        for row in _read_lines(folder / "queries.jsonl"):
            if len(row["tool_ids"]) == 1 and row["tool_ids"][0] in contracts:
                asked[row["tool_ids"][0]].append(row["instruction"])
    return contracts, {tool: sorted(set(texts)) for tool, texts in asked.items()}


def _read_lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        yield from map(json.loads, file)


def _embed(texts: list[str], cache: Path) -> np.ndarray:
    key = hashlib.sha256("\0".join(texts).encode()).hexdigest()[:24]
    path = cache / f"{key}.npy"
    if path.exists():
        return np.load(path)
    from assets.vectors.encoders.choose import open_embedder

    vectors = open_embedder("minilm", threads=2).embed(texts)
    cache.mkdir(parents=True, exist_ok=True)
    np.save(path, vectors)
    return vectors


def _normalise(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)
