"""Which of the tools that are offered come nearest to a request: what a small caller is shown."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from assets.contracts.canonical import tool_text
from assets.vectors.encoders.embedder import BadEmbedder, Embedder
from assets.vectors.encoders.weights import BadAdapter
from assets.vectors.lexical import BM25

_KEPT = 20_000  # texts whose vectors are remembered


class ToolRanking:
    """By the cosine of the shipped retriever, or by BM25 where its weights are not installed."""

    def __init__(self) -> None:
        self._known: dict[str, np.ndarray] = {}

    @cached_property
    def _encoder(self) -> Embedder | None:
        from assets.vectors.encoders.minilm import open_general

        try:
            return open_general()
        except (BadAdapter, BadEmbedder):
            return None

    def rank(self, request: str, tools: Sequence[Mapping[str, Any]]) -> list[int]:
        """Places of the tools, the nearest first; of equally near ones the first offered."""
        texts = [tool_text(tool) for tool in tools]
        if self._encoder is None:
            scores = BM25.build(texts).score(request)
        else:
            scores = self._embed(texts) @ self._embed([request])[0]
        return np.argsort(-np.round(scores, 5), kind="stable").tolist()

    def _embed(self, texts: Sequence[str]) -> np.ndarray:
        assert self._encoder is not None
        if len(self._known) > _KEPT:
            self._known.clear()
        fresh = [text for text in dict.fromkeys(texts) if text not in self._known]
        if fresh:
            vectors = np.asarray(self._encoder.embed(fresh))
            self._known |= dict(zip(fresh, vectors, strict=True))
        return np.stack([self._known[text] for text in texts])
