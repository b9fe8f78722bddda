"""How likely a pool holds a suitable tool: fitted with the right tools' servers taken out.

Each request is asked twice: of the whole pool, and of the pool without every server that has a
right tool or a twin of one. Labels are as good as the sets': where a tool of another server would
have done as well, the second row is wrongly called unanswerable.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.router_fit.sets import FIT, choose_fitted
from benchmarks.router_fit.weights import fit_logistic
from serving.index.model import FusionWeights, RouterIndex
from serving.ranking.signals import QuerySignals, choose_candidates, weigh_evidence
from training.evaluation.metrics import bootstrap_mean

KEEP = 0.95  # share of answerable requests that the threshold must not refuse
_BINS = 10
Array = np.ndarray


@dataclass(frozen=True)
class Evidence:
    """Evidence with the right tools in the pool and without: x [2, requests, names]."""

    x: Array
    sides: tuple[str, ...]
    servers: tuple[str, ...]

    def select(self, side: str) -> "Evidence":
        use = np.array([item == side for item in self.sides], bool)
        servers = tuple(s for s, kept in zip(self.servers, use, strict=True) if kept)
        return Evidence(self.x[:, use], (side,) * len(servers), servers)


@dataclass(frozen=True)
class Suitability:
    """Weights of `EVIDENCE`, and the least probability that is no refusal."""

    weights: Array
    bias: float
    threshold: float

    def predict(self, x: Array) -> Array:
        """Probabilities, as many as rows of evidence [..., names]."""
        return 1 / (1 + np.exp(-np.clip(x @ self.weights + self.bias, -30, 30)))


def collect_evidence(
    index: RouterIndex,
    signals: Sequence[QuerySignals],
    golds: Sequence[frozenset[int]],
    fusion: FusionWeights,
) -> Array:
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


def find_quantile(values: Array, say: Array, share: float) -> float:
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


def measure_auroc(score: Array, y: Array) -> float:
    """How often a positive scores above a negative; a tie is half."""
    order = np.unique(score, return_inverse=True)[1]
    counts = np.bincount(order)
    rank = (np.cumsum(counts) - (counts - 1) / 2)[order]
    high = float(y.sum())
    return float((rank[y > 0].sum() - high * (high + 1) / 2) / (high * (len(y) - high)))


def measure_calibration(p: Array, y: Array) -> float:
    """Expected calibration error over ten bins of equal size."""
    parts = np.array_split(np.argsort(p), _BINS)
    return float(
        sum(len(at) / len(p) * abs(p[at].mean() - y[at].mean()) for at in parts if len(at))
    )
