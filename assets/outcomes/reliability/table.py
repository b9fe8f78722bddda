"""The table of reliability: one row for each version of a tool that is listed or was called."""

import json
from collections.abc import Iterable
from pathlib import Path

from assets.columns import read_table_spec
from assets.contracts.tool_id import ToolId
from assets.outcomes.policy import OVERLAY, OVERLAY_FORMAT
from warehouse.json_types import Row
from warehouse.storage.files import write_atomically

RELIABILITY = read_table_spec(__file__, "reliability")


def write_overlay(place: Path, rows: Iterable[Row], overall: float, at: float) -> int:
    """Publishes rows of RELIABILITY to a place's router; returns how many they are."""
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
