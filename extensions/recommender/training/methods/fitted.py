"""Classifiers of scikit-learn over similarity, counts of the past and the contract's shape."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from extensions.recommender.reranking.features import Question
from extensions.recommender.reranking.pool import Pool
from extensions.recommender.training.examples import Example
from extensions.recommender.training.wide import Tally, measure_all, measure_examples

GATE, BONUS = 10, 0.3  # candidates by cosine that a bonus may lift, and how far


class Classifier(ABC):
    """A classifier of outcomes; with one outcome known everywhere it tells the smoothed rate."""

    name = ""

    @abstractmethod
    def make_models(self) -> list[Any]:
        """Classifiers whose mean probability counts."""

    def fit(self, examples: Sequence[Example], pool: Pool) -> None:
        self._tally = Tally(examples, pool)
        success = np.array([example.success for example in examples], bool)
        self._models: list[Any] = []
        self._rate = (success.sum() + 1) / (len(success) + 2)
        if success.any() and not success.all():
            rows = measure_examples(self._tally, examples)
            weight = np.array([example.weight for example in examples])
            self._models = self.make_models()
            for model in self._models:
                self._fit_model(model, rows, success, weight)

    def _fit_model(
        self, model: Any, rows: np.ndarray, success: np.ndarray, weight: np.ndarray
    ) -> None:
        model.fit(rows, success, sample_weight=weight)

    def score(self, question: Question, places: np.ndarray) -> np.ndarray:
        if not self._models:
            cosines = self._tally.pool.vectors[places] @ question.vector
            return self._rate * (1 + cosines) / 2
        rows = measure_all(self._tally, question, places)
        return np.mean([model.predict_proba(rows)[:, 1] for model in self._models], 0)

    def explore(
        self, question: Question, places: np.ndarray, rng: np.random.Generator
    ) -> np.ndarray:
        """Gated UCB: a bonus for tools seldom called among the nearest candidates only."""
        calls = self._tally.calls[places].sum(1)
        bonus = BONUS * np.sqrt(np.log1p(self._tally.calls.sum()) / (1 + calls)) / 2
        cosines = self._tally.pool.vectors[places] @ question.vector
        near = cosines >= np.sort(cosines)[-min(GATE, len(cosines))]
        return self.score(question, places) + np.where(near, bonus, 0)

    def update(self, example: Example) -> None:
        self._tally.add(example)


class Logistic(Classifier):
    """Logistic regression; gated UCB while learning."""

    name = "logistic"

    def make_models(self) -> list[Any]:
        from sklearn.linear_model import LogisticRegression

        return [LogisticRegression(C=0.3, max_iter=500)]

    def _fit_model(
        self, model: Any, rows: np.ndarray, success: np.ndarray, weight: np.ndarray
    ) -> None:
        self._centre, self._scale = rows.mean(0), np.maximum(rows.std(0), 1e-3)
        model.fit((rows - self._centre) / self._scale, success, sample_weight=weight)

    def score(self, question: Question, places: np.ndarray) -> np.ndarray:
        if not self._models:
            return super().score(question, places)
        rows = (measure_all(self._tally, question, places) - self._centre) / self._scale
        return self._models[0].predict_proba(np.clip(rows, -4, 4))[:, 1]


class BoostedTrees(Classifier):
    """Gradient-boosted trees."""

    name = "boosted_trees"

    def make_models(self) -> list[Any]:
        from sklearn.ensemble import GradientBoostingClassifier

        return [
            GradientBoostingClassifier(
                n_estimators=120, learning_rate=0.05, max_depth=3, subsample=0.7, random_state=0
            )
        ]


class Blend(BoostedTrees):
    """The mean of logistic regression, boosted trees and a random forest."""

    name = "blend"

    def make_models(self) -> list[Any]:
        from sklearn.ensemble import RandomForestClassifier
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        forest = RandomForestClassifier(200, min_samples_leaf=5, n_jobs=1, random_state=0)
        line = make_pipeline(StandardScaler(), LogisticRegression(C=0.3, max_iter=500))
        return [*super().make_models(), forest, line]

    def _fit_model(
        self, model: Any, rows: np.ndarray, success: np.ndarray, weight: np.ndarray
    ) -> None:
        if hasattr(model, "steps"):
            model.fit(rows, success, logisticregression__sample_weight=weight)
        else:
            model.fit(rows, success, sample_weight=weight)
