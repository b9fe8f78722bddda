"""Fitting: a softmax over candidates for the order, a logistic for whether any of them is right.

Every set counts the same, however many rows it has: sizes differ fifty-fold, and a mean over rows
would fit the largest set's voice.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

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
