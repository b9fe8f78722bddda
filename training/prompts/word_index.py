"""Which tools share words with a tool or a request: an index over the texts of a pool."""

import math
import re
from collections.abc import Collection, Mapping

import numpy as np

_WORD = re.compile(r"\w+")


def split_index_words(text: str) -> set[str]:
    return set(_WORD.findall(text.casefold().replace("_", " ")))


class Nearness:
    """Texts by the words they hold; a rarer word weighs more. Exact, and the same everywhere:
    figures are rounded before they are compared and ties fall to the smaller name."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._names = sorted(texts)
        self._words = {name: split_index_words(texts[name]) for name in self._names}
        places: dict[str, list[int]] = {}
        for at, name in enumerate(self._names):
            for word in self._words[name]:
                places.setdefault(word, []).append(at)
        self._places = {word: np.array(held) for word, held in places.items()}
        most = len(self._names) + 1
        self._weights = {word: math.log(most / len(held)) for word, held in places.items()}
        norms = [math.fsum(map(self._weights.__getitem__, self._words[n])) for n in self._names]
        self._norms = np.sqrt(np.maximum(norms, 1e-9))

    def rank_nearest(self, name: str) -> np.ndarray:
        """Places, in the order of the names, of all texts that share a word with this one, itself
        included, the nearest first."""
        scores = np.zeros(len(self._names))
        for word in sorted(self._words[name]):
            scores[self._places[word]] += self._weights[word]
        found = np.flatnonzero(scores)
        near = np.round(scores[found] / self._norms[found], 6)
        return found[np.argsort(-near, kind="stable")]

    def find_sharing(self, words: Collection[str], *, most: float) -> set[str]:
        """Texts that hold one of the words, those left out that more than the share `most` hold."""
        limit = max(1.0, most * len(self._names))
        return {
            self._names[at]
            for word in words
            if word in self._places and len(self._places[word]) <= limit
            for at in self._places[word]
        }
