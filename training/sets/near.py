"""Texts that are nearly one: by their words, or by vectors of the base embedder."""

import re
from collections.abc import Callable, Iterator, Sequence

import numpy as np

Embed = Callable[[Sequence[str]], np.ndarray]
_BLOCK = 1024  # rows whose cosines are held at once: 40 MB against 10,000 columns
_WORD = re.compile(r"\w+")


def normalise_request(text: str) -> str:
    """The words alone: case, punctuation and white space make no other request."""
    return " ".join(_WORD.findall(text.casefold())) or " ".join(text.casefold().split())


def make_cached_embed(embed: Embed) -> Embed:
    """`embed` that asks for no text twice: building and auditing ask for the same."""
    known: dict[str, np.ndarray] = {}

    def asked(texts: Sequence[str]) -> np.ndarray:
        lacking = sorted(set(texts) - known.keys())
        if lacking:
            known.update(zip(lacking, embed(lacking), strict=True))
        return np.stack([known[text] for text in texts]) if len(texts) else np.zeros((0, 1))

    return asked


def iterate_cosine_blocks(left: np.ndarray, right: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """(first row, cosines of a block of unit vectors `left` with all of `right`)."""
    if not len(right):
        return
    for start in range(0, len(left), _BLOCK):
        yield start, left[start : start + _BLOCK] @ right.T


def find_nearest_texts(
    left: Sequence[str], right: Sequence[str], embed: Embed, above: float
) -> dict[str, str]:
    """Texts of `left` that are nearly one of `right` (cosine over `above`) -> the nearest."""
    if not left or not right:
        return {}
    rows, columns = sorted(set(left)), sorted(set(right))
    found: dict[str, str] = {}
    for start, cosines in iterate_cosine_blocks(embed(rows), embed(columns)):
        best = cosines.argmax(axis=1)
        for at in np.flatnonzero(cosines[np.arange(len(best)), best] > above):
            found[rows[start + at]] = columns[best[at]]
    return found


def find_near_pairs(
    left: Sequence[str], right: Sequence[str], embed: Embed, above: float
) -> dict[str, list[str]]:
    """Texts of `left` -> every text of `right` that is nearly it, by words or by cosine."""
    rows, columns = sorted(set(left)), sorted(set(right))
    if not rows or not columns:
        return {}
    worded: dict[str, list[str]] = {}
    for text in columns:
        worded.setdefault(normalise_request(text), []).append(text)
    found = {text: set(worded.get(normalise_request(text), ())) for text in rows}
    for start, cosines in iterate_cosine_blocks(embed(rows), embed(columns)):
        for at, other in zip(*np.nonzero(cosines > above), strict=True):
            found[rows[start + at]].add(columns[other])
    return {text: sorted(others) for text, others in found.items() if others}
