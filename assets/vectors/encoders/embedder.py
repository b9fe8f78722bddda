"""What an embedder is, and what every embedder checks of its vectors."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np

from warehouse.errors import UnusableInput

Progress = Callable[[int, int], None]


class BadEmbedder(UnusableInput):
    """An embedder that was asked for is unknown, not installed, or cannot be used."""


class EmbeddingFailed(RuntimeError):
    """An embedder that answers for others gave no vectors, or unusable ones."""


class Embedder(Protocol):
    """Anything that turns texts into unit vectors. `id` names the model *and* what was merged."""

    id: str
    dim: int

    def embed(self, texts: Sequence[str], *, on_done: Progress | None = None) -> np.ndarray:
        """Float32 [len(texts), dim], rows of unit norm; `on_done(done, total)` per batch."""
        ...


@runtime_checkable
class QueryEmbedder(Protocol):
    """An embedder that reads a question otherwise than a tool's text, as after an instruction."""

    def embed_queries(self, texts: Sequence[str]) -> np.ndarray: ...


def embed_queries(embedder: Embedder, texts: Sequence[str]) -> np.ndarray:
    """Float32 [len(texts), dim] of questions, in the embedder's own way where it has one."""
    if isinstance(embedder, QueryEmbedder):
        return embedder.embed_queries(texts)
    return embedder.embed(texts)


@dataclass(frozen=True)
class Saved:
    """What of an embedder is written to a folder: what `encoder.json` says, and other files."""

    facts: dict[str, Any]
    files: dict[str, bytes] = field(default_factory=dict)


@runtime_checkable
class Savable(Protocol):
    """An embedder that can be opened again from what it says of itself."""

    id: str
    dim: int

    def saved(self) -> Saved: ...


@runtime_checkable
class TokenCounter(Protocol):
    """An embedder that knows how much of a text it reads."""

    max_tokens: int

    def count_tokens(self, text: str) -> int: ...


@runtime_checkable
class TextReader(Protocol):
    """An embedder that knows how much of a text its tokenizer knows (`tokens.Reading`)."""

    def measure_reading(self, texts: Sequence[str]) -> np.ndarray: ...


def measure_reading(embedder: Embedder, texts: Sequence[str]) -> np.ndarray:
    """Float32 [len(texts)], 0..1: how much of each text the embedder reads; 1 where it cannot say,
    as an endpoint."""
    if isinstance(embedder, TextReader):
        return embedder.measure_reading(texts)
    return np.ones(len(texts), np.float32)


def normalise_rows(vectors: np.ndarray, who: str) -> np.ndarray:
    """Rows of norm 1. Raises EmbeddingFailed naming the first row that has no direction."""
    rows = np.asarray(vectors, np.float32)
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    flawed = np.flatnonzero(~(np.isfinite(norms[:, 0]) & (norms[:, 0] > 0)))
    if len(flawed):
        raise EmbeddingFailed(
            f"{who}: vector {flawed[0]} of {len(rows)} has norm {norms[flawed[0], 0]}, expected a"
            " finite one above 0; check that the model embeds texts"
        )
    return rows / norms
