"""Words that a model wants before what it reads: `query: ` and `passage: ` of E5, an instruction.

A sentence-transformers model may bring its own; for one that has none, and for an endpoint, which
adds none, they are set by the user.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from assets.vectors.encoders.embedder import (
    BadEmbedder,
    Embedder,
    Progress,
    Savable,
    Saved,
    TokenCounter,
    embed_queries,
    measure_reading,
)
from warehouse.storage.digest import sha256

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

    def fill(self, own: "Prompts") -> "Prompts":
        """These, and where one is not given that of the model."""
        query = own.query if self.query is None else self.query
        return Prompts(query, own.document if self.document is None else self.document)

    def mark(self) -> str:
        """What names them in an embedder's id, with another text another one; empty without any."""
        body = json.dumps([self.query, self.document]).encode()
        return f"{_MARK}{sha256(body)[:8]}" if self.given else ""

    def as_dict(self) -> dict[str, str | None]:
        return {"query": self.query, "document": self.document}

    def require_room(self, count: Callable[[str], int], limit: int) -> None:
        """Raises BadEmbedder for one that fills what the model reads. `count`: tokens of a text;
        `limit`: those that the model reads of prompt and text together."""
        for name, text in self.as_dict().items():
            tokens = count(text) if text else 0
            if tokens + _LEAST > limit:
                raise BadEmbedder(
                    f"{name}_prompt has {tokens} tokens, and the model reads {limit} of it and the"
                    f" text together; expected at most {limit - _LEAST}"
                )


class PromptedEmbedder:
    """An embedder whose texts are given to it after the user's prompts. Raises BadEmbedder."""

    def __init__(self, inner: Embedder, prompts: Prompts) -> None:
        if isinstance(inner, TokenCounter):
            prompts.require_room(inner.count_tokens, inner.max_tokens)
        self._inner, self._prompts = inner, prompts
        self.id, self.dim = f"{inner.id}{prompts.mark()}", inner.dim

    def embed(self, texts: Sequence[str], *, on_done: Progress | None = None) -> np.ndarray:
        """Unit vectors [len(texts), dim] of tools' texts."""
        before = self._prompts.document or ""
        return self._inner.embed([f"{before}{text}" for text in texts], on_done=on_done)

    def embed_queries(self, texts: Sequence[str]) -> np.ndarray:
        """Unit vectors [len(texts), dim] of questions."""
        before = self._prompts.query or ""
        return embed_queries(self._inner, [f"{before}{text}" for text in texts])

    def measure_reading(self, texts: Sequence[str]) -> np.ndarray:
        """How much of each text the inner one reads; the prompts are its own words."""
        return measure_reading(self._inner, texts)

    def saved(self) -> Saved:
        """What the inner one writes, and the prompts. Raises BadEmbedder."""
        if not isinstance(self._inner, Savable):
            raise BadEmbedder(f"{self.id}: a {type(self._inner).__name__} cannot be saved")
        held = self._inner.saved()
        return replace(held, facts={**held.facts, "prompts": self._prompts.as_dict()})


def add_prompts(embedder: Embedder, prompts: Prompts) -> Embedder:
    """The embedder after these prompts; itself where none is given. Raises BadEmbedder."""
    return PromptedEmbedder(embedder, prompts) if prompts.given else embedder


def read_prompts(card: dict[str, Any]) -> Prompts:
    """The prompts of a saved encoder. Raises ValueError where they are no texts."""
    held = card.get("prompts")
    if held is None:
        return Prompts()
    if not isinstance(held, dict) or set(held) - {"query", "document"}:
        raise ValueError(f"prompts is {str(held)[:60]}, expected {{query, document}}")
    for name, text in held.items():
        if text is not None and not isinstance(text, str):
            raise ValueError(f"prompts: {name} is {text!r:.60}, expected a text")
    return Prompts(held.get("query"), held.get("document"))


def drop_mark(name: str, prompts: Prompts) -> str:
    """The id of the inner embedder."""
    return name.removesuffix(prompts.mark()) if prompts.given else name
