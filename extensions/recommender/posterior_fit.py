"""Fits the posterior (`extensions/recommender/posterior.py`) to many outcomes: Newton steps of each
block in turn, to the mode of all (the loss is convex), and the variances by EM."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from extensions.recommender.posterior import (
    BlockLevel,
    PosteriorBlock,
    SharedPosterior,
    compute_probability,
)
from extensions.recommender.reranker import TOOL

_SWEEPS = 24
_SETTLED = 1e-3  # log odds that no row moves further than from one sweep to the next
_STRENGTH = 4.0  # weights' worth of belief in the variances that the fit starts from
_BOUNDS = (1e-3, 32.0)


@dataclass(frozen=True)
class OutcomeRows:
    """Outcomes as the posterior reads them: `shared` [rows, dims], `local` [rows, local dims],
    `keys` the block of each row by level (-1: none), `names` the keys of the blocks, `widths` how
    many of the local dims a block of a level reads, the intercept first."""

    shared: np.ndarray
    local: np.ndarray
    keys: Mapping[str, np.ndarray]
    names: Mapping[str, list[str]]
    success: np.ndarray
    weight: np.ndarray
    at: np.ndarray
    widths: Mapping[str, int]

    def read_local(self, name: str) -> np.ndarray:
        """What the blocks of a level read, [rows, its dims]."""
        return self.local[:, : self.widths[name]]


@dataclass(frozen=True)
class WeightPrior:
    """What is expected before outcomes: `mean` [dims] of the shared weights, the `groups` of them
    whose variance is one number, those numbers, and those of each level's (intercept, slopes)."""

    mean: np.ndarray
    groups: Mapping[str, slice]
    variances: Mapping[str, float]
    levels: Mapping[str, tuple[float, float]]


@dataclass
class _FitState:
    shared: np.ndarray
    covariance: np.ndarray
    blocks: dict[str, np.ndarray]
    covariances: dict[str, np.ndarray]
    variances: dict[str, float]
    levels: dict[str, tuple[float, float]]


def fit_posterior(
    rows: OutcomeRows, prior: WeightPrior, learn: bool = True, sweeps: int = _SWEEPS
) -> tuple[SharedPosterior, dict[str, BlockLevel]]:
    """(shared block, levels) after all rows. learn: whether to fit the prior's variances too."""
    dims = len(prior.mean)
    widths = rows.widths
    state = _FitState(
        prior.mean.copy(),
        np.eye(dims),
        {name: np.zeros((len(held), widths[name])) for name, held in rows.names.items()},
        {
            name: np.zeros((len(held), widths[name], widths[name]))
            for name, held in rows.names.items()
        },
        dict(prior.variances),
        dict(prior.levels),
    )
    parts = {name: np.zeros(len(rows.success)) for name in rows.names}
    base = rows.shared @ state.shared
    for sweep in range(sweeps):
        before = base + sum(parts.values())
        offset = np.sum(list(parts.values()), 0)
        precision = 1 / fill_variances(prior, state.variances)
        for last in (False, True):
            p = compute_probability(rows.shared @ state.shared + offset)
            curve = rows.weight * np.maximum(p * (1 - p), 1e-4)
            slope = rows.shared.T @ (rows.weight * (rows.success - p))
            slope -= precision * (state.shared - prior.mean)
            bend = (rows.shared * curve[:, None]).T @ rows.shared + np.diag(precision)
            if last:
                state.covariance = np.linalg.inv(bend)
            step = state.covariance @ slope if last else np.linalg.solve(bend, slope)
            state.shared = state.shared + step
        base = rows.shared @ state.shared
        for name in rows.names:
            others = base + sum(part for other, part in parts.items() if other != name)
            parts[name] = _advance_level(rows, state, name, others, parts[name])
        if learn and sweep >= 1:
            _estimate_variances(rows, prior, state)
        moved = np.abs(base + sum(parts.values()) - before).max(initial=0.0)
        if sweep > 2 and moved < _SETTLED:
            break
    return SharedPosterior(state.shared, state.covariance), _make_levels(rows, state)


def fill_variances(prior: WeightPrior, variances: Mapping[str, float]) -> np.ndarray:
    """The variance of each shared weight, by that of its group, [dims]."""
    out = np.empty(len(prior.mean))
    for name, where in prior.groups.items():
        out[where] = variances[name]
    return out


