"""Tests of two samples by permutation: vectors by MMD, shares of clusters by their difference.

Pure NumPy with a fixed seed: the same samples give the same p-value in every run.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb

import numpy as np

_Z = 1.959964  # 95%


@dataclass(frozen=True)
class Difference:
    """A statistic with its p-value and, where it has one, its 95% interval."""

    value: float
    p_value: float
    low: float | None = None
    high: float | None = None


def measure_mmd(
    before: np.ndarray, after: np.ndarray, permutations: int = 500, seed: int = 0
) -> Difference:
    """The unbiased squared maximum mean discrepancy of two samples of vectors, [n, dim] and
    [m, dim], under a Gaussian kernel as wide as their median distance (Gretton et al. 2012,
    JMLR 13), and the share of relabelled samples that differ as much.

    Takes a millisecond a permutation at n = m = 500. Raises ValueError below two vectors a side.
    """
    n, m = len(before), len(after)
    if min(n, m) < 2:
        raise ValueError(f"MMD of {n} and {m} vectors: each side needs two")
    kernel = _compute_kernel(np.concatenate([before, after]))
    rng = np.random.default_rng(seed)
    labels = np.zeros((permutations + 1, n + m))
    labels[:, :n] = 1.0
    labels[1:] = rng.permuted(labels[1:], axis=1)  # the first row are the samples as they are
    within = labels @ kernel
    one = np.einsum("ij,ij->i", within, labels)
    cross = within.sum(axis=1) - one
    other = kernel.sum() - one - 2 * cross
    found = one / (n * (n - 1)) + other / (m * (m - 1)) - 2 * cross / (n * m)
    return Difference(float(found[0]), _compute_p_value(found[1:], found[0]))


def compare_shares(
    before: Sequence[tuple[int, int]],
    after: Sequence[tuple[int, int]],
    permutations: int = 500,
    seed: int = 0,
) -> Difference:
    """The share after less the share before, of clusters as (hits, n): what one server's pairs came
    to is no evidence of many. p by relabelling whole clusters, two-sided; the interval is that of a
    ratio of sums over clusters. Raises ValueError where a side holds nothing."""
    counts = np.array([*before, *after], dtype=float).reshape(-1, 2)
    first = len(before)
    if not counts[:first, 1].sum() or not counts[first:, 1].sum():
        raise ValueError("shares of nothing: each side needs a cluster that holds something")
    labels = np.zeros((permutations + 1, len(counts)), dtype=bool)
    labels[:, :first] = True
    labels[1:] = np.random.default_rng(seed).permuted(labels[1:], axis=1)
    sums, total = labels @ counts, counts.sum(axis=0)
    rest = total - sums
    whole = (sums[:, 1] > 0) & (rest[:, 1] > 0)
    with np.errstate(invalid="ignore", divide="ignore"):
        found = np.where(whole, rest[:, 0] / rest[:, 1] - sums[:, 0] / sums[:, 1], 0.0)
    value = float(found[0])
    variance = sum(_estimate_variance(side) for side in (counts[:first], counts[first:]))
    spread = _Z * float(np.sqrt(variance))
    p = _compute_p_value(np.abs(found[1:]), abs(value))
    return Difference(value, p, max(-1.0, value - spread), min(1.0, value + spread))


def compare_hits(before: Sequence[bool], after: Sequence[bool]) -> Difference:
    """The share of items that were hit before and are not now, less those that are hit anew. p:
    exact McNemar, one-sided (that more are lost than found). Raises ValueError without items."""
    if not before or len(before) != len(after):
        raise ValueError(f"{len(before)} items before and {len(after)} after: expected the same")
    moves = np.array(before, dtype=int) - np.array(after, dtype=int)
    n, lost, won = len(moves), int((moves > 0).sum()), int((moves < 0).sum())
    value = (lost - won) / n
    both = lost + won
    p = sum(comb(both, k) for k in range(lost, both + 1)) / 2**both if both else 1.0
    spread = _Z * float(np.sqrt(max(both / n - value * value, 0.0) / n))
    return Difference(value, p, max(-1.0, value - spread), min(1.0, value + spread))


def _compute_kernel(vectors: np.ndarray) -> np.ndarray:
    """[n, n] with an empty diagonal: a vector beside itself says nothing of its sample."""
    squares = np.einsum("ij,ij->i", vectors, vectors)
    apart = np.maximum(squares[:, None] + squares[None, :] - 2 * vectors @ vectors.T, 0.0)
    pairs = apart[np.triu_indices(len(vectors), 1)]
    width = float(np.median(pairs)) or 1.0
    kernel = np.exp(-apart / width)
    np.fill_diagonal(kernel, 0.0)
    return kernel


def _compute_p_value(drawn: np.ndarray, found: float) -> float:
    """The share of draws that reach what was found, which counts as one of them (Phipson and Smyth
    2010): never 0."""
    return float((1 + int((drawn >= found - 1e-12).sum())) / (1 + len(drawn)))


def _estimate_variance(counts: np.ndarray) -> float:
    """The variance of hits / n over clusters; 0 for one cluster, which says nothing of it."""
    clusters, total = len(counts), counts[:, 1].sum()
    if clusters < 2:
        return 0.0
    apart = counts[:, 0] - counts[:, 0].sum() / total * counts[:, 1]
    return float(clusters / (clusters - 1) * (apart**2).sum() / total**2)
