"""Changes: what changed in each server's contracts between two snapshots, run by run."""

import json
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import polars as pl

from assets.contracts.history.snapshot import Row, format_date
from assets.contracts.history.tool_diff import compare_tools
from warehouse.json_types import JsonObject
from warehouse.sanitize.escape import escape_text
from warehouse.storage.digest import canonical_json
from warehouse.storage.tables import TableSpec

CHANGES = TableSpec(
    name="contract_changes",
    key=("server_id", "tool", "from_digest", "to_digest", "run_date"),
    columns={
        "server_id": pl.String,
        "tool": pl.String,
        "from_digest": pl.String,  # "" where the tool is new
        "to_digest": pl.String,  # "" where the tool is gone
        "run_date": pl.String,  # UTC date
        "cls": pl.String,  # breaking, compatible, wording, suspicious
        "fields": pl.String,  # JSON list
        "renamed_from": pl.String,
        "why": pl.String,  # about the fields that decide the class; null in rows of older versions
    },
    schema_version=2,
)
_WHY = 500  # characters


def add_changes(
    history: Iterable[JsonObject], old: Iterable[JsonObject], new: Iterable[JsonObject], now: float
) -> list[Row]:
    """`history` (rows of CHANGES) and what changed from snapshot rows `old` to `new`.

    A server that is new has no changes. One that two marketplaces list counts once. now: epoch
    seconds.
    """
    run_date = format_date(now)
    before, after = _group_by_server(old), _group_by_server(new)
    key = itemgetter(*CHANGES.key)
    found: dict[tuple[Any, ...], Row] = {key(row): dict(row) for row in history}
    for server in sorted(before):
        for row in _compare_server(server, before[server], after.get(server, {}), run_date):
            found.setdefault(key(row), row)
    return sorted(found.values(), key=key)


def _compare_server(
    server: str, old: Mapping[str, JsonObject], new: Mapping[str, JsonObject], run_date: str
) -> Sequence[Row]:
    was, now = ({tool: row["contract_digest"] for tool, row in of.items()} for of in (old, new))
    if was == now:
        return []
    found = compare_tools(
        *([json.loads(row["contract"]) for row in of.values()] for of in (old, new))
    )
    return [
        {
            "server_id": server,
            "tool": change.tool,
            "from_digest": was.get(change.renamed_from or change.tool, ""),
            "to_digest": now.get(change.tool, ""),
            "run_date": run_date,
            "cls": change.cls,
            "fields": canonical_json(list(change.fields)).decode(),
            "renamed_from": change.renamed_from,
            "why": escape_text(change.why[:_WHY]),
        }
        for change in found
    ]


def _group_by_server(rows: Iterable[JsonObject]) -> dict[str, dict[str, JsonObject]]:
    found: dict[str, dict[str, JsonObject]] = {}
    for row in rows:
        found.setdefault(row["server_id"], {}).setdefault(row["tool"], row)
    return found
