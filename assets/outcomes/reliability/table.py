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
        "current": (pl.Boolean, "listed with this contract now"),
        "category": (pl.String, "of its server"),
        "mean": (pl.Float64, "expected share of calls that work"),
        "low": (pl.Float64, "of its 95% interval"),
        "high": (pl.Float64, "of its 95% interval"),
        "n": (pl.Float64, "calls that it rests on, decayed and weighed; 0: on the prior alone"),
        "prior": (pl.Float64, "mean before its own calls"),
        "carried": (pl.Float64, "calls of earlier versions that are part of the prior"),
        "changed": (pl.String, "class of the change to this contract; null: none is known"),
        "calls": (pl.Int64, "that count, undecayed"),
        "failed": (pl.Int64, "of the calls"),
        "sources": (pl.Int64, "that made the calls"),
        "failures": (pl.String, "JSON object: kind of failure -> calls"),
        "p50_s": (pl.Float64, "of the calls that worked; null: none was timed"),
        "p95_s": (pl.Float64, "of the calls that worked; null: none was timed"),
        "last_at": (pl.Float64, "epoch seconds of the last call; null: none"),
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
    held = {"format": OVERLAY_FORMAT, "at": at, "overall": round(overall, 4), "rows": entries}
    write_atomically(path, json.dumps(held).encode())
    return len(entries)
