"""What a method learns from, how it is called, and how well its scores order held-out calls."""

import hashlib
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from extensions.recommender.tool_pool import ToolPool
from serving.ranking.strategies import RerankQuestion

BINS = 10


@dataclass(frozen=True)
class OutcomeExample:
    """The outcome of the tool at `place` for a question; `task` groups calls for the same one."""

    question: RerankQuestion
    place: int
    success: bool
    weight: float = 1.0
    task: str = ""


class RerankMethod(ABC):
    """A way to order tools by outcomes. By default it does not learn online."""

    @abstractmethod
    def fit(self, examples: Sequence[OutcomeExample], pool: ToolPool) -> None:
        """Learns from these examples alone and forgets what it learnt before."""

    @abstractmethod
    def score(self, question: RerankQuestion, places: np.ndarray) -> np.ndarray:
        """Float [places]: higher is better; P(success) if the method estimates it."""

    def update(self, example: OutcomeExample) -> None:  # noqa: B027 - some methods cannot
        """Learns from one more outcome if the method can without a new fit."""


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
        task_scores, worked = scores[rows], success[rows]
        ahead = task_scores[worked][:, None] - task_scores[~worked][None, :]
        right += float((ahead > 0).sum() + 0.5 * (ahead == 0).sum())
        count += ahead.size
    return right, count


def measure_calibration(p: np.ndarray, success: np.ndarray) -> dict[str, float]:
    """Brier score, log loss and expected calibration error (ten bins of equal size)."""
    clipped = np.clip(p, 1e-6, 1 - 1e-6)
    losses = -np.where(success, np.log(clipped), np.log(1 - clipped))
    gaps = [
        abs(float(p[part].mean() - success[part].mean())) * len(part)
        for part in np.array_split(np.argsort(p, kind="stable"), BINS)
        if len(part)
    ]
    return {
        "brier": float(np.square(p - success).mean()),
        "log_loss": float(losses.mean()),
        "calibration_error": sum(gaps) / len(p),
    }


@dataclass(frozen=True)
class FoldResult:
    """One method in one fold: the scores of the rows held out, and the seconds that fit and scores
    took."""

    method: str
    fold: int
    rows: tuple[int, ...]
    scores: np.ndarray
    seconds: float


def assign_folds(examples: Sequence[OutcomeExample], folds: int, seed: int = 0) -> np.ndarray:
    """The fold of each example; all of a task are in one. Folds are of about equal size, and which
    task is where depends on its words alone, not on the order of the file."""
    tasks = sorted(
        {example.task for example in examples},
        key=lambda task: hashlib.sha256(f"{seed}\n{task}".encode()).hexdigest(),
    )
    fold_of = {task: place % folds for place, task in enumerate(tasks)}
    return np.array([fold_of[example.task] for example in examples], int)


def run_fold(
    name: str, make: Callable[[], RerankMethod], examples: Sequence[OutcomeExample], pool: ToolPool,
    fold_of: np.ndarray, fold: int,
) -> FoldResult:  # fmt: skip
    """One method fitted on all other folds and held against this one's rows."""
    began = time.perf_counter()
    method = make()
    method.fit([one for one, at in zip(examples, fold_of, strict=True) if at != fold], pool)
    rows = np.flatnonzero(fold_of == fold).tolist()
    scores = [
        float(method.score(examples[row].question, np.array([examples[row].place]))[0])
        for row in rows
    ]
    seconds = time.perf_counter() - began
    return FoldResult(name, fold, tuple(rows), np.array(scores), seconds)


def summarise_fold(result: FoldResult, examples: Sequence[OutcomeExample]) -> dict[str, object]:
    """AUC and same-task pair accuracy of one fold, with how many rows and pairs they are of."""
    own = [examples[row] for row in result.rows]
    success = np.array([item.success for item in own], bool)
    right, pairs = compare_pairs(result.scores, success, [item.task for item in own])
    return {
        "fold": result.fold,
        "n": len(own),
        "successes": int(success.sum()),
        "auc": _round(measure_auc(result.scores, success)),
        "pair_accuracy": _round(right / pairs if pairs else None),
        "pairs": pairs,
        "seconds": round(result.seconds, 2),
    }


def tabulate_methods(
    results: Mapping[str, Sequence[FoldResult]], examples: Sequence[OutcomeExample]
) -> dict[str, dict[str, object]]:
    """By method: each fold, the means over folds, pairs of all folds together."""
    table = {}
    for name, own in results.items():
        folds = [summarise_fold(item, examples) for item in own]
        aucs = [fold["auc"] for fold in folds if isinstance(fold["auc"], float)]
        right, pairs = np.sum([_count_pairs(item, examples) for item in own], 0)
        table[name] = {
            "auc": _round(float(np.mean(aucs)) if aucs else None),
            "pair_accuracy": _round(right / pairs if pairs else None),
            "pairs": int(pairs),
            "folds": folds,
        }
        rows = [row for item in own for row in item.rows]
        scores = np.concatenate([item.scores for item in own])
        if len(scores) and scores.min() >= 0 and scores.max() <= 1:
            success = np.array([examples[row].success for row in rows], bool)
            found = measure_calibration(scores, success)
            table[name]["calibration"] = {key: round(value, 4) for key, value in found.items()}
    return table


def _count_pairs(result: FoldResult, examples: Sequence[OutcomeExample]) -> tuple[float, int]:
    own = [examples[row] for row in result.rows]
    success = np.array([item.success for item in own], bool)
    return compare_pairs(result.scores, success, [item.task for item in own])


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
