"""The weights of `plausible.py`: fitted on one half of a corpus, read on the other half."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from assets.synthesis.judging.adhoc.files import Given, Tools
from assets.synthesis.judging.offline.plausible import _WEIGHTS, _signs, _values, weight
from assets.synthesis.judging.offline.rubric import _UNSTATED
from assets.synthesis.verify.verify import verify

Json = Any


def crossed(
    labelled: Sequence[Json], rows: Sequence[Given], tools: Tools, half: Callable[[str], int]
) -> dict[str, Json]:
    """For each half: n, and the area under the ROC curve of weights fitted on the other half and
    of the shipped ones."""
    signs, good, halves, shipped = [], [], [], []
    for row, given in zip(labelled, rows, strict=True):
        if row["flaw"] not in (None, *_UNSTATED):
            continue
        contract = tools.by_id[given.tool_id]
        found = verify(contract, given.instruction, given.arguments, server=given.server)
        unstated = [f for f in found.findings if f.kind in _UNSTATED]
        if found.verdict != "unsure" or not unstated:
            continue
        arguments = {"0": given.arguments}
        seen = _signs(given.instruction, unstated, _values(unstated, arguments), arguments)
        signs.append([1.0, *(float(seen[name]) for name in _WEIGHTS)])
        good.append(row["flaw"] is None)
        halves.append(half(given.tool_id))
        shipped.append(weight(given.instruction, unstated, arguments))
    x, y, side, own = np.array(signs), np.array(good), np.array(halves), np.array(shipped)
    told: dict[str, Json] = {}
    for which in (0, 1):
        there = side == which
        scores = x[there] @ _fitted(x[~there], y[~there])
        right = y[there]
        told[f"half {which}"] = {
            "n": int(there.sum()),
            "good": int(right.sum()),
            "auc_fitted_on_the_other": round(_auc(scores[right], scores[~right]), 3),
            "auc_shipped": round(_auc(own[there][right], own[there][~right]), 3),
        }
    return told


def _fitted(x: np.ndarray, y: np.ndarray, ridge: float = 2.0) -> np.ndarray:
    """Logistic regression by Newton's method, both classes weighing the same."""
    w = np.zeros(x.shape[1])
    each = np.where(y, len(y) / 2 / y.sum(), len(y) / 2 / (~y).sum())
    shrink = ridge * np.r_[0, np.ones(len(w) - 1)]
    for _ in range(50):
        p = 1 / (1 + np.exp(-x @ w))
        gradient = x.T @ (each * (p - y)) + shrink * w
        curvature = (x * (each * p * (1 - p))[:, None]).T @ x + np.diag(shrink + 1e-6)
        w -= np.linalg.solve(curvature, gradient)
    return w


def _auc(good: np.ndarray, bad: np.ndarray) -> float:
    above = (good[:, None] > bad[None]).mean() + 0.5 * (good[:, None] == bad[None]).mean()
    return float(above)