def _advance_level(
    rows: OutcomeRows, state: _FitState, name: str, others: np.ndarray, own: np.ndarray
) -> np.ndarray:
    """One Newton step of every block of a level; its part of each row's log odds."""
    keys = rows.keys[name]
    held = keys >= 0
    at, local = keys[held], rows.read_local(name)[held]
    count, width = state.blocks[name].shape
    if not count:
        return own
    p = compute_probability(others[held] + own[held])
    weight = rows.weight[held]
    curve = weight * np.maximum(p * (1 - p), 1e-4)
    precision = 1 / fill_level(state.levels[name], width)
    slope = np.zeros((count, width))
    np.add.at(slope, at, local * (weight * (rows.success[held] - p))[:, None])
    bend = _sum_products(local, curve, at, count) + np.diag(precision)
    state.covariances[name] = np.linalg.inv(bend)
    slope -= state.blocks[name] * precision
    state.blocks[name] += np.einsum("kij,kj->ki", state.covariances[name], slope)
    part = np.zeros(len(keys))
    part[held] = (state.blocks[name][at] * local).sum(1)
    return part


def _sum_products(local: np.ndarray, curve: np.ndarray, at: np.ndarray, count: int) -> np.ndarray:
    """The sums of the outer products of each block's rows, [count, width, width]."""
    width = local.shape[1]
    if width == 1:
        return np.bincount(at, curve * local[:, 0] ** 2, count)[:, None, None]
    result = np.zeros((count, width, width))
    order = np.argsort(at, kind="stable")
    rows, weighted = local[order], (local * curve[:, None])[order]
    blocks, firsts = np.unique(at[order], return_index=True)
    for block, first, end in zip(blocks, firsts, [*firsts[1:], len(order)], strict=True):
        result[block] = weighted[first:end].T @ rows[first:end]
    return result


def fill_level(variances: tuple[float, float], width: int) -> np.ndarray:
    """The variance of each weight of a level's blocks, the intercept's first, [width]."""
    return np.array([variances[0], *[variances[1]] * (width - 1)])


def _estimate_variances(rows: OutcomeRows, prior: WeightPrior, state: _FitState) -> None:
    """Each variance as what the weights of its kind show, and what was believed before, say."""
    gone = np.square(state.shared - prior.mean) + np.diag(state.covariance)
    for name, where in prior.groups.items():
        state.variances[name] = _weigh_variance(gone[where], prior.variances[name])
    for name, blocks in state.blocks.items():
        if not len(blocks):
            continue
        seen = np.square(blocks) + np.einsum("kii->ki", state.covariances[name])
        first, slopes = prior.levels[name]
        state.levels[name] = (
            _weigh_variance(seen[:, 0], first),
            _weigh_variance(seen[:, 1:], slopes),
        )


def _weigh_variance(squares: np.ndarray, believed: float) -> float:
    if not squares.size:
        return believed
    found = (float(squares.sum()) + _STRENGTH * believed) / (squares.size + _STRENGTH)
    return min(max(found, _BOUNDS[0]), _BOUNDS[1])


def _make_levels(rows: OutcomeRows, state: _FitState) -> dict[str, BlockLevel]:
    levels = {}
    for name, held in rows.names.items():
        keys, blocks = rows.keys[name], {}
        own = keys >= 0
        counts = np.bincount(keys[own], rows.weight[own], len(held))
        for place, key in enumerate(held):
            blocks[key] = PosteriorBlock(
                state.blocks[name][place], state.covariances[name][place], float(counts[place])
            )
        width = state.blocks[name].shape[1]
        levels[name] = BlockLevel(fill_level(state.levels[name], width), blocks)
    return levels


SHIFT = 10.0  # square of the deviations of the best split from no change
LEFT = 0.02  # of the weight of what a tool did before it changed
_FEWEST = 5  # outcomes on either side


def relax_changed(
    rows: OutcomeRows, shared: SharedPosterior, levels: Mapping[str, BlockLevel]
) -> OutcomeRows:
    """The rows with little weight on what changed tools did before. A tool changed if its outcomes,
    in time, were better first and worse then, or the reverse (CUSUM, likeliest split)."""
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


def _sum_parts(
    rows: OutcomeRows, shared: SharedPosterior, levels: Mapping[str, BlockLevel]
) -> np.ndarray:
    out = rows.shared @ shared.mean
    for name, level in levels.items():
        held = rows.keys[name] >= 0
        if held.any():
            means = np.array([level.blocks[key].mean for key in rows.names[name]])
            out[held] += (means[rows.keys[name][held]] * rows.read_local(name)[held]).sum(1)
    return out
