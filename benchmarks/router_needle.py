"""A needle among tools: pools of every size, held-out instructions, same-name twins kept in.

A pool holds some tools of the corpus (the needles), every tool that shares a needle's name, and
random others. Where the needle stands cannot matter to an index that orders its tools: each pool
is given in several orders of insertion (`--positions`), and the versions, which are digests of all
that is indexed, must be equal. Queries are never a tool's own description.
"""

import argparse
import random
import re
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from assets.vectors.texts import server_views
from benchmarks.router_data import Pool, Query, hit_at, mcp_tools, queries, smithery
from benchmarks.router_index import encoder_of, source_of
from benchmarks.router_tokens import Counter
from benchmarks.router_vectors import Kept
from serving.index.build import content_of, version_of
from serving.index.folder import build_index, load_index
from serving.router import Ask, Router
from training.evaluation.metrics import bootstrap

_NEEDLES = 40  # of one pool, or of a seed's pools where one is too small
_POOLS = 10  # of one size and seed at most
_SHOWN = (1, 5, 20)  # hits put into the context
_DEEP = 200
_RECALLS = (0.8, 0.9)
_NO_MORE = 2000  # pools above this many tools are checked in two orders, not in all


@dataclass(frozen=True)
class Cell:
    """One pool and what was asked of it."""

    size: int
    ids: list[str]
    needles: list[Query]


def needle(asked: argparse.Namespace) -> dict[str, Any]:
    """Both haystacks, each size: {accuracy, recall at k, tokens, ms}."""
    own = _summarised(smithery())
    said = queries(own)
    zero = _summarised(mcp_tools())
    both = Pool(
        {**zero.contracts, **own.contracts}, {**zero.digests, **own.digests},
        {**zero.listed, **own.listed}, {**zero.servers, **own.servers},
    )  # fmt: skip
    return {
        "smithery": _grid(asked, own, own.ids, said),
        "mcp-tools": _grid(asked, both, zero.ids, said),
    }


def sizes_of(most: int, count: int) -> list[int]:
    """Log-spaced pool sizes from 1 to all."""
    return sorted({round(size) for size in np.geomspace(1, most, count)})


def _grid(
    asked: argparse.Namespace, pool: Pool, hay: Sequence[str], said: Sequence[Query]
) -> dict[str, Any]:
    encoder = encoder_of(asked.home, None, asked.threads)
    tokens = _token_counts(pool)
    by_name: dict[str, list[str]] = defaultdict(list)
    for name in pool.ids:
        by_name[_plain(name)].append(name)
    rows = []
    for size in sizes_of(len(hay), asked.sizes):
        found: list[dict[str, Any]] = []
        for seed in range(asked.seeds):
            rng = random.Random(f"{seed}|{size}")
            for _ in range(_POOLS):
                cell = _cell(size, hay, said, by_name, rng)
                found += _asked_of(cell, pool, encoder, tokens, asked.positions, rng)
                if len(found) >= _NEEDLES * (seed + 1):
                    break
        rows.append(_row(size, found))
        print(f"needle: {rows[-1]}", file=sys.stderr, flush=True)
    return {"rows": rows, "needles": "held-out corpus instructions", "hay": len(hay)}


def _cell(
    size: int,
    hay: Sequence[str],
    said: Sequence[Query],
    by_name: dict[str, list[str]],
    rng: random.Random,
) -> Cell:
    """Needles with their same-name twins first, then random tools up to the size."""
    ids: dict[str, None] = {}
    needles = []
    for query in rng.sample(said, len(said)):
        if len(needles) == _NEEDLES or len(ids) >= size:
            break
        if query.tool_id not in ids:
            needles.append(query)
            ids[query.tool_id] = None
            twins = [name for name in by_name[_plain(query.tool_id)] if name != query.tool_id]
            ids.update(dict.fromkeys(rng.sample(twins, min(len(twins), size // _NEEDLES + 1))))
    for name in rng.sample(hay, len(hay)):
        if len(ids) >= size:
            break
        ids[name] = None
    kept = list(ids)[:size]
    held = set(kept)
    return Cell(size, kept, [query for query in needles if query.tool_id in held])


def _asked_of(
    cell: Cell,
    pool: Pool,
    encoder: Kept,
    tokens: dict[str, int],
    positions: int,
    rng: random.Random,
) -> list[dict[str, Any]]:
    orders = positions if cell.size <= _NO_MORE else 2
    shuffled = [rng.sample(cell.ids, len(cell.ids)) for _ in range(orders)]
    versions = {
        version_of(content_of(source_of(pool, ids)), encoder.id, "-", None) for ids in shuffled
    }
    if len(versions) != 1:
        raise AssertionError(f"{cell.size} tools: {len(versions)} versions by order of insertion")
    with TemporaryDirectory() as folder:
        place = Path(folder)
        version = build_index(place, source_of(pool, cell.ids), encoder.embed, embedder=encoder.id)
        router = Router(load_index(place, version), encoder)
        encoder.embed([query.text for query in cell.needles])
        return [_one(router, query, pool, tokens, cell) for query in cell.needles]


def _one(
    router: Router, query: Query, pool: Pool, tokens: dict[str, int], cell: Cell
) -> dict[str, Any]:
    began = time.perf_counter()
    router.find(Ask(query=query.text))
    took = (time.perf_counter() - began) * 1000
    hits = [hit.tool_id for hit in router.find(Ask(query=query.text, k=_DEEP)).hits]
    return {
        "at": hit_at(hits, query.tool_id, pool.twins),
        "ms": took,
        "group": query.server,
        "injected": [sum(tokens[name] for name in hits[:k]) for k in range(1, _DEEP + 1)],
        "whole": sum(tokens[name] for name in cell.ids),
    }


def _row(size: int, found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    groups = [one["group"] for one in found]
    at = np.array([one["at"] for one in found])
    injected = np.array([one["injected"] for one in found], float)
    whole = float(np.mean([one["whole"] for one in found]))
    row: dict[str, Any] = {"pool": size, "n": len(found), "whole_pool_tokens": round(whole)}
    for k in _SHOWN:
        spent = float(injected[:, k - 1].mean())
        row[f"recall@{k}"] = bootstrap((at < k).astype(float).tolist(), groups).as_dict()
        row[f"tokens@{k}"] = round(spent)
        row[f"saved@{k}"] = round(1 - spent / whole, 4) if whole else 0.0
    for recall in _RECALLS:
        enough = [k for k in range(1, _DEEP + 1) if float((at < k).mean()) >= recall]
        row[f"hits_for_{recall}"] = enough[0] if enough else None
        spent = float(injected[:, enough[0] - 1].mean()) if enough else None
        row[f"saved_at_{recall}"] = None if spent is None else round(1 - spent / whole, 4)
    row["ms"] = round(float(np.median([one["ms"] for one in found])), 2)
    return row


def _summarised(pool: Pool) -> Pool:
    """The pool with each server's summary of all its tools, also where a cell holds but some: a
    server says the same whoever asks, and nothing is embedded anew for a cell."""
    held: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for name, contract in pool.contracts.items():
        held[name.rpartition("::")[0]].append(contract)
    told = {
        name: {**of, "summary": server_views(contracts=held[name], **of)["summary"]}
        for name, of in pool.servers.items()
    }
    return replace(pool, servers=told)


def _token_counts(pool: Pool) -> dict[str, int]:
    counter = Counter()
    return {name: counter.injected(contract) for name, contract in pool.contracts.items()}


def _plain(tool_id: str) -> str:
    return re.sub(r"[^a-z0-9]", "", tool_id.rpartition("::")[2].lower())
