"""The embedder interface, what every embedder checks of its vectors, and prompts before texts."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np

from warehouse.errors import UnusableInput
from warehouse.storage.digest import sha256

Progress = Callable[[int, int], None]


class BadEmbedder(UnusableInput):
    """An embedder that was asked for is unknown, not installed, or cannot be used."""


def require_same_files(model: str, digest: str, expected: str) -> None:
    """Raises BadEmbedder unless the files of a model have the digest it was named with, if any."""
    if expected and expected != digest:
        raise BadEmbedder(
            f"{model}: its files are {digest}, expected {expected}: the model changed since it was"
            " named; name it again without the part after @, or put the old files back"
        )


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


Encode = Callable[[Sequence[str], bool], np.ndarray]  # texts, whether they are questions


@dataclass(frozen=True)
class EncoderFiles:
    """What of an embedder is written to a folder: what `encoder.json` says, and other files."""

    facts: dict[str, Any]
    files: dict[str, bytes] = field(default_factory=dict)


@runtime_checkable
class SavableEmbedder(Protocol):
    """An embedder that can be opened again from what it says of itself."""

    id: str
    dim: int

    def saved(self) -> EncoderFiles: ...


@runtime_checkable
class TextReader(Protocol):
    """An embedder that knows how much of a text its tokenizer knows (`TokenizerCoverage`)."""

    def measure_reading(self, texts: Sequence[str]) -> np.ndarray: ...


def measure_reading(embedder: Embedder, texts: Sequence[str]) -> np.ndarray:
    """Float32 [len(texts)], 0..1: how much of each text is read; 1 where nobody can say."""
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


MOST = 2_000  # characters of a prompt: an instruction is a sentence
_LEAST = 8  # tokens that a prompt leaves for the text: without any, all vectors are one
_MARK = "~"  # in an embedder's id: what follows names its prompts


@dataclass(frozen=True)
class Prompts:
    """What stands before a question and before a tool's text; None: as the model has it."""

    query: str | None = None
    document: str | None = None

    def __post_init__(self) -> None:
        for name, text in (("query", self.query), ("document", self.document)):
            if text is not None and len(text) > MOST:
                raise BadEmbedder(
                    f"{name}_prompt has {len(text):,} characters, expected at most {MOST:,}"
                )

    @property
    def given(self) -> bool:
        return self.query is not None or self.document is not None

    def fill(self, defaults: "Prompts") -> "Prompts":
        """These, and where one is not given that of the model."""
        query = defaults.query if self.query is None else self.query
        return Prompts(query, defaults.document if self.document is None else self.document)

    def mark(self) -> str:
        """What names them in an embedder's id, with another text another one; empty without any."""
        body = json.dumps([self.query, self.document]).encode()
        return f"{_MARK}{sha256(body)[:8]}" if self.given else ""

    def as_dict(self) -> dict[str, str | None]:
        return {"query": self.query, "document": self.document}

    def require_room(self, count: Callable[[str], int], limit: int) -> None:
        """Raises BadEmbedder for a prompt that fills `limit` tokens. count: tokens of a text."""
        for name, text in self.as_dict().items():
            tokens = count(text) if text else 0
            if tokens + _LEAST > limit:
                raise BadEmbedder(
                    f"{name}_prompt has {tokens} tokens, and the model reads {limit} of it and the"
                    f" text together; expected at most {limit - _LEAST}"
                )


def read_prompts(card: dict[str, Any]) -> Prompts:
    """The prompts of a saved encoder. Raises ValueError where they are no texts."""
    prompts = card.get("prompts")
    if prompts is None:
        return Prompts()
    if not isinstance(prompts, dict) or set(prompts) - {"query", "document"}:
        raise ValueError(f"prompts is {str(prompts)[:60]}, expected {{query, document}}")
    for name, text in prompts.items():
        if text is not None and not isinstance(text, str):
            raise ValueError(f"prompts: {name} is {text!r:.60}, expected a text")
    return Prompts(prompts.get("query"), prompts.get("document"))
