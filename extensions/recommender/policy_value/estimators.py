"""Off-policy estimators: the mean reward of one policy from actions that another one drew.

Dudik, Langford, Li: Doubly robust policy evaluation and learning (2011); Swaminathan, Joachims:
The self-normalised estimator for counterfactual learning (2015). Intervals are of the linearised
estimate, robust to clusters; they are too narrow where the effective n is small, so it is told.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from warehouse.statistics import wilson_interval

_Z = 1.959964  # 95%
_TINY = 1e-12


@dataclass(frozen=True)
class Estimate:
    """A mean reward with its 95% interval. effective_n: how many rows drawn by the policy itself
    would tell as much (Kish), of the weights alone."""

    value: float
    low: float
    high: float
    n: int
    effective_n: float


@dataclass(frozen=True)
class Logged:
    """What was drawn, each [rows]. rewards; propensities: of what was drawn, above 0; wanted: the
    probability with which the policy to be estimated draws it; groups: rows of one group are not
    independent."""

    rewards: np.ndarray
    propensities: np.ndarray
    wanted: np.ndarray
    groups: Sequence[str]

    @property
    def weights(self) -> np.ndarray:
        """How much more likely the policy to be estimated draws it, float64 [rows]."""
        return self.wanted / self.propensities


def estimate_ips(logged: Logged) -> Estimate | None:
    """Inverse propensity scoring: unbiased, of large variance. None where nothing overlaps."""
    weights = logged.weights
    return _estimate_ratio(weights * logged.rewards, np.ones(len(weights)), logged)


def estimate_self_normalised(logged: Logged) -> Estimate | None:
    """Divided by the sum of the weights: stays within the rewards, of less variance and a bias that
    vanishes with n. None where nothing overlaps."""
    weights = logged.weights
    return _estimate_ratio(weights * logged.rewards, weights, logged)


def estimate_doubly_robust(
    logged: Logged, expected: np.ndarray, of_policy: np.ndarray
) -> Estimate | None:
    """Right where either the propensities or the model is. expected: what a model that has not seen
    the row says of what was drawn; of_policy: of what the policy would draw. None where nothing
    overlaps."""
    terms = of_policy + logged.weights * (logged.rewards - expected)
    return _estimate_ratio(terms, np.ones(len(terms)), logged)


def _estimate_ratio(above: np.ndarray, below: np.ndarray, logged: Logged) -> Estimate | None:
    """sum(above) / sum(below), with the interval of its linear part over groups."""
    weights, n = logged.weights, len(above)
    if not n or weights.sum() <= _TINY:
        return None
    value = float(above.sum() / below.sum())
    effective = float(weights.sum() ** 2 / (weights**2).sum())
    names = {name: at for at, name in enumerate(dict.fromkeys(logged.groups))}
    place = np.array([names[name] for name in logged.groups])
    errors = np.bincount(place, weights=above - value * below)
    spread = float((errors**2).sum()) * len(errors) / max(len(errors) - 1, 1)
    half = _Z * math.sqrt(spread) / float(below.sum())
    if half <= _TINY * 1e3:  # all alike, or one group: the spread says nothing
        count = round(min(effective, len(errors)))
        low, high = wilson_interval(round(min(max(value, 0.0), 1.0) * count), count)
        return Estimate(value, min(low, value), max(high, value), n, effective)
    return Estimate(value, value - half, value + half, n, effective)
