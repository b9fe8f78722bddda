"""What the benchmarks share: development data, stored vectors, and processes of their own."""

import json
import os
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import numpy as np

from assets.vectors.encoders.embedder import Embedder, measure_reading
from assets.vectors.index import embed_texts
from warehouse.progress import ProgressLines
from warehouse.storage.lance import LanceStore

SHARED = Path(os.environ.get("TOOLMILL_SHARED", "../shared")) / "data"


def require_paths(*paths: Path) -> None:
    """Ends the program, as done, where one of the files or folders is absent."""
    absent = next((path for path in paths if not path.exists()), None)
    if absent is not None:
        print(f"skipped: {absent} is not there; TOOLMILL_SHARED names the folder that holds `data`")
        sys.exit(0)


def read_corpus(shared: Path = SHARED) -> list[dict[str, Any]]:
    """The good rows of the corpus: written by a language model, not by people."""
    return [
        row
        for path in sorted((shared / "corpus").glob("pairs_A*.jsonl"))
        for row in map(json.loads, path.read_text(encoding="utf-8").splitlines())
        if row["kind"] != "flawed"
    ]


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


P = ParamSpec("P")
T = TypeVar("T")
FRESH = get_context("spawn")  # a fork would hold what its parent has imported


def run_alone(measure: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
    """What `measure` returns, or raises, in a process that does nothing else."""
    with ProcessPoolExecutor(1, mp_context=FRESH) as pool:
        return pool.submit(measure, *args, **named).result()
