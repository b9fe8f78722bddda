"""Every method's answers to the corpus's queries over the whole pool: tool ids, best first.

Four peers run twice: as they are, and as the router's own strategy of that name, whose answers name
tools that say the same only once, which helps them below the first place. Both count as baselines.
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from assets.contracts.canonical import tool_text
from assets.vectors.embed import MiniLM
from assets.vectors.lexical import BM25
from assets.vectors.texts import server_views
from benchmarks import router_peers as peers
from benchmarks.router_data import Pool, Query
from benchmarks.router_train import adapter_of
from benchmarks.router_vectors import Kept

K = 10
_DEPTH = 100
OURS, TRAINED = "ours", "ours, trained"
BASELINES = (
    "MiniLM cosine, name + description", "MiniLM cosine, full text", "BM25 (ours)",
    "MCP-Zero, name + description", "MCP-Zero, full text", "FastMCP BM25, namespaced",
    "FastMCP BM25, bare names", "plain RRF", "dense, twins collapsed", "bm25, twins collapsed",
    "mcp-zero, twins collapsed", "rrf, twins collapsed",
)  # fmt: skip


@dataclass
class Answers:
    """Method -> tool ids per query; `notes` says what was not run, and versions."""

    found: dict[str, list[list[str]]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(self, name: str, pool: Pool, ranks: peers.Ranks) -> None:
        self.found[name] = [[pool.ids[place] for place in row] for row in ranks]


def run_methods(asked: argparse.Namespace, pool: Pool, queries: Sequence[Query]) -> Answers:
    """All baselines, then ours with the base encoder and with each trained adapter."""
    answers = Answers()
    texts = [query.text for query in queries]
    encoder = Kept(MiniLM(threads=asked.threads), asked.home)
    _embedding_peers(answers, pool, texts, encoder)
    _fastmcp(answers, asked, pool, texts)
    for name, strategy, adapter in _ours(asked, answers):
        answers.found[name] = routed(asked.home, pool, texts, strategy, adapter, asked.threads)
    return answers


def routed(
    home: Path, pool: Pool, texts: Sequence[str], strategy: str, adapter: Path | None, threads: int
) -> list[list[str]]:
    """What the router answers, from an index of this pool."""
    from benchmarks.router_index import router_over
    from serving.router import Ask

    router = router_over(home, pool, adapter, threads)
    asks = [Ask(query=text, k=K, strategy=strategy) for text in texts]
    return [[hit.tool_id for hit in answer.hits] for answer in router.find_many(asks)]


def _embedding_peers(
    answers: Answers, pool: Pool, texts: Sequence[str], embed: Callable[..., np.ndarray]
) -> None:
    asked = embed(texts)
    contracts = list(pool.contracts.values())
    servers, server_of = _servers(pool)
    views = [server_views(contracts=held, **pool.servers[name]) for name, held in servers.items()]
    described, summarised = (embed([view[of] for view in views]) for of in ("server", "summary"))
    full_texts = [tool_text(contract) for contract in contracts]
    briefs = [tool_text(contract, "brief") for contract in contracts]
    for name, listed in (("name + description", briefs), ("full text", full_texts)):
        vectors = embed(listed)
        answers.add(f"MiniLM cosine, {name}", pool, peers.dense(asked, vectors, K))
        zero = peers.mcp_zero(asked, described, summarised, vectors, server_of, K)
        answers.add(f"MCP-Zero, {name}", pool, zero)
    deep = peers.dense(asked, embed(full_texts), _DEPTH)
    whole = [
        f"{contract['name']}\n{text}" for contract, text in zip(contracts, full_texts, strict=True)
    ]
    words = peers.lexical(BM25.build(whole), texts, _DEPTH)
    answers.add("BM25 (ours)", pool, [row[:K] for row in words])
    answers.add("plain RRF", pool, peers.rrf([deep, words], K))


def _servers(pool: Pool) -> tuple[dict[str, list[dict[str, Any]]], np.ndarray]:
    held: dict[str, list[dict[str, Any]]] = {}
    for name, contract in pool.contracts.items():
        held.setdefault(name.rpartition("::")[0], []).append(contract)
    place = {name: at for at, name in enumerate(held)}
    return held, np.array([place[name.rpartition("::")[0]] for name in pool.ids])


def _fastmcp(answers: Answers, asked: argparse.Namespace, pool: Pool, texts: Sequence[str]) -> None:
    tools = [_listed(name, contract) for name, contract in pool.contracts.items()]
    ranks = peers.fastmcp(asked.fastmcp_python, asked.home, tools, texts, K)
    if ranks is None:
        answers.notes.append(f"FastMCP: not run, {asked.fastmcp_python} is not there")
        return
    answers.add("FastMCP BM25, namespaced", pool, ranks["namespaced"])
    answers.add("FastMCP BM25, bare names", pool, ranks["bare"])
    spent = f"{ranks['namespaced_ms']} ms a search of its own, hash of the catalogue included"
    answers.notes.append(f"FastMCP {ranks['version']}: {spent}")


def _listed(name: str, contract: dict[str, Any]) -> dict[str, Any]:
    return {
        "server": name.rpartition("::")[0],
        "name": contract["name"],
        "description": contract.get("description", ""),
        "inputSchema": contract["inputSchema"],
    }


def _ours(asked: argparse.Namespace, answers: Answers) -> Iterator[tuple[str, str, Path | None]]:
    yield OURS, "ours", None
    for strategy in ("dense", "bm25", "mcp-zero", "rrf"):
        yield f"{strategy}, twins collapsed", strategy, None
    for arm in asked.arms:
        adapter = adapter_of(asked.home, arm)
        if adapter:
            yield f"{TRAINED}: {arm}", "ours", adapter
        else:
            answers.notes.append(f"{TRAINED}: {arm}: not run, nothing trained under {asked.home}")
