"""Server summaries: a few sentences on what each server's tools do, out of their contracts.

MCP-Zero matches a request for a server against its description *and* such a summary.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import polars as pl

from assets.columns import ERROR_KIND, HINT, SERVER_ID
from assets.synthesis.offline_summaries import make_readable, write_summary
from assets.vectors.index import read_contract
from warehouse.item_failure import INTERNAL, tell_failure, try_item
from warehouse.json_types import JsonObject, Row
from warehouse.storage.tables import TableSpec

SUMMARIES = TableSpec(
    name="server_summaries",
    key=("server_id",),
    columns={
        "server_id": SERVER_ID,
        "summary": (pl.String, 'Two or three sentences; "" where it failed'),
        "tools": (pl.Int64, "Number of contracts"),
        "status": (pl.String, "ok or failed"),
        "error_kind": ERROR_KIND,
        "hint": HINT,
    },
    schema_version=2,
)


def make_summaries(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Rows of SUMMARIES, one per server. rows: clear contracts of any number of marketplaces."""
    contracts: dict[str, dict[str, JsonObject]] = defaultdict(dict)
    for row in rows:
        contracts[row["server_id"]][row["contract_digest"]] = read_contract(row)
    return [_summarise(server, list(contracts[server].values())) for server in sorted(contracts)]


def _summarise(server: str, contracts: Sequence[JsonObject]) -> dict[str, Any]:
    row = {"server_id": server, "summary": "", "tools": len(contracts)}
    write = partial(write_summary, make_readable(server), contracts)
    return try_item(
        lambda: {**row, "status": "ok", "summary": write()},
        lambda hint: {**row, "status": "failed", "error_kind": INTERNAL, "hint": hint},
    )


def find_summary_flaws(rows: Sequence[Row], floor: float = 0.5) -> list[str]:
    """The audit's question: are too many servers without any summary?"""
    empty = [row for row in rows if not row["summary"]]
    if len(empty) <= floor * len(rows):
        return []
    why = tell_failure(empty[0]["error_kind"], empty[0]["hint"])
    first = f"{empty[0]['server_id']}: {why}"
    return [f"{len(empty)} of {len(rows)} servers have no summary, e.g. {first}"]
