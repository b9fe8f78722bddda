"""Recall, NDCG and MRR of the router and of its peers on the corpus's queries, with intervals.

    python -m benchmarks.router_quality [--home DIR] [--fastmcp-python PATH]

A hit is the gold tool or a twin of it (`router_data.Pool.twins`). The corpus holds one tool a
server, so a tool with all its queries is what the bootstrap draws whole. Peers run as they are, and
as the router's own strategy of that name, whose answers name tools that say the same only once.
FastMCP is measured by its own Python, made for it alone:
`python -m venv /tmp/fastmcp-venv && /tmp/fastmcp-venv/bin/pip install fastmcp`.
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from assets.contracts.canonical import tool_text
from assets.contracts.tool_id import ToolId
from assets.vectors.embed import MiniLM
from assets.vectors.lexical import BM25
from assets.vectors.texts import build_server_views
from benchmarks import router_peers as peers
from benchmarks.router_data import SLICES, Pool, Query, hit_at, read_queries, read_smithery
from benchmarks.router_index import Kept, open_router
from benchmarks.shared_data import SHARED, require_paths
from serving.router import Ask
from training.evaluation.metrics import RESAMPLES, Figure, bootstrap_difference, bootstrap_mean

MEASURES = ("Recall@1", "Recall@5", "Recall@10", "NDCG@10", "MRR@10")
OURS, STRATEGIES = "ours", ("dense", "bm25", "mcp-zero", "rrf")
K = 10
_DEPTH = 100


@dataclass
class Answers:
    """Method -> tool ids per query, best first; `notes` says what was not run, and versions."""

    found: dict[str, list[list[str]]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(self, name: str, pool: Pool, ranks: peers.Ranks) -> None:
        self.found[name] = [[pool.ids[place] for place in row] for row in ranks]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--home", type=Path, default=Path("var/router_bench"))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--fastmcp-python", type=Path, default=Path("/tmp/fastmcp-venv/bin/python"))
    chosen = parser.parse_args()
    require_paths(SHARED / "corpus", SHARED / "smithery")
    chosen.home.mkdir(parents=True, exist_ok=True)
    pool = read_smithery()
    asked = read_queries(pool)
    answers = run_methods(chosen, pool, asked)
    values = {name: measure_method(pool, asked, found) for name, found in answers.found.items()}
    for note in answers.notes:
        print(note)
    for tested in (True, False):
        for kind in SLICES:
            places = [
                at for at, query in enumerate(asked)
                if query.within(kind) and (query.tested or not tested)
            ]  # fmt: skip
            if not places:
                continue
            title = f"{kind}, {'test' if tested else 'all'} servers, n = {len(places)}"
            print(f"\n{title}\n\n{render_slice(values, places, [query.server for query in asked])}")


def run_methods(chosen: argparse.Namespace, pool: Pool, asked: Sequence[Query]) -> Answers:
    """All baselines, then ours."""
    answers = Answers()
    texts = [query.text for query in asked]
    _run_embedding_peers(answers, pool, texts, Kept(MiniLM(threads=chosen.threads), chosen.home))
    _run_fastmcp(answers, chosen, pool, texts)
    router = open_router(chosen.home, pool, chosen.threads)
    for strategy in (*STRATEGIES, OURS):
        asks = [Ask(query=text, k=K, strategy=strategy) for text in texts]
        name = strategy if strategy == OURS else f"{strategy}, twins collapsed"
        answers.found[name] = [[h.tool_id for h in a.hits] for a in router.find_many(asks)]
    return answers


def measure_method(
    pool: Pool, asked: Sequence[Query], found: Sequence[Sequence[str]]
) -> dict[str, np.ndarray]:
    """Measure -> its value for each query."""
    at = np.array(
        [hit_at(row[:K], q.tool_id, pool.twins) for row, q in zip(found, asked, strict=True)]
    )
    gain = np.where(at < K, 1 / np.log2(at + 2), 0.0)
    back = np.where(at < K, 1 / (at + 1), 0.0)
    recalls = {f"Recall@{k}": (at < k).astype(float) for k in (1, 5, 10)}
    return {**recalls, "NDCG@10": gain, "MRR@10": back}


def render_slice(
    values: dict[str, dict[str, np.ndarray]], places: list[int], servers: Sequence[str]
) -> str:
    """Markdown of one slice: every method, then ours against the best baseline."""
    groups = [servers[at] for at in places]
    figures = {
        name: {m: bootstrap_mean(of[m][places].tolist(), groups) for m in MEASURES}
        for name, of in values.items()
    }
    best = max((n for n in figures if n != OURS), key=lambda n: figures[n]["Recall@1"].value)
    lines = [f"| method | {' | '.join(MEASURES)} |", f"|{' --- |' * (1 + len(MEASURES))}"]
    lines += [
        f"| {name} | {' | '.join(str(of[m]) for m in MEASURES)} |" for name, of in figures.items()
    ]
    ours, peer = (values[name]["Recall@1"][places] for name in (OURS, best))
    gain = bootstrap_difference(ours.tolist(), peer.tolist(), groups)
    gained = f"Recall@1 of ours less {best}: {gain}; ratio {bootstrap_ratio(ours, peer, groups)}"
    return "\n".join([*lines, "", gained])


def _run_embedding_peers(
    answers: Answers, pool: Pool, texts: Sequence[str], embed: Callable[..., np.ndarray]
) -> None:
    asked = embed(texts)
    contracts = list(pool.contracts.values())
    servers, server_of = _group_by_server(pool)
    views = [
        build_server_views(contracts=held, **pool.servers[name]) for name, held in servers.items()
    ]
    described, summarised = (embed([view[of] for view in views]) for of in ("server", "summary"))
    full_texts = [tool_text(contract) for contract in contracts]
    briefs = [tool_text(contract, "brief") for contract in contracts]
    for name, listed in (("name + description", briefs), ("full text", full_texts)):
        vectors = embed(listed)
        answers.add(f"MiniLM cosine, {name}", pool, peers.rank_dense(asked, vectors, K))
        zero = peers.mcp_zero(asked, described, summarised, vectors, server_of, K)
        answers.add(f"MCP-Zero, {name}", pool, zero)
    deep = peers.rank_dense(asked, embed(full_texts), _DEPTH)
    whole = [
        f"{contract['name']}\n{text}" for contract, text in zip(contracts, full_texts, strict=True)
    ]
    words = peers.rank_lexical(BM25.build(whole), texts, _DEPTH)
    answers.add("BM25 (ours)", pool, [row[:K] for row in words])
    answers.add("plain RRF", pool, peers.fuse_ranks([deep, words], K))


def _group_by_server(pool: Pool) -> tuple[dict[str, list[dict[str, Any]]], np.ndarray]:
    held: dict[str, list[dict[str, Any]]] = {}
    for name, contract in pool.contracts.items():
        held.setdefault(ToolId.parse(name).server_id, []).append(contract)
    place = {name: at for at, name in enumerate(held)}
    return held, np.array([place[ToolId.parse(name).server_id] for name in pool.ids])


def _run_fastmcp(
    answers: Answers, chosen: argparse.Namespace, pool: Pool, texts: Sequence[str]
) -> None:
    tools = [_as_listed(name, contract) for name, contract in pool.contracts.items()]
    ranks = peers.rank_fastmcp(chosen.fastmcp_python, chosen.home, tools, texts, K)
    if ranks is None:
        answers.notes.append(f"FastMCP: not run, {chosen.fastmcp_python} is not there")
        return
    answers.add("FastMCP BM25, namespaced", pool, ranks["namespaced"])
    answers.add("FastMCP BM25, bare names", pool, ranks["bare"])
    spent = f"{ranks['namespaced_ms']} ms a search of its own, hash of the catalogue included"
    answers.notes.append(f"FastMCP {ranks['version']}: {spent}")


def _as_listed(name: str, contract: dict[str, Any]) -> dict[str, Any]:
    return {
        "server": ToolId.parse(name).server_id,
        "name": contract["name"],
        "description": contract.get("description", ""),
        "inputSchema": contract["inputSchema"],
    }


def bootstrap_ratio(ours: np.ndarray, best: np.ndarray, groups: Sequence[str]) -> Figure:
    """The ratio of two means with its interval, whole groups resampled."""
    names = {name: at for at, name in enumerate(dict.fromkeys(groups))}
    place = np.array([names[group] for group in groups])
    a, b = (np.bincount(place, weights=of, minlength=len(names)) for of in (ours, best))
    draws = np.random.default_rng(0).integers(0, len(names), (RESAMPLES, len(names)))
    drawn = a[draws].sum(axis=1) / np.maximum(b[draws].sum(axis=1), 1)
    low, high = np.quantile(drawn, [0.025, 0.975])
    value = float(ours.sum() / max(best.sum(), 1))
    return Figure(round(value, 3), round(float(low), 3), round(float(high), 3), len(ours))


if __name__ == "__main__":
    main()
