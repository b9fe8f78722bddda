"""The table `drift`, one row a signal, and how a page shows it."""

from collections.abc import Mapping, Sequence
from typing import Any

from assets.columns import read_table_spec
from training.drift.decide import Decision, describe_decisions, list_due_roles
from training.drift.evidence import TrainingEvidence
from training.drift.signals import SIGNALS, DriftSignal
from training.figures import NONE, Json, format_table
from training.role import RETRIEVER
from warehouse.json_types import Row
from warehouse.sanitize.markdown import Markdown, fill_markdown, join_markdown

DRIFT = read_table_spec(__file__, "drift")


def make_drift_rows(
    signals: Sequence[DriftSignal], evidence: TrainingEvidence, decisions: Mapping[str, Decision]
) -> list[dict[str, Any]]:
    """Rows of DRIFT, measured since the retriever's last training; the decisions are those of all
    roles, and the sensor decides again for itself."""
    shared = {
        "training_set": evidence.home.training_set,
        "trained_on": evidence.roles[RETRIEVER].trained_on,
        "retrain": bool(list_due_roles(decisions)),
        "reasons": "; ".join(describe_decisions(decisions)),
    }
    figures = [signal.as_row() for signal in signals]
    return [{"signal": row.pop("name"), **row, **shared} for row in figures]


def sort_signals(rows: Sequence[Row]) -> list[Row]:
    """Rows of DRIFT in the order in which signals are shown."""
    known_rows = [row for row in rows if row["signal"] in SIGNALS]
    return sorted(known_rows, key=lambda row: SIGNALS.index(row["signal"]))


_TITLES = {
    "contracts": "Contracts that moved",
    "retriever_decay": "Retriever's frozen items lost",
    "new_tools": "Right tool first: others less new contracts",
}


def render_drift_table(rows: Sequence[Json]) -> Markdown:
    """Rows of DRIFT as a table, whatever was measured first."""
    measured = sorted(sort_signals(rows), key=lambda row: row["value"] is None)
    lines = [
        [
            _TITLES[row["signal"]],
            _format_value(row),
            f"{row['threshold']:g}",
            "–" if row["p_value"] is None else f"{row['p_value']:.3g}",
            row["n"] or NONE,
            "fired" if row["fired"] else "",
            row["why"],
        ]
        for row in measured
    ]
    head = ["signal", "value [95%]", "threshold", "p", "n", "", "what was found"]
    return join_markdown("\n", format_table(head, lines))


def _format_value(row: Json) -> Markdown:
    if row["value"] is None:
        return NONE
    if row["low"] is None:
        return fill_markdown("{:.3f}", row["value"])
    return fill_markdown("{:.3f} [{:.3f}, {:.3f}]", row["value"], row["low"], row["high"])


def render_drift_part(rows: Sequence[Json]) -> Markdown:
    """The part of a report: what had moved before this run decided whether to train."""
    table = render_drift_table(rows) if rows else Markdown("Not measured in this run.")
    return join_markdown("\n", [Markdown("## Drift"), table])
