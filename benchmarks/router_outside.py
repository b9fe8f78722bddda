"""Sets of other people's, ranked by the router and by plain cosine: here MetaTool.

MetaTool is split by tool: an adapter learns queries of half of the tools, and the queries of the
other half are asked of the whole pool of 199, before and after. `moved` is another question, one
split by query: each tool's vector is moved toward half of its queries, and the other half asks.
"""

import argparse
import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from assets.contracts.canonical import tool_text
from assets.vectors.lexical import BM25
from benchmarks import router_peers as peers
from benchmarks.router_api_bank import api_bank
from benchmarks.router_data import Pool, plain_pool
from benchmarks.router_index import encoder_of, router_over
from benchmarks.router_train import adapter_of, metatool_learnt, metatool_queries
from benchmarks.shared_data import SHARED
from serving.router import Ask
from training.evaluation.metrics import bootstrap, paired

_K = 5
PUBLISHED = "OATS 0.869 -> 0.940, StackOne 0.949 NDCG@5, by other splits than ours by tool"


def outside(asked: argparse.Namespace) -> dict[str, Any]:
    return {"metatool": metatool(asked), "api-bank": api_bank(asked)}


def metatool(asked: argparse.Namespace) -> dict[str, Any]:
    """{rows: {name: {NDCG@5, Recall@1}}, gains} on the queries of tools that nothing learnt."""
    said, pool = metatool_queries(), _metatool_pool()
    drawn = random.Random(20).sample(said, min(asked.sample or len(said), len(said)))
    places = np.array([pool.ids.index(f"{tool}::{tool}") for _, tool in drawn])
    tested = np.array([not metatool_learnt(tool) for _, tool in drawn])
    texts, groups = [query for query, _ in drawn], [tool for _, tool in drawn]
    adapter = adapter_of(asked.home, "metatool")
    values: dict[str, dict[str, np.ndarray]] = {}
    for when, of in (("before", None), ("after", adapter)):
        if when == "after" and adapter is None:
            continue
        keep = np.ones(len(drawn), bool) if of is None else tested
        listed = [text for text, kept in zip(texts, keep, strict=True) if kept]
        for method, ranks in _metatool_ranks(asked, pool, listed, of).items():
            values[f"{method}, {when}"] = _spread(_measured(ranks, places[keep]), keep)
    values["moved toward half of a tool's queries"] = _moved(asked, pool, texts, places)
    return _metatool_table(values, tested, groups)


def _metatool_ranks(
    asked: argparse.Namespace, pool: Pool, texts: Sequence[str], adapter: Path | None
) -> dict[str, peers.Ranks]:
    encoder = encoder_of(asked.home, adapter, asked.threads)
    listed = [tool_text(of) for of in pool.contracts.values()]
    found = {"cosine": peers.dense(encoder.embed(texts), encoder.embed(listed), _K)}
    router = router_over(asked.home, pool, adapter, asked.threads)
    at = {name: place for place, name in enumerate(pool.ids)}
    answers = router.find_many([Ask(query=text, k=_K) for text in texts])
    found["ours"] = [[at[hit.tool_id] for hit in answer.hits] for answer in answers]
    if adapter is None:
        found["BM25"] = peers.lexical(BM25.build(listed), texts, _K)
    return found


def _moved(
    asked: argparse.Namespace, pool: Pool, texts: Sequence[str], places: np.ndarray
) -> dict[str, np.ndarray]:
    """Tool vectors moved toward queries, as OATS does by its write-up (ours is no copy of it)."""
    encoder = encoder_of(asked.home, None, asked.threads)
    queries = encoder.embed(texts)
    tools = encoder.embed([tool_text(of) for of in pool.contracts.values()])
    learnt = np.random.default_rng(20).random(len(texts)) < 0.5
    sums = np.zeros_like(tools)
    np.add.at(sums, places[learnt], queries[learnt])
    sizes = np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), 1e-9)
    moved = tools + sums / sizes
    moved /= np.linalg.norm(moved, axis=1, keepdims=True)
    ranks = peers.dense(queries[~learnt], moved, _K)
    return _spread(_measured(ranks, places[~learnt]), ~learnt)


def _metatool_table(
    values: dict[str, dict[str, np.ndarray]], tested: np.ndarray, groups: Sequence[str]
) -> dict[str, Any]:
    rows: dict[str, Any] = {}
    for name, of in values.items():
        for part, keep in (("all tools", np.ones(len(tested), bool)), ("unlearnt tools", tested)):
            known = keep & ~np.isnan(of["NDCG@5"])
            if (name.endswith("after") and part == "all tools") or not known.any():
                continue
            drawn = [groups[at] for at in np.flatnonzero(known).tolist()]
            rows[f"{name} | {part}"] = {
                m: bootstrap(of[m][known].tolist(), drawn).as_dict() for m in of
            }
    drawn = [groups[at] for at in np.flatnonzero(tested).tolist()]
    gains = {
        f"{method}: {m}": paired(
            values[f"{method}, after"][m][tested].tolist(),
            values[f"{method}, before"][m][tested].tolist(),
            drawn,
        ).as_dict()
        for method in ("cosine", "ours")
        if f"{method}, after" in values
        for m in ("NDCG@5", "Recall@1")
    }
    return {"rows": rows, "gains": gains, "published": PUBLISHED,
            "trained": bool(gains)}  # fmt: skip


def _measured(ranks: peers.Ranks, gold: np.ndarray) -> dict[str, np.ndarray]:
    at = [row.index(of) if of in row else 999 for row, of in zip(ranks, gold.tolist(), strict=True)]
    places = np.array(at)
    gain = np.where(places < _K, 1 / np.log2(places + 2), 0.0)
    return {"NDCG@5": gain, "Recall@1": (places < 1).astype(float)}


def _spread(values: dict[str, np.ndarray], keep: np.ndarray) -> dict[str, np.ndarray]:
    """Values at the places that were measured, not-a-number elsewhere."""
    out = {name: np.full(len(keep), np.nan) for name in values}
    for name, of in values.items():
        out[name][keep] = of
    return out


def _metatool_pool() -> Pool:
    path = SHARED / "metatool" / "plugin_des.json"
    return plain_pool(json.loads(path.read_text(encoding="utf-8")))
