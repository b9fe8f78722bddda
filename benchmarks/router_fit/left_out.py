"""Leaving whole sets out: weights that saw neither a set nor its family, measured on it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.router_fit.rows import MEASURES, Rows
from benchmarks.router_fit.sets import FIT, choose_fitted
from benchmarks.router_fit.weights import Block, fit_ranking
from training.evaluation.metrics import MetricFigure, bootstrap_difference, bootstrap_mean

SIMPLE = ("dense", "bm25", "rrf")  # what ours is held against: the best of them on each set
ALLOWED = -0.03  # how far below the best of them the interval of the difference may reach
Array = np.ndarray


@dataclass(frozen=True)
class Line:
    """One set that was left out: each strategy's means, and ours less the best simple one."""

    name: str
    best: str
    means: dict[str, dict[str, float]]  # strategy -> measure -> mean
    first: MetricFigure  # Recall@1 of ours, servers drawn whole
    gain: MetricFigure  # of Recall@1, paired
    servers: int


def fit_without(sets: Mapping[str, Rows], left_out: str | None) -> Array:
    """Weights fitted on the fit sides of the sets that `choose_fitted` allows."""
    return fit_ranking([make_block(sets[name]) for name in choose_fitted(sets, left_out)])


def make_block(rows: Rows) -> Block:
    """The fit side of a set."""
    use = rows.select(np.array([request.side == FIT for request in rows.requests]))
    return Block(use.x, use.held, use.right)


def compare(name: str, rows: Rows, ours: Array) -> Line:
    """Figures of every strategy on these rows; `ours` are our measures [requests, 4]."""
    groups = [request.server for request in rows.requests]
    means = {
        strategy: dict(zip(MEASURES, values.mean(0).tolist(), strict=True))
        for strategy, values in {**rows.peers, "ours": ours}.items()
    }
    best = max(SIMPLE, key=lambda strategy: means[strategy][MEASURES[0]])
    first = bootstrap_mean(ours[:, 0].tolist(), groups)
    gain = bootstrap_difference(ours[:, 0].tolist(), rows.peers[best][:, 0].tolist(), groups)
    return Line(name, best, means, first, gain, len(set(groups)))


def fit_apart(sets: Mapping[str, Rows]) -> dict[str, Array]:
    """Each set's weights, fitted without it and its family; one fit a family."""
    found: dict[str, Array] = {}
    for name in sets:
        family = name.partition("-")[0]
        if family not in found:
            found[family] = fit_without(sets, name)
    return {name: found[name.partition("-")[0]] for name in sets}


def compare_sets(
    sets: Mapping[str, Rows], weights: Mapping[str, Array], side: str = FIT
) -> list[Line]:
    """One line a set by its own weights; sets without a request on `side` have none."""
    lines = []
    for name, rows in sets.items():
        use = rows.select(np.array([request.side == side for request in rows.requests], bool))
        if use.requests:
            lines.append(compare(name, use, use.measure(weights[name])))
    return lines


def average_gain(lines: Sequence[Line]) -> float:
    """Mean over sets of ours less the best simple strategy, Recall@1."""
    return float(np.mean([line.gain.value for line in lines]))


def list_behind(lines: Sequence[Line]) -> list[str]:
    """Sets whose interval of the difference reaches below what is allowed."""
    return [line.name for line in lines if line.gain.low < ALLOWED]
