"""What a decision to train stands on beside the signals: what was learnt, when, at what cost."""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from training.adapter_table import read_last_summary
from training.drift.decide import LastRun, RetrainPolicy, TrainedOn, TrainingBudget
from training.releases.champion import (
    read_champion,
    read_last_attempt_time,
    read_last_trained_set,
)
from training.role import BASE, is_same_base
from training.runtime.model_store import read_model_card, select_recipe
from training.sets.set_audit import load_manifest
from training.sets.split import TRAIN
from training.sets.training_set import TRAINING_SET
from warehouse.store import Warehouse

ROLE = "retriever"  # the role whose training follows drift; the others are trained beside it
_MONTH_S = 30 * 86_400.0
_TRAININGS = "train:"  # their stages in the ledger begin so

Recipes = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class DriftFacts:
    """The arguments of a decision, but for the signals."""

    accepted_new: int
    trained_on: TrainedOn
    last_run: LastRun
    budget: TrainingBudget

    def as_arguments(self) -> tuple[int, TrainedOn, LastRun, TrainingBudget]:
        """As `decide_retraining` takes them."""
        return self.accepted_new, self.trained_on, self.last_run, self.budget


def read_facts(
    warehouse: Warehouse,
    recipes: Recipes | None,
    policy: RetrainPolicy,
    *,
    gpus: int = 1,
    failed_attempts: int = 0,
) -> DriftFacts:
    """The facts now. recipes: role -> base and hyper-parameters, as the settings say. gpus: that a
    training takes. The ledger is opened only where a budget is set."""
    home, head = warehouse.home, warehouse.tables.head(TRAINING_SET.name)
    trained_on = read_last_trained_set(home, ROLE)
    then = load_manifest(home, trained_on) if trained_on else None
    current = head.digest if head else None
    rows = warehouse.tables.read(TRAINING_SET).filter(pl.col("split") == TRAIN)
    known = TrainedOn(
        current,
        trained_on if then or trained_on == current else None,
        len(rows),
        list_changed_settings(home, recipes or {}),
    )
    limited = policy.gpu_hours_month is not None or policy.usd_month is not None
    return DriftFacts(
        count_new_rows(then, load_manifest(home, current) if current else None, rows["pair_id"]),
        known,
        read_last_run(warehouse, failed_attempts),
        read_budget(warehouse, gpus) if limited else TrainingBudget(),
    )


def count_new_rows(
    then: Mapping[str, Any] | None, now: Mapping[str, Any] | None, learnt: pl.Series
) -> int:
    """How many rows to learn from are others than those of the set that was trained on, by their
    digests in the manifests of both; all where a manifest tells none."""
    before = (then or {}).get("row_digests")
    after = (now or {}).get("row_digests")
    if before is None or after is None:
        return len(learnt)
    return sum(before.get(name) != after.get(name) for name in learnt)


def read_last_run(warehouse: Warehouse, failed_attempts: int = 0) -> LastRun:
    """When the retriever was last trained, and the upper end of what that brought."""
    summary = read_last_summary(warehouse, ROLE)
    gain = float(summary["gain_at_1"]["high"]) if summary else None
    return LastRun(read_last_attempt_time(warehouse.home, ROLE), gain, failed_attempts)


def read_budget(warehouse: Warehouse, gpus: int = 1, now: float | None = None) -> TrainingBudget:
    """GPU hours of the trainings of the last 30 days by the ledger, and those of one of each
    role."""
    since = (time.time() if now is None else now) - _MONTH_S
    spent = _sum_hours(warehouse.ledger.costs(since))
    ever = _sum_hours(warehouse.ledger.costs())
    each = sum(hours / done for hours, done in ever.values() if done)
    return TrainingBudget(sum(hours for hours, _ in spent.values()) * gpus, each * gpus)


def _sum_hours(costs: list[dict[str, Any]]) -> dict[str, tuple[float, int]]:
    """Stage of a training -> (hours, trainings that were done); failed ones took hours too."""
    result: dict[str, tuple[float, int]] = {}
    for row in costs:
        if row["stage"].startswith(_TRAININGS):
            hours, done = result.get(row["stage"], (0.0, 0))
            came = row["effects"] if row["status"] == "done" else 0
            result[row["stage"]] = (hours + row["seconds"] / 3600, done + came)
    return result


def list_changed_settings(home: Path, recipes: Recipes) -> tuple[str, ...]:
    """Hyper-parameters that a role's last candidate was trained by other values of, as
    `retriever.epochs`, and `retriever.base` where it was of another base; none of a role that was
    never trained."""
    found = []
    for role, recipe in recipes.items():
        last = read_champion(home, role).last_candidate.get("model")
        card = (read_model_card(home, last) if last else None) or {}
        if card.get("settings"):
            then = select_recipe(card["settings"])
            now = json.loads(json.dumps(recipe))  # as a card holds them
            trained, base = card.get("base"), now.pop(BASE, None)
            if trained and base and not is_same_base(trained, base):
                found.append(f"{role}.{BASE}")
            names = then.keys() | now.keys()
            found += [f"{role}.{name}" for name in names if then.get(name) != now.get(name)]
    return tuple(sorted(found))
