"""How well scores order outcomes that were never seen, and how true probabilities are."""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

BINS = 10


def measure_auc(scores: np.ndarray, success: np.ndarray) -> float | None:
    """The chance that a success scores above a failure, ties counting half; None without both."""
    won, lost = scores[success], scores[~success]
    if not len(won) or not len(lost):
        return None
    values, ranks = np.unique(scores, return_inverse=True)
    counts = np.bincount(ranks, minlength=len(values))
    middle = np.cumsum(counts) - (counts - 1) / 2
    total = float(middle[ranks][success].sum()) - len(won) * (len(won) + 1) / 2
    return total / (len(won) * len(lost))


def compare_pairs(
    scores: np.ndarray, success: np.ndarray, tasks: Sequence[str]
) -> tuple[float, int]:
    """(pairs in the right order, ties counting half; pairs) of a success and a failure of one
    task."""
    rows_of: dict[str, list[int]] = defaultdict(list)
    for row, task in enumerate(tasks):
        rows_of[task].append(row)
    right, count = 0.0, 0
    for rows in rows_of.values():
        own, judged = scores[rows], success[rows]
        ahead = own[judged][:, None] - own[~judged][None, :]
        right += float((ahead > 0).sum() + 0.5 * (ahead == 0).sum())
        count += ahead.size
    return right, count


def measure_calibration(p: np.ndarray, success: np.ndarray) -> dict[str, float]:
    """Brier score, log loss and expected calibration error (ten bins of equal size)."""
    clipped = np.clip(p, 1e-6, 1 - 1e-6)
    losses = -np.where(success, np.log(clipped), np.log(1 - clipped))
    order = np.argsort(p, kind="stable")
    gaps = [
        abs(float(p[part].mean() - success[part].mean())) * len(part)
        for part in np.array_split(order, BINS)
        if len(part)
    ]
    return {
        "brier": float(np.square(p - success).mean()),
        "log_loss": float(losses.mean()),
        "calibration_error": sum(gaps) / len(p),
    }
