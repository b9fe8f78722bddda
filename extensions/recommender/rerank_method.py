"""What a method learns from, how it is called, and how well its scores order held-out calls."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
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
    return float(rank_worked(won, lost).mean()) if len(won) and len(lost) else None


def rank_worked(worked: np.ndarray, failed: np.ndarray) -> np.ndarray:
    """Of each score of what worked, the share of failed ones below it; ties count half."""
    ordered = np.sort(failed)
    below, upto = (np.searchsorted(ordered, worked, side) for side in ("left", "right"))
    return (below + upto) / 2 / len(failed)


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
