"""Tools that became others than they were, told from their outcomes alone."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from extensions.recommender.reranking.model import TOOL
from extensions.recommender.reranking.posterior import Level, Shared, compute_probability
from extensions.recommender.training.fitting.posterior_fit import Rows

SHIFT = 10.0  # square of the deviations of the best split from no change
LEFT = 0.02  # of the weight of what a tool did before it changed
_FEWEST = 5  # outcomes on either side


def relax_changed(rows: Rows, shared: Shared, levels: Mapping[str, Level]) -> Rows:
    """The rows with little weight on what changed tools did before; the same rows where none did.

    Outcomes of a tool in the order of time go with what the fit expects of them, unless they were
    better first and worse then, or the other way (CUSUM with the likeliest split).
    """
    expected = compute_probability(_sum_parts(rows, shared, levels))
    gap = rows.weight * (rows.success - expected)
    spread = rows.weight**2 * np.maximum(expected * (1 - expected), 1e-3)
    weight = rows.weight.copy()
    order = np.lexsort((rows.at, rows.keys[TOOL]))
    starts = np.flatnonzero(np.diff(rows.keys[TOOL][order], prepend=-2))
    for own in np.split(order, starts[1:]):
        split = find_split(gap[own], spread[own])
        weight[own[:split]] *= LEFT
    return rows if (weight == rows.weight).all() else replace(rows, weight=weight)


def find_split(gap: np.ndarray, spread: np.ndarray) -> int:
    """Where one tool's outcomes change for good, 0 where they do not. `gap`: outcome less what was
    expected, `spread`: its variance, both [outcomes] in the order of time."""
    if len(gap) < 2 * _FEWEST:
        return 0
    total = spread.sum()
    seen = np.cumsum(spread)[_FEWEST - 1 : -_FEWEST]
    ahead = np.cumsum(gap)[_FEWEST - 1 : -_FEWEST] - seen / total * gap.sum()
    found = np.square(ahead) * total / (seen * (total - seen))
    best = int(np.argmax(found))
    return best + _FEWEST if found[best] > SHIFT else 0


def _sum_parts(rows: Rows, shared: Shared, levels: Mapping[str, Level]) -> np.ndarray:
    """Log odds of each row."""
    out = rows.shared @ shared.mean
    for name, level in levels.items():
        held = rows.keys[name] >= 0
        if held.any():
            means = np.array([level.blocks[key].mean for key in rows.names[name]])
            out[held] += (means[rows.keys[name][held]] * rows.read_local(name)[held]).sum(1)
    return out
