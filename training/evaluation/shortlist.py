"""Which of the tools that are offered come nearest to a request: what a small caller is shown."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from assets.contracts.canonical import tool_text
from assets.synthesis.verify.model_text import has_english_words
from assets.vectors.encoders.embedder import BadEmbedder, Embedder
from assets.vectors.encoders.weights import BadAdapter
from assets.vectors.lexical import BM25

_KEPT = 20_000  # texts whose vectors are remembered
# Of requests of training servers (n = 360), 95% of the right tools that come first are nearer. Of
# others (n = 360 each), 96% are, and 66% of the first tools where none is right are not.
_LEAST_COSINE = 0.171


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
        scores = self._score(request, tools)
        return np.argsort(-np.round(scores, 5), kind="stable").tolist()

    def fits_none(self, request: str, tools: Sequence[Mapping[str, Any]]) -> bool:
        """Whether an English request is far from every tool. The retriever reads no other language
        well: of requests in 60 languages it would refuse more than half."""
        if not tools or self._encoder is None or not has_english_words(request):
            return False
        return bool(self._score(request, tools).max() < _LEAST_COSINE)

    def _score(self, request: str, tools: Sequence[Mapping[str, Any]]) -> np.ndarray:
        texts = [tool_text(tool) for tool in tools]
        if self._encoder is None:
            return BM25.build(texts).score(request)
        return self._embed(texts) @ self._embed([request])[0]

    def _embed(self, texts: Sequence[str]) -> np.ndarray:
        assert self._encoder is not None
        if len(self._known) > _KEPT:
            self._known.clear()
        fresh = [text for text in dict.fromkeys(texts) if text not in self._known]
        if fresh:
            vectors = np.asarray(self._encoder.embed(fresh))
            self._known |= dict(zip(fresh, vectors, strict=True))
        return np.stack([self._known[text] for text in texts])
