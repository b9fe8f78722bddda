"""The arms of the ablations: which rows and settings each learns with, and what is compared.

filtered   accepted pairs, hard negatives: what a run trains on
raw        whole pairs before any filter and judge, as many as `filtered` has
raw_all    the same, all of them
random     as `filtered`, but negatives (candidates, for the caller) drawn at random
plain      accepted pairs that were never made harder by evolution
mixed      accepted pairs of both kinds, as many as `plain` has
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from assets.contracts.canonical import tool_text
from assets.synthesis.tables import ONE_CALL
from assets.vectors.encoders.embedder import Embedder
from extensions.bench.ablation_options import ARMS
from training.runtime.model_store import TrainingFailed
from training.sets.build import make_set
from training.sets.split import TRAIN, SetPolicy
from warehouse.json_types import Row
from warehouse.store import Warehouse

FILTERED, RAW, RAW_ALL, RANDOM, PLAIN, MIXED = ARMS
UNTRAINED = "untrained"  # the base, for reference: no arm of its own


@dataclass(frozen=True)
class ArmContrast:
    """Two arms that differ by one thing; `same_n`: whether they learn from as many rows."""

    name: str
    question: str
    one: str
    other: str
    same_n: bool


CONTRASTS = (
    ArmContrast("filtered - raw", "do filters and judge help?", FILTERED, RAW, True),
    ArmContrast(
        "filtered - raw, all rows", "and if raw keeps all it has?", FILTERED, RAW_ALL, False
    ),
    ArmContrast("hard - random", "do hard negatives help?", FILTERED, RANDOM, True),
    ArmContrast("evolved and plain - plain", "does evolution help?", MIXED, PLAIN, True),
    ArmContrast(
        "evolved and plain - plain, all rows", "and with all rows?", FILTERED, PLAIN, False
    ),
)


@dataclass(frozen=True)
class ArmTrainingRows:
    """What one arm learns with under one seed."""

    rows: list[Row]
    random: bool  # whether its distractors are drawn at random


def select_arm_rows(
    arm: str, accepted: Sequence[Row], raw: Sequence[Row], seed: int
) -> ArmTrainingRows:
    """An arm's rows, drawn by `seed` where there are more than it takes. Both sets may hold other
    splits; only train rows are learnt from, and none that a test row repeats.

    Raises TrainingFailed where the arm has no rows.
    """
    kept = [row for row in accepted if row["split"] == TRAIN]
    if arm in (RAW, RAW_ALL):
        rows = _select_single_calls(_select_unseen_rows(raw, accepted))
        rows = _draw_rows(rows, len(_select_single_calls(kept)), seed) if arm == RAW else rows
    elif arm == PLAIN:
        rows = [row for row in kept if not row.get("evolved")]
    elif arm == MIXED:
        plain = [row for row in kept if not row.get("evolved")]
        rows = _draw_rows(_select_single_calls(kept), len(_select_single_calls(plain)), seed)
    else:
        rows = kept
    rows = _select_single_calls(rows)
    if not rows:
        raise TrainingFailed(
            f"ablation arm {arm} has no rows ({len(kept)} accepted train rows, {len(raw)} raw);"
            " make pairs first, or leave it out of `arms`"
        )
    return ArmTrainingRows(rows, arm == RANDOM)


def list_contrasts(arms: Sequence[str]) -> list[ArmContrast]:
    """The comparisons that a choice of arms allows."""
    return [item for item in CONTRASTS if {item.one, item.other} <= set(arms)]


def _select_single_calls(rows: Sequence[Row]) -> list[Row]:
    """Every arm learns from one kind of task, so that arms differ by one thing."""
    return [row for row in rows if (row.get("task") or ONE_CALL[0]) in ONE_CALL]


def _select_unseen_rows(raw: Sequence[Row], accepted: Sequence[Row]) -> list[Row]:
    """Raw train rows that no test row repeats, by id or by words. A tool's held-out pairs depend on
    which pairs there are, and with raw ones there are more."""
    tested = [row for row in accepted if row["split"] != TRAIN]
    names = {row["pair_id"] for row in tested}
    texts = {_normalise_words(row["instruction"]) for row in tested}
    return [
        row
        for row in raw
        if row["split"] == TRAIN
        and row["pair_id"] not in names
        and _normalise_words(row["instruction"]) not in texts
    ]


def _draw_rows(rows: Sequence[Row], n: int, seed: int) -> list[Row]:
    """`n` of the rows, in their order."""
    ordered = sorted(rows, key=lambda row: row["pair_id"])
    places = random.Random(f"ablation {seed}").sample(range(len(ordered)), min(n, len(ordered)))
    return [ordered[at] for at in sorted(places)]


def _normalise_words(text: str) -> str:
    return " ".join(text.casefold().split())


@dataclass(frozen=True)
class ArmSets:
    """Rows of two training sets over the same contracts, and the contracts."""

    name: str  # of the accepted set
    accepted: list[dict[str, Any]]
    raw: list[dict[str, Any]]
    pool: dict[str, dict[str, Any]]

    @property
    def texts(self) -> list[str]:
        """All tool texts, what a retriever's answer is ranked among."""
        return sorted({tool_text(entry["contract"]) for entry in self.pool.values()})


def build_ablation_sets(
    warehouse: Warehouse, embedder: Embedder, policy: SetPolicy | None = None
) -> ArmSets:
    """Both sets of the current tables; the firewall and the leak rules hold for raw pairs too."""
    chosen = make_set(warehouse, embedder, policy)
    raw = make_set(warehouse, embedder, policy, choose=select_complete_pairs)
    return ArmSets(chosen.name, chosen.made.rows, raw.made.rows, chosen.made.pool)


def select_complete_pairs(pairs: Sequence[Row], _: Sequence[Row]) -> list[dict[str, Any]]:
    """Pairs that were written to their end, whatever a filter or the judge says of them."""
    kept = {
        row["pair_id"]: dict(row)
        for row in reversed(pairs)
        if row["status"] == "ok" and row["task"] in ONE_CALL
    }
    return [kept[name] for name in sorted(kept)]
