"""Requests that nearly repeat each other.

What belongs here: finding near-duplicates in a set of texts. What does not: what follows from it.
"""

import re
from collections.abc import Iterable

from assets.synthesis.grounding import fold


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
