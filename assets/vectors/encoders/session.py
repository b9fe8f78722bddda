"""Running an ONNX encoder: one session, any number of threads, batches without padding.

A batch holds texts of one length, so nothing is padded and a vector does not depend on its
neighbours beyond rounding (1e-7). In bulk, texts run side by side, each on one thread: threads
within a text wait for each other. A single query of an encoder that serves has the cores for
itself: two made it 1.6x as fast (60 tokens: 11.7 ms against 18.3, two idle cores). They never spin:
on a busy machine waiting that way alone made one query 1.7x as slow.
"""

import os
import threading
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from assets.vectors.encoders.embedder import Progress, Saved
from assets.vectors.encoders.graph import IDS, MASK, VECTORS
from assets.vectors.encoders.tokens import Tokens

_Run = Callable[[list[int]], np.ndarray]
MODEL, TOKENIZER = "encoder.onnx", "tokenizer.json"
FP32, INT8 = "fp32", "int8"
PRECISIONS = (FP32, INT8)
# Beyond this a batch costs more per token again: what it computes leaves the core's cache.
_TOKENS = 512
_MOST_THREADS = 8


class OnnxEncoder(ABC):
    """Unit vectors of texts by an ONNX model, safe to use from any number of threads.

    `threads`: how many texts of one call are computed at once, by default as many as there are
    cores (at most 8). Calls do not wait for each other: with 32 of them at once a turnstile saved
    no time of the processor and made the slowest twentieth 1.6x as slow. `within`: threads that
    share one text.
    """

    def __init__(
        self,
        model: bytes | Callable[[], bytes],
        tokenizer: bytes,
        *,
        name: str,
        max_tokens: int,
        precision: str = FP32,
        threads: int | None = None,
        within: int = 1,
        dim: int | None = None,
        both_ends: bool = False,
    ) -> None:
        """model: the ONNX file, or with `dim` (of its vectors) what makes it once a text is
        embedded: where nothing is new, none is. both_ends: of long texts, as `Tokens` has it."""
        self.id, self.max_tokens, self.precision = name, max_tokens, precision
        self.tokenizer = tokenizer
        self._tokens = Tokens(tokenizer, max_tokens, both_ends=both_ends)
        self._opening, self._session = threading.Lock(), None
        self._make: Callable[[], bytes] | None = model if callable(model) else lambda: model
        self._within = within
        self.dim = dim or int(self.open().get_outputs()[0].shape[1])
        self._threads = max(1, threads or min(count_cores(), _MOST_THREADS))

    def open(self) -> Any:
        """The session; who serves opens it before the first question comes."""
        with self._opening:
            if self._session is None and self._make:
                self._session, self._make = _open_session(self._make(), self._within), None
            return self._session

    @abstractmethod
    def model(self) -> bytes:
        """The ONNX file. It is not kept in memory for the one time that it is saved."""

    def saved(self) -> Saved:
        """What `save_encoder` writes."""
        facts = {"kind": "onnx", "max_tokens": self.max_tokens, "precision": self.precision}
        return Saved(facts, {MODEL: self.model(), TOKENIZER: self.tokenizer})

    def count_tokens(self, text: str) -> int:
        """Tokens that are read of a text, with the special ones; `max_tokens` at most."""
        return len(self._tokens([text])[0])

    def measure_reading(self, texts: Sequence[str]) -> np.ndarray:
        """How much of each text its tokenizer knows, float32 [len(texts)], 0..1."""
        return self._tokens.measure_reading(texts)

    def embed(self, texts: Sequence[str], *, on_done: Progress | None = None) -> np.ndarray:
        """Unit vectors [len(texts), dim]; a text that is given twice is computed once."""
        places = {text: place for place, text in enumerate(dict.fromkeys(texts))}
        ids = self._tokens(list(places))
        out = np.empty((len(ids), self.dim), np.float32)
        batches = _split_batches(
            [len(each) for each in ids], 1 if self.precision == INT8 else _TOKENS
        )
        done = 0

        def run(batch: list[int]) -> np.ndarray:
            return self._run_batch(np.stack([ids[place] for place in batch]))

        for batch, vectors in zip(batches, self._embed_parallel(run, batches), strict=True):
            out[batch] = vectors
            done += len(batch)
            if on_done:
                on_done(done, len(ids))
        return out[[places[text] for text in texts]]

    def _embed_parallel(self, run: _Run, batches: list[list[int]]) -> Iterator[np.ndarray]:
        if len(batches) < 2 or self._threads == 1:  # a query: no thread is worth starting
            yield from map(run, batches)
            return
        with ThreadPoolExecutor(min(self._threads, len(batches))) as pool:
            yield from pool.map(run, batches)

    def _run_batch(self, ids: np.ndarray) -> np.ndarray:
        return self.open().run([VECTORS], {IDS: ids, MASK: np.ones_like(ids)})[0]


def count_cores() -> int:
    """Cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _open_session(model: bytes, within: int) -> Any:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = within, 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def _split_batches(lengths: Sequence[int], tokens: int) -> list[list[int]]:
    """Places of texts, those of equal length together, at most `tokens` of them a batch and the
    longest first, so that no thread is left alone with a long one at the end."""
    by_length: Mapping[int, list[int]] = defaultdict(list)
    for place, length in enumerate(lengths):
        by_length[length].append(place)
    out = []
    for length, places in sorted(by_length.items(), reverse=True):
        most = max(1, tokens // max(length, 1))
        out += [places[start : start + most] for start in range(0, len(places), most)]
    return out
