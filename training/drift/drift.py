"""Drift: how far the contracts have moved since the last training, from the tables."""

from collections.abc import Mapping
from typing import Any

import polars as pl

from assets.contracts.quarantine.clear import read_clear
from assets.contracts.tool_id import ToolId
from training.drift.decide import Decision, DriftState, compute_drift
from training.releases.champion import read_last_trained_set
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
        "known": pl.Int64,  # contracts when it was last trained
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


def read_drift_state(warehouse: Warehouse, *, failed_attempts: int = 0) -> DriftState:
    """The state now: current contracts against those of the last *trained* set."""
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
    )


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
