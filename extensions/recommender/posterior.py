"""What outcomes taught: a Gaussian over the weights of a logistic model, in independent blocks.

One block is shared by all tools, so that what it learns holds for a tool never seen; further ones
are of one server, one tool or one client's use of a tool, and start at what the shared block
expects. A block's own part fades with time towards that expectation, as an Ornstein-Uhlenbeck
process, and its uncertainty grows back.
"""

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
    """What is known of one server, tool or client and tool: mean [dims], covariance [dims, dims],
    when it was last touched (seconds), the outcomes that it saw (decayed), and how far the last of
    them went against what was expected: their sum and its variance."""

    mean: np.ndarray
    covariance: np.ndarray
    at: float = 0.0
    n: float = 0.0
    surprise: float = 0.0
    surprise_variance: float = 0.0


@dataclass(frozen=True)
class BlockLevel:
    """The blocks of one level; `variance` [dims] is what a block without outcomes has."""

    variance: np.ndarray
    blocks: dict[str, PosteriorBlock] = field(default_factory=dict)


@dataclass(frozen=True)
class SharedPosterior:
    """The shared block: mean [dims], covariance [dims, dims]."""

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

    @property
    def deviation(self) -> np.ndarray:
        """The standard deviation of the probability, to first order."""
        p = self.probability
        return p * (1 - p) * np.sqrt(self.variance)


def compute_probability(values: np.ndarray) -> np.ndarray:
    """Probabilities of log odds; those beyond 30 read as 30."""
    return 1 / (1 + np.exp(-np.clip(values, -30, 30)))


def relax_block(
    block: PosteriorBlock, level: BlockLevel, at: float, half_life_s: float
) -> PosteriorBlock:
    """The block as it stands at `at`: half of what it said is gone after `half_life_s`. A clock
    that went backwards changes nothing; a half-life of 0 means that nothing fades."""
    kept = _find_kept(block, at, half_life_s)
    return block if kept == 1 else keep_share(block, level, kept, at)


def keep_share(block: PosteriorBlock, level: BlockLevel, kept: float, at: float) -> PosteriorBlock:
    """The block with `kept` (0..1) of what it says; the rest is what a new block would say."""
    rest = np.diag(level.variance * (1 - kept * kept))
    return replace(
        block,
        mean=block.mean * kept,
        covariance=block.covariance * (kept * kept) + rest,
        at=max(at, block.at),
        n=block.n * kept,
    )


def expect_odds(
    shared: SharedPosterior,
    levels: Mapping[str, BlockLevel],
    features: np.ndarray,
    local: np.ndarray,
    keys: Mapping[str, list[str]],
    at: float,
    half_life_s: float,
) -> OddsBelief:
    """Log odds of rows with shared features [rows, shared dims] and the keys of their blocks by
    level; all rows are of one question, of which the blocks read the first of `local` [dims]."""
    mean = features @ shared.mean
    variance = _measure_variance(features, shared.covariance)
    for name, own in keys.items():
        level = levels[name]
        read = local[: len(level.variance)]
        fresh = float(level.variance @ np.square(read))
        variance += fresh
        known = [(row, level.blocks[key]) for row, key in enumerate(own) if key in level.blocks]
        if known:
            rows = [row for row, _ in known]
            blocks = [block for _, block in known]
            kept = np.array([_find_kept(block, at, half_life_s) for block in blocks])
            held = np.concatenate([block.covariance for block in blocks]) @ read
            held = held.reshape(len(blocks), len(read)) @ read
            mean[rows] += kept * (np.array([block.mean for block in blocks]) @ read)
            variance[rows] += kept * kept * (held - fresh)
    return OddsBelief(mean, np.maximum(variance, _LEAST))


def _find_kept(block: PosteriorBlock, at: float, half_life_s: float) -> float:
    """The share of what a block said that holds at `at`."""
    faded = half_life_s > 0 and at > block.at
    return 0.5 ** ((at - block.at) / half_life_s) if faded else 1.0


def _measure_variance(features: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """The variance of each row's sum, [rows]. A few rows at a time, for which BLAS takes no
    threads: those wait actively after each product, on the cores that the encoder needs next."""
    rows = max(1, _ALONE // covariance.size)
    parts = [features[at : at + rows] for at in range(0, len(features), rows)]
    return np.concatenate(
        [np.zeros(0), *(np.einsum("ij,ij->i", part @ covariance, part) for part in parts)]
    )


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
