"""An embedder whose vectors are kept between runs, in a store of its own."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from assets.vectors.encoders.embedder import Embedder, measure_reading
from assets.vectors.index import embed_texts
from warehouse.progress import ProgressLines
from warehouse.storage.lance import LanceStore


class StoredEmbedder:
    """`id` and `dim` are the model's own; a kill loses a few hundred texts."""

    def __init__(self, model: Embedder, home: Path) -> None:
        self.id, self.dim, self._model = model.id, model.dim, model
        self.tokenizer: bytes | None = getattr(model, "tokenizer", None)
        self._store = LanceStore(home / "texts")
        self._lines = ProgressLines(lambda line: print(line, file=sys.stderr, flush=True))

    def embed(
        self, texts: Sequence[str], *, on_done: Callable[[int, int], None] | None = None
    ) -> np.ndarray:
        """Float32 [len(texts), dim], unit rows."""

        def tell(done: int, due: int) -> None:
            self._lines.update("embed", done, due)
            if on_done:
                on_done(done, due)

        return embed_texts(texts, self._model, self._store, on_done=tell).reshape(-1, self.dim)

    def measure_reading(self, texts: Sequence[str]) -> np.ndarray:
        """How much of each text the model reads."""
        return measure_reading(self._model, texts)
