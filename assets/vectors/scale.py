"""Vectors of any encoder on MiniLM's scale of likeness, for what is decided by a cosine alone.

Unrelated texts have a cosine about 0 by MiniLM and .7 or more by other encoders, so that bounds as
"alike from .85 on" would take all tools for one. Taking the mean of unrelated texts off every
vector puts them at 0 again; one dimension more lifts all cosines to where MiniLM has them. The same
text has 1 throughout. The router needs none of it: it tells cosines in standard deviations.
"""

from collections.abc import Sequence

import numpy as np

from assets.vectors.encoders.embedder import Embedder, Progress, embed_queries, normalise_rows
from warehouse.storage.files import read_data

UNRELATED = 0.0696  # mean cosine of REFERENCE among each other by MiniLM
REFERENCE: list[str] = read_data(__file__, "words.toml")["reference"]
_MARK = "/scaled"  # in an embedder's id


class CosineScale:
    """One encoder's vectors on MiniLM's scale. known: unit vectors [n, dim] of REFERENCE."""

    def __init__(self, reference: np.ndarray, who: str) -> None:
        self._who, self._centre = who, reference.mean(0)
        unrelated = measure_unrelated(self._centre_rows(reference))
        self._lift = min(max((UNRELATED - unrelated) / (1 - unrelated), 0.0), 0.99)

    def apply(self, vectors: np.ndarray) -> np.ndarray:
        """Unit rows [n, dim + 1]."""
        rows = self._centre_rows(vectors) * np.float32((1 - self._lift) ** 0.5)
        last = np.full((len(rows), 1), self._lift**0.5, np.float32)
        return np.concatenate([rows, last], 1)

    def _centre_rows(self, vectors: np.ndarray) -> np.ndarray:
        return normalise_rows(vectors - self._centre, self._who)


class ScaledEmbedder:
    """An embedder whose cosines are comparable with MiniLM's; one dimension more than `inner`."""

    def __init__(self, inner: Embedder) -> None:
        self.inner = inner
        self.id, self.dim = f"{inner.id}{_MARK}", inner.dim + 1
        self._scale = CosineScale(inner.embed(REFERENCE), self.id)

    def embed(self, texts: Sequence[str], *, on_done: Progress | None = None) -> np.ndarray:
        """Float32 [len(texts), dim], rows of unit norm."""
        return self._scale.apply(self.inner.embed(texts, on_done=on_done))

    def embed_queries(self, texts: Sequence[str]) -> np.ndarray:
        """The same of questions."""
        return self._scale.apply(embed_queries(self.inner, texts))


def get_plain(embedder: Embedder) -> Embedder:
    """The embedder itself, for what needs no scale."""
    return embedder.inner if isinstance(embedder, ScaledEmbedder) else embedder


def measure_unrelated(vectors: np.ndarray) -> float:
    """Mean cosine of different rows, each of unit norm."""
    n = len(vectors)
    return float((np.square(vectors.sum(0, dtype=np.float64)).sum() - n) / (n * (n - 1)))
