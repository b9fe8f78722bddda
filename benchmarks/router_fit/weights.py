"""Fitting: a softmax over candidates for the order, a logistic for whether any of them is right.

Every set counts the same, however many rows it has: sizes differ fifty-fold, and a mean over rows
would fit the largest set's voice.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.router_fit.sets import FIT, choose_fitted
from serving.index.model import FusionWeights, RouterIndex
from serving.ranking.signals import QuerySignals, choose_candidates, weigh_evidence
from training.evaluation.metrics import bootstrap_mean

Array = np.ndarray
# The ridge is over weights as they are, so it draws those of words, whose scores spread a fifth to
# a fortieth as far as cosines, toward nothing first. Of .001 to .06, sets left out gained most with
# .01 to .02, over the base encoder's vectors (docs/benchmarks.md).
L2 = 1.5e-2
RIDGE = 1e-2  # of the logistic, on columns of unit spread
_STEPS = 30
_ENOUGH = 1e-6  # of the loss, gained by a step


@dataclass(frozen=True)
class Block:
    """Rows of one set whose right tool is among the candidates."""

    x: Array  # float32 [rows, most, features]
    held: Array  # bool [rows, most]
    right: Array  # bool [rows, most]


def fit_ranking(blocks: Sequence[Block]) -> Array:
    """Weights [features] under which the right candidates get the most of a softmax, each block
    with the same say: Newton's method with halved steps. Raises ValueError without a row."""
    used = [_drop_unanswered(block) for block in blocks]
    used = [block for block in used if len(block.x)]
    if not used:
        raise ValueError("no row holds a right candidate; expected at least one to fit on")
    weights = np.zeros(used[0].x.shape[-1])
    loss, slope, bend = _measure_loss(used, weights)
    for _ in range(_STEPS):
        step, size = np.linalg.solve(bend + 1e-6 * np.eye(len(weights)), slope), 1.0
        while True:
            new = _measure_loss(used, weights - size * step)
            if new[0] <= loss:
                break
            size /= 2
            if size < 1e-3:
                return weights
        gained, weights = loss - new[0], weights - size * step
        loss, slope, bend = new
        if gained < _ENOUGH:
            break
    return weights


def _drop_unanswered(block: Block) -> Block:
    use = block.right.any(1)
    return Block(block.x[use], block.held[use], block.right[use])


def _measure_loss(blocks: Sequence[Block], weights: Array) -> tuple[float, Array, Array]:
    """Loss, slope and curvature; each block counts by the mean of its rows."""
    size = len(weights)
    loss, slope, bend = 0.5 * L2 * float(weights @ weights), L2 * weights, L2 * np.eye(size)
    for block in blocks:
        part = 1 / (len(blocks) * len(block.x))
        scores = np.where(block.held, block.x @ weights.astype(np.float32), -1e9)
        share = np.exp(scores.astype(np.float64) - scores.max(1, keepdims=True))
        of_right = np.where(block.right, share + 1e-30, 0.0)
        total, good = share.sum(1, keepdims=True), of_right.sum(1, keepdims=True)
        loss += part * float((np.log(total) - np.log(good)).sum())
        share = (share / total).astype(np.float32)
        flat = block.x.reshape(-1, size)
        slope = slope + part * ((share - of_right / good).reshape(-1) @ flat)
        mean = np.einsum("ij,ijk->ik", share, block.x)
        bend = bend + part * ((flat * share.reshape(-1, 1)).T @ flat - mean.T @ mean)
    return loss, slope, bend


def fit_logistic(x: Array, y: Array, say: Array) -> tuple[Array, float]:
    """Weights and bias of a logistic regression whose rows count by `say`."""
    say = say / say.sum()
    mean = say @ x
    spread = np.sqrt(say @ (x - mean) ** 2) + 1e-6
    z = np.concatenate([(x - mean) / spread, np.ones((len(x), 1))], 1)
    weights, ridges = np.zeros(z.shape[1]), np.r_[np.full(x.shape[1], RIDGE), 0.0]
    for _ in range(_STEPS):
        p = 1 / (1 + np.exp(-np.clip(z @ weights, -30, 30)))
        slope = z.T @ (say * (p - y)) + ridges * weights
        bend = (z * (say * p * (1 - p))[:, None]).T @ z + np.diag(ridges + 1e-9)
        weights = weights - np.linalg.solve(bend, slope)
    return weights[:-1] / spread, float(weights[-1] - (weights[:-1] * mean / spread).sum())


KEEP = 0.95  # share of answerable requests that the threshold must not refuse
_BINS = 10
ArraySuitability = np.ndarray


