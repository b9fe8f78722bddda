"""The router: a request in words, the best tools out, each with the reason why.

What belongs here: scoring one query against a loaded index, and following the served pointer.
What does not: building an index (`index.py`), the command line (`byhand.py`).

The score is `dense + 0.25 * lexical`: the cosine to the tool's text, plus its BM25 divided by the
best BM25 in the pool, so that an exact name or rare word can lift a tool that the vector missed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from assets.vectors.embed import Embedder, MiniLM
from serving.index import Entry, Index, IndexBroken, load_index, served_version

LEXICAL_WEIGHT = 0.25
_MAX_QUERY = 4_000  # characters; the encoder reads the first 128 word pieces anyway


class BadQuery(ValueError):
    """A query that cannot be answered, with what was found and expected."""


@dataclass(frozen=True)
class Hit:
    """One tool for a query. `why` holds the two scores and the words in common."""

    tool_id: str
    score: float
    description: str
    why: dict[str, Any]


class Router:
    """Answers queries from one index with the encoder that made it."""

    def __init__(self, index: Index, encoder: Embedder) -> None:
        if encoder.id != index.embedder:
            raise IndexBroken(
                f"router index {index.version[:12]} was made by {index.embedder}, the encoder is"
                f" {encoder.id}; materialize router_index again"
            )
        self.index = index
        self._encoder = encoder

    def search(self, query: str, k: int = 5) -> list[Hit]:
        """The best `k` tools, best first (fewer when the index is smaller). Raises BadQuery."""
        return self.search_many([query], k)[0]

    def search_many(self, queries: Sequence[str], k: int = 5) -> list[list[Hit]]:
        """`search` for many queries, encoded together. Raises BadQuery."""
        if k < 1:
            raise BadQuery(f"k is {k}; expected at least 1")
        cleaned = [_cleaned(query) for query in queries]
        dense = self._encoder.embed(cleaned) @ self.index.vectors.T
        return [self._rank(query, row, k) for query, row in zip(cleaned, dense, strict=True)]

    def _rank(self, query: str, dense: np.ndarray, k: int) -> list[Hit]:
        lexical = self.index.lexical.scores(query)
        best = float(lexical.max(initial=0.0))
        lexical = lexical / best if best > 0 else lexical
        score = dense + LEXICAL_WEIGHT * lexical
        k = min(k, len(score))
        top = np.argpartition(-score, k - 1)[:k]
        # Ties go to the earlier tool, so that an answer is the same on every machine.
        top = sorted(top.tolist(), key=lambda i: (-round(float(score[i]), 6), i))
        return [self._hit(query, i, score, dense, lexical) for i in top]

    def _hit(
        self, query: str, i: int, score: np.ndarray, dense: np.ndarray, lexical: np.ndarray
    ) -> Hit:
        entry: Entry = self.index.entries[i]
        why = {
            "dense": round(float(dense[i]), 4),
            "lexical": round(float(lexical[i]), 4),
            "words": self.index.lexical.shared_words(query, i)[:5],
        }
        return Hit(entry.tool_id, round(float(score[i]), 4), entry.description, why)


class ServedRouter:
    """The router of whatever index is served now: it follows the pointer between two queries."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._router: Router | None = None

    def current(self) -> Router:
        """Raises IndexMissing or IndexBroken with the mend."""
        version = served_version(self._home)
        if self._router is None or self._router.index.version != version:
            self._router = open_router(self._home, version)
        return self._router


def open_router(home: Path, version: str | None = None) -> Router:
    """Loads a version (the served one by default) with its encoder."""
    index = load_index(home, version or served_version(home))
    adapter = home / "models" / index.adapter if index.adapter else None
    return Router(index, MiniLM(adapter))


def _cleaned(query: str) -> str:
    text = " ".join(query[:_MAX_QUERY].split())
    if not text:
        raise BadQuery("the query is empty; expected what the tool should do, in words")
    return text
