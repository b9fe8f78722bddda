"""A Gaussian over the weights of a logistic model, in independent blocks: one shared by all tools,
and those of a server, a tool or a client's use of a tool, which start at what it expects."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from serving.index.model import compute_products

_NODES, _NODE_WEIGHTS = np.polynomial.hermite_e.hermegauss(20)
_NODE_WEIGHTS = _NODE_WEIGHTS / _NODE_WEIGHTS.sum()
_LEAST = 1e-9  # of a variance
_ALONE = 250_000  # multiplications up to which OpenBLAS takes one thread


@dataclass(frozen=True)
class PosteriorBlock:
    """Of a server, tool or client: mean [dims], covariance [dims, dims], number of outcomes, and
    the sum and variance of how far the last ones went against what was expected."""

    mean: np.ndarray
    covariance: np.ndarray
    n: float = 0.0
    surprise: float = 0.0
    surprise_variance: float = 0.0


@dataclass(frozen=True)
class BlockLevel:
    """The blocks of one level; `variance` [dims] is what a block without outcomes has."""

    variance: np.ndarray
    blocks: dict[str, PosteriorBlock] = field(default_factory=dict)

    def get_block(self, key: str) -> PosteriorBlock:
        fresh = np.zeros(len(self.variance)), np.diag(self.variance)
        return self.blocks.get(key) or PosteriorBlock(*fresh)


@dataclass(frozen=True)
class SharedPosterior:
    mean: np.ndarray
    covariance: np.ndarray


@dataclass(frozen=True)
class OddsBelief:
    """Mean and variance of log odds, float64 [rows] each."""

    mean: np.ndarray
    variance: np.ndarray

    @property
    def probability(self) -> np.ndarray:
        """The expected probability (MacKay's approximation, within .02 of the integral)."""
        return compute_probability(self.mean / np.sqrt(1 + math.pi / 8 * self.variance))


def compute_probability(values: np.ndarray) -> np.ndarray:
    """Probabilities of log odds; those beyond 30 read as 30."""
    return 1 / (1 + np.exp(-np.clip(values, -30, 30)))


def keep_share(block: PosteriorBlock, level: BlockLevel, share: float) -> PosteriorBlock:
    """The block with a share (0..1) of what it says, else as a new block."""
    fresh = np.diag(level.variance * (1 - share * share))
    covariance = block.covariance * (share * share) + fresh
    return replace(block, mean=block.mean * share, covariance=covariance, n=block.n * share)


def expect_odds(
    shared: SharedPosterior,
    levels: Mapping[str, BlockLevel],
    features: np.ndarray,
    local: np.ndarray,
    keys: Mapping[str, list[str]],
) -> OddsBelief:
    """Log odds of rows with shared features [rows, shared dims] and the keys of their blocks by
    level; all rows are of one question, of which the blocks read the first of `local` [dims]."""
    mean = features @ shared.mean
    # A few rows at a time, for which BLAS takes no threads: those wait actively after each product,
    # on the cores that the encoder needs next.
    rows = max(1, _ALONE // shared.covariance.size)
    parts = [features[at : at + rows] for at in range(0, len(features), rows)]
    variance = np.concatenate(
        [np.zeros(0), *(np.einsum("ij,ij->i", part @ shared.covariance, part) for part in parts)]
    )
    for name, block_keys in keys.items():
        level = levels[name]
        read = local[: len(level.variance)]
        fresh = float(level.variance @ np.square(read))
        variance += fresh
        rows = [row for row, key in enumerate(block_keys) if key in level.blocks]
        if rows:
            blocks = [level.blocks[block_keys[row]] for row in rows]
            learnt = np.concatenate([block.covariance for block in blocks]) @ read
            learnt = learnt.reshape(len(blocks), len(read)) @ read
            mean[rows] += np.array([block.mean for block in blocks]) @ read
            variance[rows] += learnt - fresh
    return OddsBelief(mean, np.maximum(variance, _LEAST))


def match_moments(mean: float, variance: float, success: bool, weight: float) -> tuple:
    """(mean, variance) of log odds N(mean, variance) after an outcome that counts `weight`."""
    points = mean + math.sqrt(variance) * _NODES
    likelihood = compute_probability(points if success else -points) ** weight * _NODE_WEIGHTS
    likelihood /= likelihood.sum()
    after = float(likelihood @ points)
    return after, max(float(likelihood @ np.square(points - after)), _LEAST)


def move_gaussian(
    mean: np.ndarray, covariance: np.ndarray, read: np.ndarray, before: tuple, after: tuple
) -> tuple[np.ndarray, np.ndarray]:
    """The Gaussian of weights after the log odds that they add to by `read` [dims] moved from one
    (mean, variance) to another: what one Kalman step is."""
    gain = compute_products(covariance, read) / before[1]
    moved = mean + gain * (after[0] - before[0])
    return moved, covariance - np.outer(gain, gain) * (before[1] - after[1])
