"""What methods learn from: one judged call of a tool for a question."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from extensions.recommender.reranking.features import Question
from extensions.recommender.reranking.pool import Pool


@dataclass(frozen=True)
class Example:
    """The outcome of the tool at `place` for a question; `task` groups calls for the same one."""

    question: Question
    place: int
    success: bool
    weight: float = 1.0
    task: str = ""


class Method(Protocol):
    """A way to order tools by outcomes; `name` is the published one."""

    name: str

    def fit(self, examples: Sequence[Example], pool: Pool) -> None:
        """Learns from these, and from nothing that it learnt before."""
        ...

    def score(self, question: Question, places: np.ndarray) -> np.ndarray:
        """Float [places]: higher is better; a probability of success where the method tells one."""
        ...

    def explore(
        self, question: Question, places: np.ndarray, rng: np.random.Generator
    ) -> np.ndarray:
        """Float [places] to order by while learning: what is uncertain may stand higher."""
        ...

    def update(self, example: Example) -> None:
        """Learns from one more outcome where the method can without a new fit."""
        ...


class Fitted(ABC):
    """What methods share that neither explore nor learn online."""

    name = ""

    @abstractmethod
    def score(self, question: Question, places: np.ndarray) -> np.ndarray:
        """Float [places]; each method's own."""

    def explore(
        self, question: Question, places: np.ndarray, rng: np.random.Generator
    ) -> np.ndarray:
        """As `score`: what is uncertain is treated like anything else."""
        return self.score(question, places)

    def update(self, example: Example) -> None:  # noqa: B027 - to do nothing is its way
        """Nothing until the next fit."""
