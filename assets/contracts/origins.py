"""Origins: what each tool of a server was when it was first seen, and before its last change.

The fold goes on where the last one stopped, so a run reads the publications since then and not a
year of them. A tool that vanishes keeps its row: one that leaves and comes back changed is the very
thing to look for.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from assets.columns import SERVER_ID, TOOL
from assets.contracts.changes import format_moment, split_publications
from assets.contracts.snapshot import SNAPSHOTS
from assets.contracts.tool_renames import find_renames
from warehouse.json_types import Row
from warehouse.storage.tables import StagedVersion, Tables, TableSpec

State = dict[tuple[str, str], dict[str, Any]]

ORIGINS = TableSpec(
    name="contract_origins",
    key=("server_id", "tool"),
    columns={
        "server_id": SERVER_ID,
        "tool": TOOL,
        "contract_digest": (pl.String, "Last known value"),
        "contract": (pl.String, "Canonical JSON of the last contract"),
        "first_digest": (
            pl.String,
            "First digest, under this name or the name it was renamed from",
        ),
        "first_contract": (pl.String, "Canonical JSON of the first contract"),
        "before_digest": (pl.String, "Digest of the previous contract; null if it never changed"),
        "before_contract": (pl.String, "Canonical JSON of the previous contract"),
        "gone": (pl.Boolean, "Whether it is missing from the last publication"),
    },
)
_RENAMES_CAP = 400  # pairs of a gone and a new tool that are compared for a rename


@dataclass(frozen=True)
class OriginsFold:
    """The state after the publications up to the time `upto`, staged and not yet current."""

    state: State
    staged: StagedVersion
    upto: float

    def keep(self, tables: Tables, run_id: str) -> None:
        """Makes it current. A kill before it only costs the same fold again."""
        tables.promote(self.staged, run_id, [{"upto": self.upto}])


def fold_origins(tables: Tables, partition: str) -> OriginsFold:
    """Folds what was published since the last fold that was kept."""
    head = tables.head(ORIGINS.name, partition)
    state: State = {
        (row["server_id"], row["tool"]): row for row in tables.read(ORIGINS, partition).to_dicts()
    }
    upto = head.audit[0]["upto"] if head else 0.0
    for published in split_publications(tables, partition, format_moment(upto), upto)[1]:
        rows = tables.read_publication(SNAPSHOTS, partition, published).to_dicts()
        state, upto = advance_state(state, rows), published.at
    return OriginsFold(state, tables.stage(ORIGINS, ORIGINS.frame(state.values()), partition), upto)


def advance_state(state: Mapping[tuple[str, str], Row], rows: Iterable[Row]) -> State:
    """The state after one more publication."""
    current_rows = {(row["server_id"], row["tool"]): row for row in rows}
    out: State = {key: {**row, "gone": key not in current_rows} for key, row in state.items()}
    parents = _find_parents(state, current_rows)
    for key, row in current_rows.items():
        origin = state.get(key) or state.get((key[0], parents.get(key, "")))
        out[key] = _update_origin(row, origin)
    return out


def _update_origin(row: Row, origin: Row | None) -> dict[str, Any]:
    now = {name: row[name] for name in ("server_id", "tool", "contract_digest", "contract")}
    if origin is None:
        first = {"first_digest": row["contract_digest"], "first_contract": row["contract"]}
        return {**now, **first, "before_digest": None, "before_contract": None, "gone": False}
    first_columns = {name: origin[name] for name in ("first_digest", "first_contract")}
    changed = origin["contract_digest"] != row["contract_digest"]
    source = ("contract_digest", "contract") if changed else ("before_digest", "before_contract")
    before = dict(zip(("before_digest", "before_contract"), map(origin.get, source), strict=True))
    return {**now, **first_columns, **before, "gone": False}


def _find_parents(
    state: Mapping[tuple[str, str], Row], current_rows: Mapping[tuple[str, str], Row]
) -> dict[tuple[str, str], str]:
    """Key of a new tool -> name of the tool that went in the same run and is most alike."""
    gone: dict[str, dict[str, Any]] = {}
    come: dict[str, dict[str, Any]] = {}
    for (server, tool), row in current_rows.items():
        if (server, tool) not in state:
            come.setdefault(server, {})[tool] = json.loads(row["contract"])
    for (server, tool), row in state.items():
        if server in come and (server, tool) not in current_rows and not row["gone"]:
            gone.setdefault(server, {})[tool] = json.loads(row["contract"])
    return {
        (server, new): old
        for server, left in gone.items()
        if len(left) * len(come[server]) <= _RENAMES_CAP
        for new, old in find_renames(left, come[server]).items()
    }
