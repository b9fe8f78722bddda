"""The table `drift`: one row a signal, and its history over all publications."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from training.drift.decide import Decision, describe_decisions, list_due_roles
from training.drift.evidence import TrainingEvidence
from training.drift.signals import CONTRACTS, SIGNALS, ContractMoves, DriftSignal
from training.role import RETRIEVER
from warehouse.json_types import Row
from warehouse.storage.tables import Tables, TableSpec

_MOST_POINTS = 120  # of a history: four months of nightly runs

DRIFT = TableSpec(
    name="drift",
    key=("signal",),
    columns={
        "signal": (pl.String, f"one of {', '.join(SIGNALS)}"),
        "value": (pl.Float64, "Value; null where it was not measured"),
        "low": (pl.Float64, "Bound of the 95% interval"),
        "high": (pl.Float64, "Bound of the 95% interval"),
        "n": (pl.Int64, "Units behind the value"),
        "p_value": (
            pl.Float64,
            "p-value of a test that nothing changed; null where all was counted",
        ),
        "threshold": (pl.Float64, "Threshold at which the signal fires"),
        "fired": (pl.Boolean, "Whether the value exceeds the threshold beyond chance"),
        "why": (pl.String, "What was found, or why nothing was measured"),
        "role": (pl.String, "Role since whose last training it was measured"),
        "known": (pl.Int64, "Contracts at the last training; counts in the row contracts"),
        "changed": (pl.Int64, "Tools whose contract changed since"),
        "new": (pl.Int64, "Tools added since"),
        "gone": (pl.Int64, "Tools removed since"),
        "training_set": (pl.String, "Digest of the current training set"),
        "trained_on": (pl.String, "Digest of the last set that was trained on; null where none"),
        "retrain": (pl.Boolean, "Whether a role was due to train when this was measured"),
        "reasons": (pl.String, "Why each role trains, or does not"),
    },
    volatile=("retrain", "reasons"),  # a cool-down ends by itself: that is no other drift
    schema_version=3,
)


def make_drift_rows(
    signals: Sequence[DriftSignal],
    moves: ContractMoves,
    evidence: TrainingEvidence,
    decisions: Mapping[str, Decision],
) -> list[dict[str, Any]]:
    """Rows of DRIFT, measured since the retriever's last training; the decisions are those of all
    roles, and the sensor decides again for itself."""
    counts = {name: getattr(moves, name) for name in ("known", "changed", "new", "gone")}
    shared = {
        "role": RETRIEVER,
        "training_set": evidence.home.training_set,
        "trained_on": evidence.roles[RETRIEVER].trained_on,
        "retrain": bool(list_due_roles(decisions)),
        "reasons": "; ".join(describe_decisions(decisions)),
    }
    rows = []
    for signal in signals:
        figures = signal.as_row()
        named = {"signal": figures.pop("name"), **figures, **shared}
        rows.append({**named, **counts} if signal.name == CONTRACTS else named)
    return rows


def sort_signals(rows: Sequence[Row]) -> list[Row]:
    """Rows of DRIFT in the order in which signals are shown."""
    known = [row for row in rows if row["signal"] in SIGNALS]
    return sorted(known, key=lambda row: SIGNALS.index(row["signal"]))


def read_drift_history(tables: Tables) -> dict[str, list[dict[str, Any]]]:
    """Signal -> its points over all publications, oldest first: {at (epoch seconds), value, low,
    high, threshold, fired}. Versions of before there were signals have none."""
    figures = ("value", "low", "high", "threshold", "fired")
    points: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for head in tables.history(DRIFT.name)[-_MOST_POINTS:]:
        for row in tables.read(DRIFT, as_of=head.at).to_dicts():
            if row["signal"] in SIGNALS:
                point = {name: row[name] for name in figures}
                points[row["signal"]].append({"at": head.at} | point)
    return dict(points)


def describe_drift(tables: Tables) -> dict[str, Any] | None:
    """What a report tells of drift: {signals: rows of DRIFT, history}; None before it was
    measured. The decision of then is left out: what was decided since is in the champions."""
    rows = sort_signals(tables.read(DRIFT).drop(DRIFT.volatile).to_dicts())
    return {"signals": rows, "history": read_drift_history(tables)} if rows else None
