"""Whether an outside set repeats what we trained on: exact copies, shared n-grams, near-duplicates.

Four questions are asked of every item; one yes makes it contaminated:
- exact: the same words in the same order as a training text (case, punctuation and width apart);
- contained: it is shorter than an n-gram, of `least` words or more, and stands whole in one;
- overlap: of its n-grams at least `share` occur in training texts;
- near: the cosine to a training text is `cosine` or more, by the base embedder.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from training.evaluation.metrics import Figure, bootstrap_mean, measure_share
from training.sets.near import iterate_cosine_blocks
from warehouse.sanitize.untrusted_text import fold_words

KINDS = ("exact", "contained", "overlap", "near")


@dataclass(frozen=True)
class Bounds:
    """n: words of an n-gram. share: of an item's n-grams. least: words that a short item has to
    have before being part of another text says anything. cosine: None asks no embedder."""

    n: int = 8
    share: float = 0.5
    least: int = 4
    cosine: float | None = 0.95

    def describe_bounds(self) -> str:
        near = f"cosine >= {self.cosine:g} (base MiniLM)" if self.cosine else "not asked"
        return (
            f"exact: same words; contained: an item of {self.least} to {self.n - 1} words whole in"
            f" a training text; overlap: >= {self.share:.0%} of its {self.n}-grams; near: {near}"
        )


@dataclass(frozen=True)
class Flag:
    """What was found of one item: of KINDS. nearest: place of the training text nearest by
    cosine."""

    kinds: tuple[str, ...] = ()
    overlap: float = 0.0
    cosine: float | None = None
    nearest: int | None = None

    @property
    def contaminated(self) -> bool:
        return bool(self.kinds)


@dataclass(frozen=True)
class Contamination:
    """The flags of a set in the order of its items, and what they were held against."""

    flags: list[Flag]
    trained: int
    bounds: Bounds
    # Items with fewer words than `least`: no n-gram can speak for or against them.
    short: int = 0

    @property
    def clean(self) -> list[bool]:
        return [not flag.contaminated for flag in self.flags]

    def summarise_flags(self, name: str = "") -> dict[str, Any]:
        """JSON: n, trained, short, the rules, and a rate with its interval per kind and for any."""
        n = len(self.flags) if self.trained else 0  # held against nothing, nothing is clean
        rates = {kind: measure_share(sum(kind in f.kinds for f in self.flags), n) for kind in KINDS}
        if not self.bounds.cosine:
            rates["near"] = measure_share(0, 0)  # not asked: no zero of n
        rates["any"] = measure_share(sum(f.contaminated for f in self.flags), n)
        return {
            "set": name,
            "n": len(self.flags),
            "trained": self.trained,
            "short": self.short,
            "rules": self.bounds.describe_bounds(),
            "rates": {kind: figure.as_dict() for kind, figure in rates.items()},
        }


def find_contamination(
    items: Sequence[str],
    trained: Sequence[str],
    bounds: Bounds | None = None,
    vectors: tuple[np.ndarray, np.ndarray] | None = None,
) -> Contamination:
    """Flags of every item against the training texts.

    vectors: unit vectors of `items` and of `trained`, by the same embedder; without them nearness
    is not asked, and the rules told say so. Raises ValueError where they do not fit the texts.
    """
    bounds = bounds or Bounds()
    if vectors is None:
        bounds = replace(bounds, cosine=None)
    vocabulary: dict[str, int] = {}
    ours_at = [_index_words(fold_words(text), vocabulary) for text in trained]
    theirs_at = [_index_words(fold_words(text), vocabulary) for text in items]
    whole = {at for at in ours_at if at}
    grams = _collect_known_grams(ours_at, {min(len(at), bounds.n) for at in theirs_at})
    near = (
        _find_nearest_texts(vectors, len(items), len(trained))
        if bounds.cosine and vectors
        else None
    )
    flags = []
    for place, at in enumerate(theirs_at):
        found = _compute_overlap(at, grams, bounds)
        short = bounds.least <= len(at) < bounds.n
        cosine = None if near is None else round(float(near[0][place]), 4)
        held = {
            "exact": at in whole,
            "contained": short and at in grams[len(at)],
            "overlap": len(at) >= bounds.n and found >= bounds.share,
            "near": cosine is not None and cosine >= (bounds.cosine or 0.0),
        }
        kinds = tuple(kind for kind in KINDS if held[kind])
        nearest = None if near is None else int(near[1][place])
        flags.append(Flag(kinds, round(found, 4), cosine, nearest))
    few = sum(len(at) < bounds.least for at in theirs_at)
    return Contamination(flags, len(trained), bounds, few)


def measure_all_and_clean(
    values: Sequence[float], groups: Sequence[str], clean: Sequence[bool]
) -> dict[str, dict[str, Any]]:
    """A measure over all items and over the clean ones: {"all": figure, "clean": figure}."""
    kept = [(v, g) for v, g, ok in zip(values, groups, clean, strict=True) if ok]
    only: Figure = bootstrap_mean([v for v, _ in kept], [g for _, g in kept])
    return {"all": bootstrap_mean(values, groups).as_dict(), "clean": only.as_dict()}


def _index_words(words: Iterable[str], vocabulary: dict[str, int]) -> tuple[int, ...]:
    return tuple(vocabulary.setdefault(word, len(vocabulary)) for word in words)


def _collect_known_grams(
    texts: Sequence[tuple[int, ...]], lengths: Iterable[int]
) -> Mapping[int, set]:
    """Every n-gram of the training texts, for the lengths that are asked for."""
    return {n: {gram for text in texts for gram in _iterate_grams(text, n)} for n in lengths}


def _compute_overlap(at: tuple[int, ...], grams: Mapping[int, set], bounds: Bounds) -> float:
    """The share of an item's n-grams that training texts have; 0 for an item shorter than one."""
    held = [gram in grams[bounds.n] for gram in _iterate_grams(at, bounds.n)]
    return sum(held) / len(held) if held else 0.0


def _iterate_grams(text: tuple[int, ...], n: int) -> Iterator[tuple[int, ...]]:
    return (text[start : start + n] for start in range(len(text) - n + 1))


def _find_nearest_texts(
    vectors: tuple[np.ndarray, np.ndarray], items: int, trained: int
) -> tuple[np.ndarray, np.ndarray] | None:
    """(greatest cosine, place of that training text) per item, in blocks."""
    theirs, ours = vectors
    if len(theirs) != items or len(ours) != trained:
        raise ValueError(
            f"contamination: {len(theirs)} and {len(ours)} vectors for {items} items and"
            f" {trained} training texts; expected one each"
        )
    if not items or not trained:
        return None
    cosines = (block for _, block in iterate_cosine_blocks(theirs, ours))
    best = [(block.max(axis=1), block.argmax(axis=1)) for block in cosines]
    return np.concatenate([of for of, _ in best]), np.concatenate([at for _, at in best])
