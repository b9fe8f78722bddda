"""BM25 over tool texts: the lexical half of the router and the baseline every model is set beside.

What belongs here: words of a text, the inverted index, its scores. What does not: fusion with
vectors (`serving/router.py`).
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_K1, _B = 1.2, 0.75
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
# A CJK or Thai character stands for itself: those scripts put no space between words.
_WORD = re.compile(r"[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff]|[^\W_\u0e00-\u9fff]+|[^\W_]")
_STOP_WORDS = """a an and are as at be by can do for from has have i if in into is it its me my of
on or our please so that the their then there this to up us was we what when which will with would
you your"""
_STOP = frozenset(_STOP_WORDS.split())


def words(text: str) -> list[str]:
    """Lower-case words; camelCase and snake_case are split, stop words and a plural `s` dropped."""
    found = (word.lower() for word in _WORD.findall(_CAMEL.sub(" ", text)))
    return [_singular(word) for word in found if word not in _STOP]


def _singular(word: str) -> str:
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


@dataclass(frozen=True)
class BM25:
    """An inverted index in flat arrays: `documents[starts[t]:starts[t + 1]]` hold term t, and
    `weights` are their final BM25 contributions."""

    terms: dict[str, int]
    starts: np.ndarray  # int64 [terms + 1]
    documents: np.ndarray  # int32 [postings]
    weights: np.ndarray  # float32 [postings]
    size: int

    @classmethod
    def build(cls, texts: Sequence[str]) -> "BM25":
        counts = [Counter(words(text)) for text in texts]
        lengths = np.array([sum(count.values()) for count in counts], np.float32)
        mean = float(lengths.mean()) if len(texts) and lengths.any() else 1.0
        postings: dict[str, list[tuple[int, int]]] = {}
        for place, count in enumerate(counts):
            for term, times in count.items():
                postings.setdefault(term, []).append((place, times))
        ordered = sorted(postings)
        sizes = [len(postings[term]) for term in ordered]
        flat = [pair for term in ordered for pair in postings[term]]
        documents = np.array([place for place, _ in flat], np.int32)
        times = np.array([count for _, count in flat], np.float32)
        df = np.repeat(np.array(sizes, np.float32), sizes)
        idf = np.log1p((len(texts) - df + 0.5) / (df + 0.5))
        norm = times + _K1 * (1 - _B + _B * lengths[documents] / mean)
        return cls(
            terms={term: place for place, term in enumerate(ordered)},
            starts=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
            documents=documents,
            weights=(idf * times * (_K1 + 1) / norm).astype(np.float32),
            size=len(texts),
        )

    def scores(self, query: str) -> np.ndarray:
        """BM25 of every document for the query, float32 [size]; zeros when no word is known."""
        out = np.zeros(self.size, np.float32)
        for term in set(words(query)):
            place = self.terms.get(term)
            if place is not None:
                span = slice(self.starts[place], self.starts[place + 1])
                out[self.documents[span]] += self.weights[span]
        return out

    def shared_words(self, query: str, document: int) -> list[str]:
        """The query's words that the document holds, heaviest first: why it matched."""
        found = []
        for term in set(words(query)):
            place = self.terms.get(term)
            if place is not None:
                span = slice(self.starts[place], self.starts[place + 1])
                at = np.flatnonzero(self.documents[span] == document)
                if len(at):
                    found.append((float(self.weights[span][at[0]]), term))
        return [term for _, term in sorted(found, reverse=True)]
