"""Whether an outside set repeats what we trained on: exact copies, shared n-grams, near-duplicates.

Four questions are asked of every item; one yes makes it contaminated:
- exact: the same words in the same order as a training text (case, punctuation and width apart);
- contained: it is shorter than an n-gram, of LEAST words or more, and stands whole in one;
- overlap: of its n-grams at least SHARE occur in training texts;
- near: the cosine to a training text is COSINE or more, by the base embedder.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from training.evaluation.metrics import measure_share
from training.sets.split import TRAIN, iterate_cosine_blocks
from training.sets.training_set import TRAINING_SET
from warehouse.sanitize.untrusted_text import fold_words
from warehouse.store import Warehouse

KINDS = ("exact", "contained", "overlap", "near")
N, SHARE, COSINE = 8, 0.5, 0.95  # words of an n-gram; share of an item's n-grams
LEAST = 4  # words that a short item has to have before being part of another text says anything
Embed = Callable[[Sequence[str]], np.ndarray]


@dataclass(frozen=True)
class ContaminationFlag:
    """What was found of one item: of KINDS. nearest: place of the training text nearest by
    cosine."""

    kinds: tuple[str, ...] = ()
    overlap: float = 0.0
    cosine: float | None = None
    nearest: int | None = None


@dataclass(frozen=True)
class ContaminationReport:
    """The flags of a set in the order of its items, and what they were held against. asked_near:
    whether vectors were compared. short: items with fewer words than LEAST."""

    flags: list[ContaminationFlag]
    trained: int
    asked_near: bool
    short: int = 0

    @property
    def clean(self) -> list[bool]:
        return [not flag.kinds for flag in self.flags]

    def summarise_flags(self, name: str = "") -> dict[str, Any]:
        """JSON: n, trained, short, the rules, and a rate with its interval per kind and for any."""
        n = len(self.flags) if self.trained else 0  # held against nothing, nothing is clean
        rates = {kind: measure_share(sum(kind in f.kinds for f in self.flags), n) for kind in KINDS}
        if not self.asked_near:
            rates["near"] = measure_share(0, 0)  # not asked: no zero of n
        rates["any"] = measure_share(sum(bool(f.kinds) for f in self.flags), n)
        near = f"cosine >= {COSINE:g} (base MiniLM)" if self.asked_near else "not asked"
        return {
            "set": name,
            "n": len(self.flags),
            "trained": self.trained,
            "short": self.short,
            "rules": f"exact: same words; contained: an item of {LEAST} to {N - 1} words whole in a"
            f" training text; overlap: >= {SHARE:.0%} of its {N}-grams; near: {near}",
            "rates": {kind: figure.as_dict() for kind, figure in rates.items()},
        }


def find_contamination(
    items: Sequence[str],
    trained: Sequence[str],
    vectors: tuple[np.ndarray, np.ndarray] | None = None,
) -> ContaminationReport:
    """Flags of every item against the training texts. vectors: unit vectors of `items` and of
    `trained`, by the same embedder; without them nearness is not asked. Raises ValueError where
    they do not fit the texts."""
    vocabulary: dict[str, int] = {}

    def index_words(text: str) -> tuple[int, ...]:
        return tuple(vocabulary.setdefault(word, len(vocabulary)) for word in fold_words(text))

    ours, theirs = [index_words(text) for text in trained], [index_words(text) for text in items]
    whole = {words for words in ours if words}
    grams = {
        n: {gram for words in ours for gram in _iterate_grams(words, n)}
        for n in {min(len(words), N) for words in theirs}
    }
    near = _find_nearest_texts(vectors, len(items), len(trained)) if vectors else None
    flags = []
    for place, words in enumerate(theirs):
        known = [gram in grams[N] for gram in _iterate_grams(words, N)]
        overlap = sum(known) / len(known) if known else 0.0
        cosine = None if near is None else round(float(near[0][place]), 4)
        answers = {
            "exact": words in whole,
            "contained": LEAST <= len(words) < N and words in grams[len(words)],
            "overlap": bool(known) and overlap >= SHARE,
            "near": cosine is not None and cosine >= COSINE,
        }
        kinds = tuple(kind for kind in KINDS if answers[kind])
        nearest = None if near is None else int(near[1][place])
        flags.append(ContaminationFlag(kinds, round(overlap, 4), cosine, nearest))
    few = sum(len(words) < LEAST for words in theirs)
    return ContaminationReport(flags, len(trained), vectors is not None, few)


def _iterate_grams(words: tuple[int, ...], n: int) -> Iterator[tuple[int, ...]]:
    return (words[start : start + n] for start in range(len(words) - n + 1))


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


def check_against_training(
    warehouse: Warehouse,
    texts: Sequence[str],
    name: str,
    embed: Embed | None = None,
    *,
    column: str = "instruction",
) -> tuple[ContaminationReport, dict[str, Any]]:
    """(flags in the order of the texts, their summary) against a column of the train split: its
    requests, or `positive`, tools' texts. embed: of the base embedder; None does without."""
    rows = warehouse.tables.read(TRAINING_SET).filter(split=TRAIN)
    trained = sorted({*rows[column].drop_nulls().to_list()})
    vectors = (embed(texts), embed(trained)) if embed is not None and trained and texts else None
    report = find_contamination(texts, trained, vectors)
    head = warehouse.tables.head(TRAINING_SET.name)
    return report, {**report.summarise_flags(name), "training_set": head.digest if head else ""}
