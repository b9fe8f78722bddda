"""Ours: a Bayesian logistic model with a shared block and one of each server, tool and client.

What is fitted here is what `extensions/recommender/reranking/model.py` serves.
"""

from collections.abc import Sequence

import numpy as np

from extensions.recommender.reranking.features import Question
from extensions.recommender.reranking.model import Reranker
from extensions.recommender.reranking.pool import Pool
from extensions.recommender.reranking.posterior import compute_probability
from extensions.recommender.training.examples import Example
from extensions.recommender.training.ranker_fit import FitSettings, fit_reranker

BOLDNESS = 0.5  # standard deviations of the log odds that are added while learning


class Ours:
    """P(success) of each tool; while learning what is uncertain stands higher."""

    name = "ours"

    def __init__(self, settings: FitSettings | None = None, boldness: float = BOLDNESS) -> None:
        self._settings, self._boldness = settings or FitSettings(), boldness

    def fit(self, examples: Sequence[Example], pool: Pool) -> None:
        self.ranker = Reranker(fit_reranker(examples, pool, self._settings), pool)

    def score(self, question: Question, places: np.ndarray) -> np.ndarray:
        return self.ranker.score(question, places).p

    def explore(
        self, question: Question, places: np.ndarray, rng: np.random.Generator
    ) -> np.ndarray:
        belief = self.ranker.score(question, places).belief
        return compute_probability(belief.mean + self._boldness * np.sqrt(belief.variance))

    def update(self, example: Example) -> None:
        self.ranker.update(example.question, example.place, example.success, example.weight)
