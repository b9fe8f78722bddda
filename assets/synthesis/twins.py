"""Requests that nearly repeat each other, by the vectors of the configured embedder.

What belongs here: finding near-copies in a set. What does not: what follows from it
(`filters.py`), embedding.

SemHash selects greedily in the order given: the first of its kind stays and every copy points at
it. Below `EXACT` texts neighbours are exact; above, usearch's graph finds them.
"""

import re
from collections.abc import Iterable, Sequence

import numpy as np

from assets.synthesis.grounding import fold

# Exact search of so many 384-dimensional vectors takes seconds; four times as many take a minute.
EXACT = 10_000


class _NoEncoder:
    """SemHash wants an encoder for texts that come later; none do."""

    def encode(self, inputs: object, **_: object) -> np.ndarray:
        raise NotImplementedError("vectors are given")


def twins(texts: Sequence[str], vectors: np.ndarray, above: float) -> list[int | None]:
    """For each text the index of the earlier, kept text that it nearly repeats, or None.

    `vectors`: one unit vector a text. A text repeats another when their cosine is `above` or more.
    """
    from semhash import SemHash

    if len(texts) < 2:
        return [None] * len(texts)
    backend = "basic" if len(texts) <= EXACT else "usearch"
    records = [{"place": str(place)} for place in range(len(texts))]
    index = SemHash.from_embeddings(
        np.asarray(vectors, dtype=np.float32), records, _NoEncoder(), ["place"], backend
    )
    first: list[int | None] = [None] * len(texts)
    for copy in index.self_deduplicate(threshold=above).filtered:
        first[int(copy.record["place"])] = int(copy.duplicate_of["place"])
    return first


def near_duplicates(texts: Iterable[str], threshold: float = 0.85) -> list[int | None]:
    """For each text the index of the first earlier text that it nearly repeats, or None.

    Similarity is Jaccard over character 4-grams; candidates share one of their rarest grams, so
    that a set of thousands is compared in seconds.
    """
    grams = [_grams(text) for text in texts]
    seen: dict[str, list[int]] = {}
    counts: dict[str, int] = {}
    for own in grams:
        for gram in own:
            counts[gram] = counts.get(gram, 0) + 1
    result: list[int | None] = []
    for index, own in enumerate(grams):
        # Sets this alike must share one of any (1 - threshold) * n + 1 of their grams.
        rare = sorted(own, key=lambda g: (counts[g], g))
        probes = rare[: int((1 - threshold) * len(own)) + 1]
        candidates = sorted({other for gram in probes for other in seen.get(gram, ())})
        twin = next((o for o in candidates if _jaccard(own, grams[o]) >= threshold), None)
        result.append(twin)
        if twin is None:
            for gram in probes:
                seen.setdefault(gram, []).append(index)
    return result


def _grams(text: str) -> frozenset[str]:
    flat = re.sub(r"\s+", " ", fold(text)).strip()
    return frozenset(flat[i : i + 4] for i in range(max(1, len(flat) - 3)))


def _jaccard(one: frozenset[str], other: frozenset[str]) -> float:
    return len(one & other) / max(1, len(one | other))
