"""Published baselines that the benchmarks compare the product's rerankers with.

Each orders tools by outcomes as `extensions/recommender/methods.py` does: cosine, OATS, ridge
LinUCB (Li et al. 2010), logistic regression and gradient-boosted trees.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from extensions.recommender.methods import METHODS
from extensions.recommender.question_features import measure_contract_features
from extensions.recommender.rerank_method import OutcomeExample, RerankMethod
from extensions.recommender.tool_pool import ToolPool
from extensions.recommender.toolflix import CallTally
from serving.ranking.strategies import RerankQuestion

RIDGE = 1.0
OATS_STEP = 0.3  # share of the way to the mean of the requests that a tool did


class FixedOrder(RerankMethod):
    """Orders by tool vectors, which `fit` sets; learns nothing online."""

    vectors: np.ndarray

    def score(self, question: RerankQuestion, places: np.ndarray) -> np.ndarray:
        return self.vectors[places] @ question.vector


class CosineOrder(FixedOrder):
    """The retriever's similarity; no outcome enters."""

    def fit(self, examples: Sequence[OutcomeExample], pool: ToolPool) -> None:
        self.vectors = pool.vectors


class OatsOrder(FixedOrder):
    """Each tool's vector moved towards the requests that it succeeded at (OATS, 2026)."""

    def fit(self, examples: Sequence[OutcomeExample], pool: ToolPool) -> None:
        won, count = np.zeros_like(pool.vectors), np.zeros(len(pool))
        for example in examples:
            if example.success:
                won[example.place] += example.question.vector
                count[example.place] += 1
        mean = won / np.maximum(count, 1)[:, None]
        moved = pool.vectors + OATS_STEP * np.where(count[:, None] > 0, mean - pool.vectors, 0)
        self.vectors = moved / np.maximum(np.linalg.norm(moved, axis=1, keepdims=True), 1e-9)


class TallyMethod(RerankMethod):
    """Base of methods that read counts of the past, similarity and the contract's shape."""

    tally: CallTally

    def measure(self, question: RerankQuestion, places: np.ndarray) -> np.ndarray:
        """float [places, features]."""
        contract = measure_contract_features(self.tally.pool, question, places)
        return np.concatenate([self.tally.measure(question, places), contract], 1)

    def measure_examples(self, examples: Sequence[OutcomeExample]) -> np.ndarray:
        """`measure` of each example's own tool, its own outcome left out."""
        rows = []
        for example in examples:
            place = np.array([example.place])
            contract = measure_contract_features(self.tally.pool, example.question, place)[0]
            rows.append(np.concatenate([self.tally.measure_without(example), contract]))
        return np.array(rows)

    def update(self, example: OutcomeExample) -> None:
        self.tally.add(example)


class LinUcb(TallyMethod):
    """Least squares on the outcome."""

    def fit(self, examples: Sequence[OutcomeExample], pool: ToolPool) -> None:
        self.tally = CallTally(examples, pool)
        if examples:
            rows = self.measure_examples(examples)
        else:
            empty = RerankQuestion("", np.zeros(pool.vectors.shape[1]), np.array([0]))
            rows = self.measure(empty, np.array([0]))[:0]
        several = len(rows) > 1
        self._centre = rows.mean(0) if several else np.zeros(rows.shape[1])
        self._scale = np.maximum(rows.std(0), 1e-2) if several else np.ones(rows.shape[1])
        design = self._scale_rows(rows)
        self._covariance = np.linalg.inv(design.T @ design + RIDGE * np.eye(design.shape[1]))
        self._moment = design.T @ np.array([example.success for example in examples], float)

    def score(self, question: RerankQuestion, places: np.ndarray) -> np.ndarray:
        return self._read(question, places) @ (self._covariance @ self._moment)

    def update(self, example: OutcomeExample) -> None:
        row = self._read(example.question, np.array([example.place]))[0]
        gain = self._covariance @ row
        self._covariance = self._covariance - np.outer(gain, gain) / (1 + row @ gain)
        self._moment = self._moment + row * example.success
        super().update(example)

    def _read(self, question: RerankQuestion, places: np.ndarray) -> np.ndarray:
        return self._scale_rows(self.measure(question, places))

    def _scale_rows(self, rows: np.ndarray) -> np.ndarray:
        scaled = np.clip((rows - self._centre) / self._scale, -4, 4)
        return np.concatenate([scaled, np.ones((len(rows), 1))], 1)


class OutcomeClassifier(TallyMethod):
    """A classifier of outcomes; with outcomes of one kind only it predicts the smoothed rate."""

    def __init__(self, make_model: Callable[[], Any]) -> None:
        self._make_model = make_model

    def fit(self, examples: Sequence[OutcomeExample], pool: ToolPool) -> None:
        self.tally = CallTally(examples, pool)
        success = np.array([example.success for example in examples], bool)
        self._rate = (success.sum() + 1) / (len(success) + 2)
        self._model = None
        if success.any() and not success.all():
            weight = np.array([example.weight for example in examples])
            self._model = self._make_model()
            self._model.fit(self.measure_examples(examples), success, model__sample_weight=weight)

    def score(self, question: RerankQuestion, places: np.ndarray) -> np.ndarray:
        if self._model is None:
            return self._rate * (1 + self.tally.pool.vectors[places] @ question.vector) / 2
        return self._model.predict_proba(self.measure(question, places))[:, 1]


def _make_logistic() -> Any:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import Pipeline
    from sklearn.preprocessing import StandardScaler

    return Pipeline(
        [("scale", StandardScaler()), ("model", LogisticRegression(C=0.3, max_iter=500))]
    )


def _make_trees() -> Any:
    from sklearn.ensemble import GradientBoostingClassifier
    from sklearn.pipeline import Pipeline

    trees = GradientBoostingClassifier(
        n_estimators=120, learning_rate=0.05, max_depth=3, subsample=0.7, random_state=0
    )
    return Pipeline([("model", trees)])


ALL_METHODS: dict[str, Callable[[], RerankMethod]] = {
    "cosine": CosineOrder,
    "oats": OatsOrder,
    "linucb": LinUcb,
    "logistic": lambda: OutcomeClassifier(_make_logistic),
    "boosted_trees": lambda: OutcomeClassifier(_make_trees),
    **METHODS,
}
