"""An outside set against the pairs of the current training set, kept for the report."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from extensions.bench.outside.contamination import Bounds, Contamination, find_contamination
from training.evaluation.saved import CONTAMINATION, save_evaluation
from training.sets.split import TRAIN
from training.sets.training_set import TRAINING_SET
from warehouse.store import Warehouse

Embed = Callable[[Sequence[str]], np.ndarray]


@dataclass(frozen=True)
class Found:
    """The flags in the order of the items; their summary; the flagged items with the training text
    nearest to each."""

    found: Contamination = field(repr=False)
    summary: dict[str, Any]
    flagged: list[dict[str, Any]] = field(repr=False)


def check_against_training(
    warehouse: Warehouse,
    texts: Sequence[str],
    name: str,
    bounds: Bounds | None = None,
    embed: Embed | None = None,
) -> Found:
    """Holds texts against the requests of the train split. The summary is kept under
    `<home>/evaluations` by the set's name. embed: of the base embedder; None does without."""
    bounds = bounds or Bounds()
    trained = read_trained_texts(warehouse)
    vectors = None
    if embed is not None and bounds.cosine and trained and texts:
        vectors = (embed(texts), embed(trained))
    found = find_contamination(texts, trained, bounds, vectors)
    head = warehouse.tables.head(TRAINING_SET.name)
    summary = {**found.summarise_flags(name), "training_set": head.digest if head else ""}
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
        for place, flag in enumerate(found.flags)
        if flag.contaminated
    ]
    return Found(found, summary, flagged)


def read_trained_texts(warehouse: Warehouse) -> list[str]:
    """The requests that models were trained on."""
    rows = warehouse.tables.read(TRAINING_SET).filter(split=TRAIN)
    return sorted(set(rows["instruction"].drop_nulls().to_list()))
