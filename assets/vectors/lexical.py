"""BM25 over tool texts: the lexical half of the router, and the baseline of every model."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from assets.vectors.lexicon import stem_plural

_K1, _B = 1.2, 0.75
# Usual is up to three times the mass of nine of ten texts, and of nine of ten other servers. In 17
# sets at most 2% of a pool's texts hold more; one that repeats forty requests holds eight times it.
_USUAL, _MANY, _DILUTION = 0.9, 3, 4  # share of the servers, times, power
# And in any case up to so many words that nobody else says: where most tools say next to nothing,
# and where fewer than eight others are there to say what is usual.
_FLOOR, _FEW, _FLOOR_OF_FEW = 12, 8, 100
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
# A CJK or Thai character stands for itself: those scripts put no space between words.
_WORD = re.compile(r"[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff]|[^\W_\u0e00-\u9fff]+|[^\W_]")
_STOP_WORDS = """a an and are as at be by can do for from has have i if in into is it its me my of
on or our please so that the their then there this to up us was we what when which will with would
you your"""
FUNCTION_WORDS = frozenset(_STOP_WORDS.split())


def split_words(text: str) -> list[str]:
    """Lower-case words; camelCase and snake_case are split, stop words and a plural `s` dropped."""
    words = (word.lower() for word in _WORD.findall(_CAMEL.sub(" ", text)))
    return [stem_plural(word) for word in words if word not in FUNCTION_WORDS]


_SUFFIX_LIST = """izations ization ations ation ments ment nesses ness ingly ings ing edly ed ies
iest ier es ers er ors or ions ion ally al ives ive ly"""
_SUFFIXES = tuple(_SUFFIX_LIST.split())


def stem_words(text: str) -> list[str]:
    """`words` without their inflection: create, created, creation and creator are one."""
    return [_stem_word(word) for word in split_words(text)]


@lru_cache(maxsize=65_536)
def _stem_word(word: str) -> str:
    if len(word) < 5 or not word.isascii():
        return word
    suffix = next((s for s in _SUFFIXES if word.endswith(s) and len(word) - len(s) >= 3), "")
    word = word.removesuffix(suffix)
    if len(word) > 4 and word[-1] == word[-2] and word[-1] not in "ls":
        word = word[:-1]
    return word[:-1] if len(word) > 3 and word[-1] in "eiy" else word


@dataclass(frozen=True)
class BM25:
    """Inverted index: `documents[starts[t]:starts[t + 1]]` hold term t with final `weights`."""

    terms: dict[str, int]
    starts: np.ndarray  # int64 [terms + 1]
    documents: np.ndarray  # int32 [postings]
    weights: np.ndarray  # float32 [postings]
    size: int
    stemmed: bool = False

    @classmethod
    def build(cls, texts: Sequence[str], *, stemmed: bool = False) -> "BM25":
        cut = stem_words if stemmed else split_words
        counts = [Counter(cut(text)) for text in texts]
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
        idf = _measure_rarity(df, len(texts))
        norm = times + _K1 * (1 - _B + _B * lengths[documents] / mean)
        return cls(
            terms={term: place for place, term in enumerate(ordered)},
            starts=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
            documents=documents,
            weights=(idf * times * (_K1 + 1) / norm).astype(np.float32),
            size=len(texts),
            stemmed=stemmed,
        )

    def score(self, query: str) -> np.ndarray:
        """BM25 of every document for the query, float32 [size]; zeros when no word is known."""
        return self.sum_scores(self.cut_query(query))

    def cut_query(self, query: str) -> list[str]:
        """The query's terms as this index has them, each once."""
        return sorted(set(stem_words(query) if self.stemmed else split_words(query)))

    def sum_scores(self, terms: Iterable[str], documents: np.ndarray | None = None) -> np.ndarray:
        """The weights of these terms in each document, or in `documents` alone, float32."""
        out = np.zeros(self.size if documents is None else len(documents), np.float32)
        for term in terms:
            place = self.terms.get(term)
            if place is None:
                continue
            if documents is not None:
                at, present = self._find_postings(place, documents)
                out[present] += self.weights[at[present]]
            else:
                start, end = self.starts[place], self.starts[place + 1]
                # A term stands once in a document's postings, so no sum is lost.
                out[self.documents[start:end]] += self.weights[start:end]
        return out

    def bound_score(self, terms: Iterable[str]) -> float:
        """What no document's score exceeds, however often it held every term."""
        return (_K1 + 1) * self.sum_rarity(terms)

    def sum_rarity(self, terms: Iterable[str]) -> float:
        """IDF of the terms together; one that no document holds counts as the rarest there is."""
        places = [self.terms.get(term) for term in terms]
        known_places = [place for place in places if place is not None]
        unknown = float(_measure_rarity(np.zeros(1, np.float32), self.size)[0])
        return float(self._rarity[known_places].sum()) + unknown * (len(places) - len(known_places))

    def match_rarity(self, terms: Iterable[str], documents: np.ndarray) -> np.ndarray:
        """Cosine of terms and each document's words, weighed by IDF, float32 [documents], 0..1."""
        terms, shared = list(terms), np.zeros(len(documents), np.float32)
        for term in terms:
            place = self.terms.get(term)
            if place is not None:
                shared[self._find_postings(place, documents)[1]] += self._rarity[place]
        return shared / np.sqrt(np.maximum(self._masses[documents] * self.sum_rarity(terms), 1e-9))

    @cached_property
    def _rarity(self) -> np.ndarray:
        """IDF of each term, float32 [terms]."""
        return _measure_rarity(np.diff(self.starts).astype(np.float32), self.size)

    @cached_property
    def _masses(self) -> np.ndarray:
        """IDF of the terms of each document together, float32 [size]."""
        each = np.repeat(self._rarity, np.diff(self.starts))
        return np.bincount(self.documents, each, self.size).astype(np.float32)

    def measure_credit(self, owners: np.ndarray) -> np.ndarray:
        """What a match in each document is worth, float32 [size]: 1 for texts of usual mass, the
        fourth power of what is usual by what is said for others. BM25 forgives length, so that a
        text which repeats what everybody asks would be found by all of it.

        owners: the server of each document. Usual is what nine of ten texts hold, and no more than
        nine of ten other servers do in the median: however many texts a server lists, it does not
        set its own scale.
        """
        nonempty = np.flatnonzero(self._masses > 0)
        servers, at = np.unique(owners[nonempty], return_inverse=True)
        order = np.argsort(at, kind="stable")
        ends = np.cumsum(np.bincount(at, minlength=len(servers)))[:-1]
        votes = [np.median(of) for of in np.split(self._masses[nonempty][order], ends) if len(of)]
        few = len(servers) <= _FEW
        floor = (_FLOOR_OF_FEW if few else _FLOOR) * self.sum_rarity([""])
        texts = np.quantile(self._masses[nonempty], _USUAL) if len(nonempty) else 0.0
        typical = np.minimum(_find_quantile_of_others(np.array(votes)), texts)
        usual = np.maximum(_MANY * typical, floor)
        credit = np.ones(self.size, np.float32)
        credit[nonempty] = np.minimum(usual[at] / self._masses[nonempty], 1.0) ** _DILUTION
        return credit

    def _find_postings(self, place: int, documents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Where the term's postings name each document, and whether they do, both [documents]."""
        start, end = int(self.starts[place]), int(self.starts[place + 1])
        postings = self.documents[start:end]  # in rising order
        at = np.minimum(np.searchsorted(postings, documents), end - start - 1)
        return start + at, postings[at] == documents

    def find_shared(self, query: str, documents: np.ndarray) -> list[list[str]]:
        """The query's words that each document holds, heaviest first: why it matched."""
        shared: list[list[tuple[float, str]]] = [[] for _ in documents]
        for term in self.cut_query(query):
            place = self.terms.get(term)
            if place is None:
                continue
            at, present = self._find_postings(place, documents)
            for which in np.flatnonzero(present).tolist():
                shared[which].append((float(self.weights[at[which]]), term))
        return [[term for _, term in sorted(of, reverse=True)] for of in shared]


def _measure_rarity(df: np.ndarray, size: int) -> np.ndarray:
    """IDF of terms that stand in so many of `size` documents."""
    return np.log1p((size - df + np.float32(0.5)) / (df + np.float32(0.5)))


def _find_quantile_of_others(votes: np.ndarray) -> np.ndarray:
    """The _USUAL quantile of all votes but its own for each, float [votes]; 0 for a single one."""
    if len(votes) < 2:
        return np.zeros(len(votes))
    order = np.argsort(votes, kind="stable")
    rank = np.empty(len(votes), np.int64)
    rank[order] = np.arange(len(votes))
    last = len(votes) - 2
    low = int(_USUAL * last)
    part, high = _USUAL * last - low, min(low + 1, last)
    below, above = (votes[order[place + (place >= rank)]] for place in (low, high))
    return below + (above - below) * part
