"""Drift: how far the contracts have moved since the last training, from the tables."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from assets.contracts.quarantine.clear import read_clear
from assets.contracts.tool_id import ToolId
from training.drift.bases import BASE, is_same_base, read_card_base
from training.drift.decide import Decision, DriftState, compute_drift
from training.releases.champion import read_champion, read_last_trained_set
from training.runtime.model_store import read_model_card, select_recipe
from training.sets.audit.manifest import load_manifest
from training.sets.split import TRAIN
from training.sets.training_set import TRAINING_SET
from warehouse.storage.tables import TableSpec
from warehouse.store import Warehouse

ROLE = "retriever"  # the role whose training follows drift; the others are trained beside it

DRIFT = TableSpec(
    name="drift",
    key=("role",),
    columns={
        "role": pl.String,
        "known": (pl.Int64, "contracts when it was last trained"),
        "changed": pl.Int64,
        "new": pl.Int64,
        "gone": pl.Int64,
        "share": pl.Float64,
        "training_set": pl.String,
        "trained_on": pl.String,
        "retrain": pl.Boolean,
        "reasons": pl.String,
    },
)


def read_drift_state(
    warehouse: Warehouse,
    recipes: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    failed_attempts: int = 0,
) -> DriftState:
    """The state now: current contracts against those of the last *trained* set, and the settings
    (`recipes`: role -> base and hyper-parameters) against those of the last candidates."""
    now = {str(ToolId.of_row(row)): row["contract_digest"] for row in read_clear(warehouse)}
    trained_on = read_last_trained_set(warehouse.home, ROLE)
    manifest = load_manifest(warehouse.home, trained_on) if trained_on else None
    known = manifest["contracts"] if manifest else None
    head = warehouse.tables.head(TRAINING_SET.name)
    rows = warehouse.tables.read(TRAINING_SET).filter(pl.col("split") == TRAIN)
    return compute_drift(
        known,
        now,
        training_set=head.digest if head else None,
        trained_on=trained_on,
        train_rows=len(rows),
        failed_attempts=failed_attempts,
        settings=list_changed_settings(warehouse.home, recipes or {}),
    )


def list_changed_settings(home: Path, recipes: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
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
            trained, base = read_card_base(card), now.pop(BASE, None)
            if trained and base and not is_same_base(trained, base):
                found.append(f"{role}.{BASE}")
            names = then.keys() | now.keys()
            found += [f"{role}.{name}" for name in names if then.get(name) != now.get(name)]
    return tuple(sorted(found))


def make_drift_row(state: DriftState, decision: Decision) -> Mapping[str, Any]:
    """The row of DRIFT for the dashboard; the sensor decides again for itself."""
    figures = ("known", "changed", "new", "gone", "training_set", "trained_on")
    return {
        "role": ROLE,
        **{name: getattr(state, name) for name in figures},
        "share": round(state.share, 6),
        "retrain": decision.retrain,
        "reasons": "; ".join(decision.reasons),
    }
