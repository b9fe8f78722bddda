"""Ridge LinUCB (Li et al. 2010) over similarity, counts of the past and the contract's shape."""

from collections.abc import Sequence

import numpy as np

from extensions.recommender.reranking.features import Question
from extensions.recommender.reranking.pool import Pool
from extensions.recommender.training.examples import Example
from extensions.recommender.training.wide import Tally, measure_all, measure_examples

ALPHA, RIDGE = 0.5, 1.0


class LinUcb:
    """Least squares on the outcome; while learning ALPHA standard deviations are added."""

    name = "linucb"

    def fit(self, examples: Sequence[Example], pool: Pool) -> None:
        self._tally = Tally(examples, pool)
        rows = measure_examples(self._tally, examples) if examples else np.zeros((0, 1))
        if not len(rows):
            places = np.array([0])
            empty = Question("", np.zeros(pool.vectors.shape[1]), places)
            rows = np.zeros((0, measure_all(self._tally, empty, places).shape[1]))
        self._centre = rows.mean(0) if len(rows) > 1 else np.zeros(rows.shape[1])
        self._scale = np.maximum(rows.std(0), 1e-2) if len(rows) > 1 else np.ones(rows.shape[1])
        own = self._scale_rows(rows)
        self._covariance = np.linalg.inv(own.T @ own + RIDGE * np.eye(own.shape[1]))
        self._moment = own.T @ np.array([example.success for example in examples], float)

    def score(self, question: Question, places: np.ndarray) -> np.ndarray:
        return self._read(question, places) @ (self._covariance @ self._moment)

    def explore(
        self, question: Question, places: np.ndarray, rng: np.random.Generator
    ) -> np.ndarray:
        rows = self._read(question, places)
        wide = np.sqrt(np.einsum("ij,jk,ik->i", rows, self._covariance, rows))
        return rows @ (self._covariance @ self._moment) + ALPHA * wide

    def update(self, example: Example) -> None:
        row = self._read(example.question, np.array([example.place]))[0]
        gain = self._covariance @ row
        self._covariance = self._covariance - np.outer(gain, gain) / (1 + row @ gain)
        self._moment = self._moment + row * example.success
        self._tally.add(example)

    def _read(self, question: Question, places: np.ndarray) -> np.ndarray:
        return self._scale_rows(measure_all(self._tally, question, places))

    def _scale_rows(self, rows: np.ndarray) -> np.ndarray:
        scaled = np.clip((rows - self._centre) / self._scale, -4, 4)
        return np.concatenate([scaled, np.ones((len(rows), 1))], 1)
