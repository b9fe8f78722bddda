"""The methods that are compared: the success prior, ToolFlix, and the served reranker."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from extensions.recommender.rerank_method import OutcomeExample, RerankMethod
from extensions.recommender.reranker import BayesianReranker
from extensions.recommender.reranker_fit import FitSettings, fit_reranker
from extensions.recommender.tool_pool import ToolPool
from extensions.recommender.toolflix import ToolFlix
from serving.ranking.strategies import RerankQuestion


class SuccessPrior(RerankMethod):
    def fit(self, examples: Sequence[OutcomeExample], pool: ToolPool) -> None:
        self.vectors = pool.vectors
        self.calls, self.wins = np.zeros(len(pool)), np.zeros(len(pool))
        for example in examples:
            self.update(example)

    def score(self, question: RerankQuestion, places: np.ndarray) -> np.ndarray:
        rate = (self.wins[places] + 1) / (self.calls[places] + 2)
        return rate * np.maximum(self.vectors[places] @ question.vector, 0)

    def update(self, example: OutcomeExample) -> None:
        self.calls[example.place] += example.weight
        self.wins[example.place] += example.weight * example.success


class BayesianMethod(RerankMethod):
    def __init__(self, settings: FitSettings | None = None) -> None:
        self._settings = settings or FitSettings()

    def fit(self, examples: Sequence[OutcomeExample], pool: ToolPool) -> None:
        self.ranker = BayesianReranker(fit_reranker(examples, pool, self._settings), pool)

    def score(self, question: RerankQuestion, places: np.ndarray) -> np.ndarray:
        return self.ranker.score(question, places).p

    def update(self, example: OutcomeExample) -> None:
        self.ranker.update(example.question, example.place, example.success, example.weight)


METHODS: Mapping[str, Callable[[], RerankMethod]] = {
    "prior": SuccessPrior,
    "toolflix": ToolFlix,
    "ours": BayesianMethod,
}
