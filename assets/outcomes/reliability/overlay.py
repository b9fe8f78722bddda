"""The overlay: what a router tells of its tools' reliability, beside the index, so that no outcome
builds an index anew.

router/RELIABILITY.json   {format, at, overall, rows: [[tool id, contract, mean, low, high, n]]}
"""

import json
from collections.abc import Iterable
from pathlib import Path

from assets.contracts.tool_id import ToolId
from warehouse.json_types import Row
from warehouse.storage.files import write_atomically

OVERLAY, OVERLAY_FORMAT = "RELIABILITY.json", 1


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
