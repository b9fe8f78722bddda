"""Recall, NDCG and MRR of every method on the corpus's queries, by slice, with intervals.

A hit is the gold tool or a twin of it (`router_data.Pool.twins`). The corpus holds one tool a
server, so a tool with all its queries, or a server, is what the bootstrap draws whole.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.router_data import SLICES, Pool, Query, hit_at, queries, smithery
from benchmarks.router_methods import BASELINES, OURS, TRAINED, K, run_methods
from training.evaluation.metrics import RESAMPLES, Figure, bootstrap, paired

MEASURES = ("Recall@1", "Recall@5", "Recall@10", "NDCG@10", "MRR@10")


@dataclass(frozen=True)
class Part:
    """Some of the queries: one slice on all servers, or on the servers never trained on."""

    servers: str  # all | test
    kind: str
    places: list[int]

    def __str__(self) -> str:
        return f"{self.kind}, {self.servers} servers"


def quality(asked: argparse.Namespace) -> dict[str, Any]:
    """{notes, parts: {part: {n, methods: {method: {measure: figure}}, gains: …}}}."""
    pool = smithery()
    held_out = queries(pool)
    answers = run_methods(asked, pool, held_out)
    values = {name: measured(pool, held_out, found) for name, found in answers.found.items()}
    groups = [query.server for query in held_out]
    parts = {str(part): _part(part, values, groups) for part in parts_of(held_out)}
    return {
        "tools": len(pool.ids),
        "queries": len(held_out),
        "notes": answers.notes,
        "parts": parts,
    }


def parts_of(held_out: Sequence[Query]) -> list[Part]:
    return [
        Part(servers, kind, [
            at for at, query in enumerate(held_out)
            if query.within(kind) and (servers == "all" or query.tested)
        ])
        for servers in ("all", "test")
        for kind in SLICES
    ]  # fmt: skip


def measured(
    pool: Pool, held_out: Sequence[Query], found: Sequence[Sequence[str]]
) -> dict[str, np.ndarray]:
    """Measure -> its value for each query."""
    at = np.array(
        [hit_at(row[:K], q.tool_id, pool.twins) for row, q in zip(found, held_out, strict=True)]
    )
    gain = np.where(at < K, 1 / np.log2(at + 2), 0.0)
    back = np.where(at < K, 1 / (at + 1), 0.0)
    recalls = {f"Recall@{k}": (at < k).astype(float) for k in (1, 5, 10)}
    return {**recalls, "NDCG@10": gain, "MRR@10": back}


def _part(
    part: Part, values: dict[str, dict[str, np.ndarray]], groups: Sequence[str]
) -> dict[str, Any]:
    drawn = [groups[at] for at in part.places]
    methods = {
        name: {m: bootstrap(of[m][part.places].tolist(), drawn).as_dict() for m in MEASURES}
        for name, of in values.items()
    }
    ours = [name for name in values if name == OURS or name.startswith(TRAINED)]
    peers = [name for name in BASELINES if name in values]
    best = max(peers, key=lambda name: methods[name]["Recall@1"]["value"])
    gains = {name: _gain(values[name], values[best], part.places, drawn) for name in ours}
    trained = {
        name: _gain(values[name], values[OURS], part.places, drawn) for name in ours if name != OURS
    }
    return {"n": len(part.places), "servers": len(set(drawn)), "methods": methods,
            "best_baseline": best, "gains": gains, "gains_by_training": trained}  # fmt: skip


def _gain(
    ours: dict[str, np.ndarray], best: dict[str, np.ndarray], places: list[int], groups: list[str]
) -> dict[str, Any]:
    """Paired gains over the baseline that did best here, and the ratio of Recall@1."""
    gains = {
        m: paired(ours[m][places].tolist(), best[m][places].tolist(), groups).as_dict()
        for m in MEASURES
    }
    ratio_of = ratio(ours["Recall@1"][places], best["Recall@1"][places], groups)
    return {**gains, "ratio": ratio_of.as_dict()}


def ratio(ours: np.ndarray, best: np.ndarray, groups: Sequence[str]) -> Figure:
    """The ratio of two means with its interval, whole groups resampled."""
    names = {name: at for at, name in enumerate(dict.fromkeys(groups))}
    place = np.array([names[group] for group in groups])
    a, b = (np.bincount(place, weights=of, minlength=len(names)) for of in (ours, best))
    draws = np.random.default_rng(0).integers(0, len(names), (RESAMPLES, len(names)))
    drawn = a[draws].sum(axis=1) / np.maximum(b[draws].sum(axis=1), 1)
    low, high = np.quantile(drawn, [0.025, 0.975])
    value = float(ours.sum() / max(best.sum(), 1))
    return Figure(round(value, 3), round(float(low), 3), round(float(high), 3), len(ours))
