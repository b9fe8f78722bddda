"""One encoder against another on sets: cosine alone, and inside the router's sum."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from assets.vectors.encoders.minilm import MiniLM
from benchmarks.router_fit.rows import (
    FEATURES,
    MEASURES,
    Rows,
    collect_rows,
    open_index,
    read_signals,
)
from benchmarks.router_fit.sets import QuerySet
from benchmarks.shared_data import StoredEmbedder
from serving.index.model import load_built_in
from training.evaluation.metrics import MetricFigure, bootstrap_difference, bootstrap_mean

COSINE, FUSED = "cosine", "router"


@dataclass(frozen=True)
class Gain:
    """One set: what each encoder finds by cosine and by the router, and the paired differences."""

    name: str
    servers: int
    before: dict[str, list[MetricFigure]]  # way -> a figure each of MEASURES
    after: dict[str, list[MetricFigure]]
    gain: dict[str, list[MetricFigure]]  # paired, servers drawn whole


def measure_set(found: QuerySet, home: Path, encoder: MiniLM) -> dict[str, np.ndarray]:
    """Way -> measures [requests, 4] of the set's requests by one encoder."""
    kept = StoredEmbedder(encoder, home)
    index = open_index(found, home / "index" / kept.id.replace("/", "-"), kept)
    signals = read_signals(index, found.requests, kept)
    rows: Rows = collect_rows(index, found.requests, signals, FEATURES)
    weights = load_built_in(trained=True).weights
    ours = rows.measure(np.array([weights.get(name, 0.0) for name in FEATURES]))
    return {COSINE: rows.peers["dense"], FUSED: ours}


def compare_encoders(
    found: QuerySet, before: dict[str, np.ndarray], after: dict[str, np.ndarray]
) -> Gain:
    """The figures of both with 95% intervals over servers."""
    groups = [request.server for request in found.requests]

    def tell(of: dict[str, np.ndarray], way: str) -> list[MetricFigure]:
        return [bootstrap_mean(column.tolist(), groups) for column in of[way].T]

    gain = {
        way: [
            bootstrap_difference(new.tolist(), old.tolist(), groups)
            for new, old in zip(after[way].T, before[way].T, strict=True)
        ]
        for way in (COSINE, FUSED)
    }
    old, new = ({way: tell(of, way) for way in gain} for of in (before, after))
    return Gain(found.name, len(set(groups)), old, new, gain)


def tabulate_gains(title: str, way: str, gains: Sequence[Gain]) -> str:
    """A Markdown table: a set a line with recall before and after, and paired differences."""
    head = ["set", "n", "servers", "R@1 before", "after", "difference", "R@5 before", "after"]
    head += ["difference", "R@10 before", "after"]
    lines = [f"### {title}", "", _join(head), _join(["---"] * len(head))]
    for item in gains:
        old, new, gain = item.before[way], item.after[way], item.gain[way]
        cells = [item.name, str(gain[0].n), str(item.servers)]
        cells += [f"{old[0].value:.3f}", f"{new[0]}", f"{gain[0]:+}"]
        cells += [f"{old[1].value:.3f}", f"{new[1].value:.3f}", f"{gain[1]:+}"]
        lines.append(_join([*cells, f"{old[2].value:.3f}", f"{new[2].value:.3f}"]))
    means = [
        f"{name} {_average(gains, 'before', way, at):.3f} to"
        f" {_average(gains, 'after', way, at):.3f}"
        for at, name in enumerate(MEASURES)
    ]
    return "\n".join([*lines, "", f"Mean over {len(gains)} sets: {', '.join(means)}."])


def _average(gains: Sequence[Gain], side: str, way: str, at: int) -> float:
    return float(np.mean([getattr(gain, side)[way][at].value for gain in gains]))


def summarise_gains(gains: Sequence[Gain]) -> dict[str, Any]:
    """What a recipe file keeps: by set and way the number of requests, Recall@1 before and after
    and the paired difference with its interval."""
    return {
        gain.name: {
            "n": gain.gain[COSINE][0].n,
            "servers": gain.servers,
            **{
                way: {
                    "before": round(gain.before[way][0].value, 4),
                    "after": round(gain.after[way][0].value, 4),
                    "low": round(gain.gain[way][0].low, 4),
                    "high": round(gain.gain[way][0].high, 4),
                }
                for way in (COSINE, FUSED)
            },
        }
        for gain in gains
    }


def _join(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
