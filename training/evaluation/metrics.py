"""Figures with their uncertainty: shares, recall, and paired differences."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from warehouse.statistics import wilson_interval

RESAMPLES = 4000


@dataclass(frozen=True)
class MetricFigure:
    value: float
    low: float
    high: float
    n: int

    def __format__(self, sign: str) -> str:
        """`0.512 [0.480, 0.544]`; with `+` as the sign, each number with its own."""
        ends = (f"{end:{sign}.3f}" for end in (self.value, self.low, self.high))
        return "{} [{}, {}]".format(*ends)

    def as_dict(self) -> dict[str, float | int]:
        return {"value": self.value, "low": self.low, "high": self.high, "n": self.n}


def measure_share(hits: int, n: int) -> MetricFigure:
    """A share with Wilson's 95% interval; (0, 1) when nothing was counted."""
    low, high = wilson_interval(hits, n)
    return MetricFigure(
        _round_figure(hits / n if n else 0.0), _round_figure(low), _round_figure(high), n
    )


def bootstrap_mean(
    values: Sequence[float], groups: Sequence[str], *, seed: int = 0
) -> MetricFigure:
    """The mean of `values` with a percentile interval over whole `groups`: pairs of one tool are
    not independent. Pass differences per item for a paired comparison."""
    if len(values) != len(groups):
        raise ValueError(f"{len(values)} values but {len(groups)} groups")
    if not values:
        return MetricFigure(0.0, 0.0, 0.0, 0)
    names = {name: i for i, name in enumerate(dict.fromkeys(groups))}
    place = np.array([names[group] for group in groups])
    array = np.asarray(values, np.float64)
    sums = np.bincount(place, weights=array, minlength=len(names))
    sizes = np.bincount(place, minlength=len(names))
    draws = np.random.default_rng(seed).integers(0, len(names), (RESAMPLES, len(names)))
    means = sums[draws].sum(axis=1) / sizes[draws].sum(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return MetricFigure(
        _round_figure(array.mean()), _round_figure(low), _round_figure(high), len(values)
    )


def bootstrap_difference(
    better: Sequence[float], worse: Sequence[float], groups: Sequence[str]
) -> MetricFigure:
    return bootstrap_mean([a - b for a, b in zip(better, worse, strict=True)], groups)


def _round_figure(value: float) -> float:
    return round(float(value), 4)
