"""The table of reliability: one row for each version of a tool that is listed or was called."""

import json
from collections.abc import Iterable
from pathlib import Path

import polars as pl

from assets.columns import CONTRACT_DIGEST, SERVER_ID, TOOL
from assets.contracts.tool_id import ToolId
from assets.outcomes.policy import OVERLAY, OVERLAY_FORMAT
from warehouse.json_types import Row
from warehouse.storage.files import write_atomically
from warehouse.storage.tables import TableSpec

RELIABILITY = TableSpec(
    name="reliability",
    key=("server_id", "tool", "contract_digest"),
    columns={
        "server_id": SERVER_ID,
        "tool": TOOL,
        "contract_digest": CONTRACT_DIGEST,
        "current": (pl.Boolean, "Tools listed with this contract now"),
        "category": (pl.String, "From its server"),
        "mean": (pl.Float64, "Expected share of calls that work"),
        "low": (pl.Float64, "Bound of its 95% interval"),
        "high": (pl.Float64, "Bound of its 95% interval"),
        "n": (pl.Float64, "Calls behind the estimate, decayed and weighted; 0: prior only"),
        "prior": (pl.Float64, "Mean of the prior, before its own calls"),
        "carried": (pl.Float64, "Calls of earlier versions that enter the prior"),
        "changed": (pl.String, "Class of the change to this contract; null where none is known"),
        "calls": (pl.Int64, "The same count without decay"),
        "failed": (pl.Int64, "Number of failed calls"),
        "sources": (pl.Int64, "Sources of the calls"),
        "failures": (pl.String, "Failures: JSON object of kind to number of calls"),
        "p50_s": (
            pl.Float64,
            "Latency of calls that worked, in seconds; null where none was timed",
        ),
        "p95_s": (
            pl.Float64,
            "Latency of calls that worked, in seconds; null where none was timed",
        ),
        "last_at": (pl.Float64, "Time of the last call, in epoch seconds; null where none"),
    },
    volatile=("p50_s", "p95_s", "last_at"),
)


def write_overlay(place: Path, rows: Iterable[Row], overall: float, at: float) -> int:
    """Makes rows of RELIABILITY those of a place; a running router sees them at its next query.
    Returns how many they are."""
    entries = [
        [
            str(ToolId.of_row(row)),
            *(row[name] for name in ("contract_digest", "mean", "low", "high", "n")),
        ]
        for row in rows
    ]
    path = place / "router" / OVERLAY
    if not entries and not path.exists():
        return 0
    overlay = {"format": OVERLAY_FORMAT, "at": at, "overall": round(overall, 4), "rows": entries}
    write_atomically(path, json.dumps(overlay).encode())
    return len(entries)
