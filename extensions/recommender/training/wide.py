"""Counts of the past that published methods read beside similarity (ToolFlix's wide features)."""

from collections.abc import Sequence

import numpy as np

from extensions.recommender.reranking.features import Question, measure_hand
from extensions.recommender.reranking.pool import Pool
from extensions.recommender.training.examples import Example

CATEGORIES = 8
WIDE = 6
_ROUNDS = 12


class Tally:
    """Calls and successes of each tool, in all and by category of request; categories are clusters
    of the requests seen."""

    def __init__(self, examples: Sequence[Example], pool: Pool, seed: int = 0) -> None:
        self.pool = pool
        vectors = {example.question.text: example.question.vector for example in examples}
        self._centres = _group_vectors(list(vectors.values()), pool.vectors.shape[1], seed)
        self.calls = np.zeros((len(pool), len(self._centres)))
        self.wins = np.zeros((len(pool), len(self._centres)))
        for one in examples:
            self.add(one)

    def add(self, example: Example, sign: float = 1.0) -> None:
        """Counts an outcome; with sign -1 takes it back."""
        category = self.find_category(example.question)
        self.calls[example.place, category] += sign * example.weight
        self.wins[example.place, category] += sign * example.weight * example.success

    def find_category(self, question: Question) -> int:
        """The cluster that a request belongs to."""
        return int(np.argmax(self._centres @ question.vector))

    def measure(self, question: Question, places: np.ndarray) -> np.ndarray:
        """[places, WIDE]: success rate, usage, success rate and usage at such requests, similarity,
        the retriever's rank."""
        category = self.find_category(question)
        calls, wins = self.calls[places].sum(1), self.wins[places].sum(1)
        here, won = self.calls[places, category], self.wins[places, category]
        overall = (self.wins.sum() + 1) / (self.calls.sum() + 2)
        rate = (wins + 2 * overall) / (calls + 2)
        order = {int(place): rank for rank, place in enumerate(question.candidates.tolist())}
        given = [order.get(int(place), len(order)) for place in places]
        cosines = self.pool.vectors[places] @ question.vector
        columns = [
            rate, np.log1p(calls), (won + 2 * rate) / (here + 2), np.log1p(here), cosines,
            np.log1p(given),
        ]  # fmt: skip
        return np.stack(columns, 1)

    def measure_without(self, example: Example) -> np.ndarray:
        """[WIDE] of an example that was counted, as if it had not been."""
        self.add(example, -1.0)
        found = self.measure(example.question, np.array([example.place]))[0]
        self.add(example)
        return found


def measure_all(tally: Tally, question: Question, places: np.ndarray) -> np.ndarray:
    """Wide features and those of `reranking/features.py`, [places, features]."""
    hand = measure_hand(tally.pool, question, places)
    return np.concatenate([tally.measure(question, places), hand], 1)


def measure_examples(tally: Tally, examples: Sequence[Example]) -> np.ndarray:
    """`measure_all` of each example's own tool, its own outcome left out, [examples, features]."""
    rows = []
    for example in examples:
        hand = measure_hand(tally.pool, example.question, np.array([example.place]))[0]
        rows.append(np.concatenate([tally.measure_without(example), hand]))
    return np.array(rows)


def _group_vectors(vectors: list[np.ndarray], dim: int, seed: int) -> np.ndarray:
    """Unit centres of up to CATEGORIES clusters (k-means by cosine)."""
    if not vectors:
        return np.zeros((1, dim))
    rows = np.array(vectors, float)
    rng = np.random.default_rng(seed)
    centres = rows[rng.permutation(len(rows))[:CATEGORIES]]
    for _ in range(_ROUNDS):
        own = np.argmax(rows @ centres.T, 1)
        sums = np.zeros_like(centres)
        np.add.at(sums, own, rows)
        centres = sums / np.maximum(np.linalg.norm(sums, axis=1, keepdims=True), 1e-9)
    return centres
