"""Whether an outside set repeats what we trained on: exact copies, shared n-grams, near-duplicates.

Four questions are asked of every item; one yes makes it contaminated:
- exact: the same words in the same order as a training text (case, punctuation and width apart);
- contained: it is shorter than an n-gram, of `least` words or more, and stands whole in one;
- overlap: of its n-grams at least `share` occur in training texts;
- near: the cosine to a training text is `cosine` or more, by the base embedder.
"""

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from training.evaluation.metrics import MetricFigure, bootstrap_mean, measure_share
from training.evaluation.saved import CONTAMINATION, save_evaluation
from training.sets.split import TRAIN, iterate_cosine_blocks
from training.sets.training_set import TRAINING_SET
from warehouse.errors import UnusableInput
from warehouse.sanitize.untrusted_text import fold_words
from warehouse.store import Warehouse
from warehouse.user_files import parse_json, read_json_lines, read_text, require_object

KINDS = ("exact", "contained", "overlap", "near")


@dataclass(frozen=True)
class ContaminationBounds:
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
class ContaminationFlag:
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
class ContaminationReport:
    """The flags of a set in the order of its items, and what they were held against."""

    flags: list[ContaminationFlag]
    trained: int
    bounds: ContaminationBounds
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
    bounds: ContaminationBounds | None = None,
    vectors: tuple[np.ndarray, np.ndarray] | None = None,
) -> ContaminationReport:
    """Flags of every item against the training texts.

    vectors: unit vectors of `items` and of `trained`, by the same embedder; without them nearness
    is not asked, and the rules told say so. Raises ValueError where they do not fit the texts.
    """
    bounds = bounds or ContaminationBounds()
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
        overlap = _compute_overlap(at, grams, bounds)
        short = bounds.least <= len(at) < bounds.n
        cosine = None if near is None else round(float(near[0][place]), 4)
        held = {
            "exact": at in whole,
            "contained": short and at in grams[len(at)],
            "overlap": len(at) >= bounds.n and overlap >= bounds.share,
            "near": cosine is not None and cosine >= (bounds.cosine or 0.0),
        }
        kinds = tuple(kind for kind in KINDS if held[kind])
        nearest = None if near is None else int(near[1][place])
        flags.append(ContaminationFlag(kinds, round(overlap, 4), cosine, nearest))
    few = sum(len(at) < bounds.least for at in theirs_at)
    return ContaminationReport(flags, len(trained), bounds, few)


def measure_all_and_clean(
    values: Sequence[float], groups: Sequence[str], clean: Sequence[bool]
) -> dict[str, dict[str, Any]]:
    """A measure over all items and over the clean ones: {"all": figure, "clean": figure}."""
    kept = [(v, g) for v, g, ok in zip(values, groups, clean, strict=True) if ok]
    only: MetricFigure = bootstrap_mean([v for v, _ in kept], [g for _, g in kept])
    return {"all": bootstrap_mean(values, groups).as_dict(), "clean": only.as_dict()}


def _index_words(words: Iterable[str], vocabulary: dict[str, int]) -> tuple[int, ...]:
    return tuple(vocabulary.setdefault(word, len(vocabulary)) for word in words)


def _collect_known_grams(
    texts: Sequence[tuple[int, ...]], lengths: Iterable[int]
) -> Mapping[int, set]:
    """Every n-gram of the training texts, for the lengths that are asked for."""
    return {n: {gram for text in texts for gram in _iterate_grams(text, n)} for n in lengths}


def _compute_overlap(
    at: tuple[int, ...], grams: Mapping[int, set], bounds: ContaminationBounds
) -> float:
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


Embed = Callable[[Sequence[str]], np.ndarray]


@dataclass(frozen=True)
class ContaminationMatch:
    """The flags in the order of the items; their summary; the flagged items with the training text
    nearest to each."""

    found: ContaminationReport = field(repr=False)
    summary: dict[str, Any]
    flagged: list[dict[str, Any]] = field(repr=False)


def check_against_training(
    warehouse: Warehouse,
    texts: Sequence[str],
    name: str,
    bounds: ContaminationBounds | None = None,
    embed: Embed | None = None,
) -> ContaminationMatch:
    """Holds texts against the requests of the train split. The summary is kept under
    `<home>/evaluations` by the set's name. embed: of the base embedder; None does without."""
    bounds = bounds or ContaminationBounds()
    trained = read_trained_texts(warehouse)
    vectors = None
    if embed is not None and bounds.cosine and trained and texts:
        vectors = (embed(texts), embed(trained))
    contamination = find_contamination(texts, trained, bounds, vectors)
    head = warehouse.tables.head(TRAINING_SET.name)
    summary = {**contamination.summarise_flags(name), "training_set": head.digest if head else ""}
    save_evaluation(warehouse.home, CONTAMINATION, name, summary)
    flagged = [
        {
            "item": place,
            "kinds": list(flag.kinds),
            "overlap": flag.overlap,
            "cosine": flag.cosine,
            "text": texts[place][:200],
            "nearest": None if flag.nearest is None else trained[flag.nearest][:200],
        }
        for place, flag in enumerate(contamination.flags)
        if flag.contaminated
    ]
    return ContaminationMatch(contamination, summary, flagged)


def read_trained_texts(warehouse: Warehouse) -> list[str]:
    """The requests that models were trained on."""
    rows = warehouse.tables.read(TRAINING_SET).filter(split=TRAIN)
    return sorted(set(rows["instruction"].drop_nulls().to_list()))


FIELDS = ("instruction", "query", "question", "text", "prompt", "utterance", "input")


def read_texts(path: Path, field: str | None = None) -> list[str]:
    """The text of every row, in order. field: None takes the first of FIELDS that the rows have,
    whatever its case. Raises UnusableInput."""
    rows = list(_iterate_rows(path))
    if not rows:
        raise UnusableInput(f"{path}: found no rows; expected one JSON object a line, or a CSV")
    name = _choose_field(path, rows[0][1], field)
    return [_read_field_text(where, row, name) for where, row in rows]


def _iterate_rows(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(where it stands, the row)."""
    text = read_text(path)
    if path.suffix.lower() == ".csv":
        for number, row in enumerate(csv.DictReader(io.StringIO(text, newline="")), 2):
            yield f"{path}, row {number}", row
    elif text.lstrip().startswith("["):
        for number, row in enumerate(parse_json(text, path), 1):
            where = f"{path}, entry {number}"
            yield where, require_object(row, where)
    else:
        for number, row in read_json_lines(path):
            yield f"{path}, line {number}", row


def _choose_field(path: Path, row: Mapping[str, Any], wanted: str | None) -> str:
    names = {str(name).casefold(): str(name) for name in row}
    for name in (wanted,) if wanted else FIELDS:
        if name.casefold() in names:
            return names[name.casefold()]
    expected = f"field {wanted!r}" if wanted else f"one of {', '.join(FIELDS)}"
    held = ", ".join(list(names.values())[:12]) or "none"
    raise UnusableInput(
        f"{path}: found fields {held[:300]}; expected {expected}; name it by --field"
    )


def _read_field_text(where: str, row: Mapping[str, Any], name: str) -> str:
    value = row.get(name)
    if not isinstance(value, str):
        found = type(value).__name__
        raise UnusableInput(f"{where}: {name!r} is {found}; expected a text")
    return value