@dataclass(frozen=True)
class Evidence:
    """Evidence with the right tools in the pool and without: x [2, requests, names]."""

    x: ArraySuitability
    sides: tuple[str, ...]
    servers: tuple[str, ...]

    def select(self, side: str) -> "Evidence":
        use = np.array([item == side for item in self.sides], bool)
        servers = tuple(s for s, kept in zip(self.servers, use, strict=True) if kept)
        return Evidence(self.x[:, use], (side,) * len(servers), servers)


@dataclass(frozen=True)
class Suitability:
    """Weights of `EVIDENCE`, and the least probability that is no refusal."""

    weights: ArraySuitability
    bias: float
    threshold: float

    def predict(self, x: ArraySuitability) -> ArraySuitability:
        """Probabilities, as many as rows of evidence [..., names]."""
        return 1 / (1 + np.exp(-np.clip(x @ self.weights + self.bias, -30, 30)))


def collect_evidence(
    index: RouterIndex,
    signals: Sequence[QuerySignals],
    golds: Sequence[frozenset[int]],
    fusion: FusionWeights,
) -> ArraySuitability:
    """[2, requests, names]; without a server left there is no evidence, as for an empty pool."""
    out = np.zeros((2, len(signals), len(EVIDENCE)))
    for row, (one, gold) in enumerate(zip(signals, golds, strict=True)):
        owners = np.unique(index.server_of[np.isin(index.twins, list(gold))])
        for at, mask in enumerate((None, ~np.isin(index.server_of, owners))):
            if mask is None or mask.any():
                candidates = choose_candidates(one, mask)
                weighed = weigh_evidence(candidates, fusion.score(candidates.features))
                out[at, row] = [weighed[name] for name in EVIDENCE]
    return out


EVIDENCE = (
    "most full", "most coverage", "coverage of best", "name of best", "best", "lead", "lead of ten",
)  # fmt: skip


def fit_suitability(sets: Mapping[str, Evidence], left_out: str | None) -> Suitability:
    """The logistic over the fit sides of the other sets, each with the same say, and the threshold
    that keeps 95% of their answerable requests, sets weighed alike."""
    parts = [sets[name].select(FIT) for name in choose_fitted(sets, left_out)]
    parts = [part for part in parts if part.servers]
    x = np.concatenate([part.x.reshape(-1, len(EVIDENCE)) for part in parts])
    y = np.concatenate([np.repeat([1.0, 0.0], len(part.servers)) for part in parts])
    say = np.concatenate([np.full(2 * len(p.servers), 1 / len(p.servers)) for p in parts])
    weights, bias = fit_logistic(x, y, say)
    chances = Suitability(weights, bias, 0.0).predict(x[y > 0])
    return Suitability(weights, bias, find_quantile(chances, say[y > 0], 1 - KEEP))


def find_quantile(values: ArraySuitability, say: ArraySuitability, share: float) -> float:
    """The value below which this share of the weight lies."""
    order = np.argsort(values)
    reached = np.cumsum(say[order]) / say.sum()
    return float(values[order[min(int(np.searchsorted(reached, share)), len(order) - 1)]])


def measure_suitability(found: Suitability, held: Evidence) -> dict[str, Any]:
    """AUROC, calibration error and refusals of one set by weights that did not see it."""
    with_tool, without = found.predict(held.x)
    p, y = np.r_[with_tool, without], np.repeat([1.0, 0.0], len(with_tool))
    refused = [
        bootstrap_mean((of < found.threshold).astype(float).tolist(), held.servers)
        for of in (with_tool, without)
    ]
    return {
        "n": len(with_tool),
        "auroc": round(measure_auroc(p, y), 3),
        "calibration_error": round(measure_calibration(p, y), 3),
        "answerable_refused": f"{refused[0]}",
        "unanswerable_refused": f"{refused[1]}",
    }


def measure_auroc(score: ArraySuitability, y: ArraySuitability) -> float:
    """How often a positive scores above a negative; a tie is half."""
    order = np.unique(score, return_inverse=True)[1]
    counts = np.bincount(order)
    rank = (np.cumsum(counts) - (counts - 1) / 2)[order]
    high = float(y.sum())
    return float((rank[y > 0].sum() - high * (high + 1) / 2) / (high * (len(y) - high)))


def measure_calibration(p: ArraySuitability, y: ArraySuitability) -> float:
    """Expected calibration error over ten bins of equal size."""
    parts = np.array_split(np.argsort(p), _BINS)
    return float(
        sum(len(at) / len(p) * abs(p[at].mean() - y[at].mean()) for at in parts if len(at))
    )
