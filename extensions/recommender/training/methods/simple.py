"""Methods that only count: cosine, success rate times cosine, Thompson sampling, OATS."""

from collections.abc import Sequence

import numpy as np

from extensions.recommender.reranking.features import Question
from extensions.recommender.reranking.pool import Pool
from extensions.recommender.training.examples import Example, Fitted


class Cosine(Fitted):
    """The retriever's similarity; no outcome enters."""

    name = "cosine"

    def fit(self, examples: Sequence[Example], pool: Pool) -> None:
        self._vectors = pool.vectors

    def score(self, question: Question, places: np.ndarray) -> np.ndarray:
        return self._vectors[places] @ question.vector


class Prior(Fitted):
    """A tool's smoothed success rate times its similarity."""

    name = "prior"

    def fit(self, examples: Sequence[Example], pool: Pool) -> None:
        self._vectors = pool.vectors
        self._calls, self._wins = np.zeros(len(pool)), np.zeros(len(pool))
        for example in examples:
            self.update(example)

    def score(self, question: Question, places: np.ndarray) -> np.ndarray:
        rate = (self._wins[places] + 1) / (self._calls[places] + 2)
        return rate * np.maximum(self._vectors[places] @ question.vector, 0)

    def update(self, example: Example) -> None:
        self._calls[example.place] += example.weight
        self._wins[example.place] += example.weight * example.success


class Thompson(Prior):
    """As `prior`, while learning with a rate that is drawn from its Beta posterior."""

    name = "thompson"

    def explore(
        self, question: Question, places: np.ndarray, rng: np.random.Generator
    ) -> np.ndarray:
        wins, calls = self._wins[places], self._calls[places]
        rate = rng.beta(wins + 1, calls - wins + 1)
        return rate * np.maximum(self._vectors[places] @ question.vector, 0)


class Oats(Fitted):
    """Each tool's vector moved towards the requests that it succeeded at (OATS, 2026)."""

    name = "oats"
    STEP = 0.3  # of the way to their mean

    def fit(self, examples: Sequence[Example], pool: Pool) -> None:
        won = np.zeros_like(pool.vectors)
        count = np.zeros(len(pool))
        for example in examples:
            if example.success:
                won[example.place] += example.question.vector
                count[example.place] += 1
        mean = won / np.maximum(count, 1)[:, None]
        moved = pool.vectors + self.STEP * np.where(count[:, None] > 0, mean - pool.vectors, 0)
        self._vectors = moved / np.maximum(np.linalg.norm(moved, axis=1, keepdims=True), 1e-9)

    def score(self, question: Question, places: np.ndarray) -> np.ndarray:
        return self._vectors[places] @ question.vector
