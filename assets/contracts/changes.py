"""Contract history: every contract a server ever had, what changed, and what each tool first was.

`fold_changes` and `fold_origins` read the snapshots published since the last run, in the order of
publication, as a clock may be put back. A tool that vanishes keeps its origin: one that leaves and
comes back changed is the very thing to look for.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from operator import itemgetter
from typing import Any

import polars as pl

from assets.columns import read_table_spec
from assets.contracts.snapshot import SNAPSHOTS, format_date
from assets.contracts.tool_diff import compare_tools
from assets.contracts.tool_renames import find_renames
from warehouse.errors import UnusableInput
from warehouse.json_types import JsonObject, Record, Row
from warehouse.sanitize.untrusted_text import escape_text
from warehouse.storage.digest import canonical_json
from warehouse.storage.tables import StagedVersion, TableHead, Tables

CHANGES = read_table_spec(__file__, "contract_changes")
_WHY = 500  # characters


def add_changes(
    history: Iterable[JsonObject], old: Iterable[JsonObject], new: Iterable[JsonObject], now: float
) -> list[Record]:
    """`history` (rows of CHANGES) and what changed from snapshot rows `old` to `new`.

    A server that is new has no changes. One that two marketplaces list counts once. now: epoch
    seconds.
    """
    run_date = format_date(now)
    before, after = _group_by_server(old), _group_by_server(new)
    key = itemgetter(*CHANGES.key)
    rows: dict[tuple[Any, ...], Record] = {key(row): dict(row) for row in history}
    for server in sorted(before):
        for row in _compare_server(server, before[server], after.get(server, {}), run_date):
            rows.setdefault(key(row), row)
    return sorted(rows.values(), key=key)


def _compare_server(
    server: str, old: Mapping[str, JsonObject], new: Mapping[str, JsonObject], run_date: str
) -> Sequence[Record]:
    was, now = ({tool: row["contract_digest"] for tool, row in of.items()} for of in (old, new))
    if was == now:
        return []
    changes = compare_tools(
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
        for change in changes
    ]


def _group_by_server(rows: Iterable[JsonObject]) -> dict[str, dict[str, JsonObject]]:
    by_server: dict[str, dict[str, JsonObject]] = {}
    for row in rows:
        by_server.setdefault(row["server_id"], {}).setdefault(row["tool"], row)
    return by_server


class UnknownServer(UnusableInput):
    """A server of which no contract was ever published."""


def collect_history(tables: Tables, server_id: str) -> dict[str, Any]:
    """{"server_id", "tools": [{tool, contracts: [{contract_digest, first_seen, last_seen, current,
    marketplaces}]}], "changes": [{run_date, tool, class, fields, renamed_from, why}]}.

    Oldest first; names are escaped. Raises UnknownServer.
    """
    contracts: dict[tuple[str, str], dict[str, Any]] = {}
    for market in tables.partitions(SNAPSHOTS.name):
        now = tables.head(SNAPSHOTS.name, market)
        for head in tables.history(SNAPSHOTS.name, market):
            rows = tables.read(SNAPSHOTS, market, as_of=head.at)
            for row in rows.filter(pl.col("server_id") == server_id).to_dicts():
                facts = {c: row[c] for c in ("contract_digest", "first_seen", "last_seen")}
                entry = contracts.setdefault(
                    (row["tool"], row["contract_digest"]),
                    {**facts, "current": False, "marketplaces": []},
                )
                entry["first_seen"] = min(entry["first_seen"], row["first_seen"])
                entry["last_seen"] = max(entry["last_seen"], row["last_seen"] or "")
                entry["current"] |= now is not None and head.digest == now.digest
                if market not in entry["marketplaces"]:
                    entry["marketplaces"].append(market)
    if not contracts:
        raise UnknownServer(
            f"{server_id[:120]}: no contract of this server was ever published; a server is named"
            " as in the snapshots, e.g. npm:@scope/name"
        )
    tools: dict[str, list[dict[str, Any]]] = {}
    for (tool, _), contract in sorted(contracts.items(), key=lambda item: item[1]["first_seen"]):
        tools.setdefault(tool, []).append(contract)
    changes = tables.read(CHANGES).filter(pl.col("server_id") == server_id)
    return {
        "server_id": server_id,
        "tools": [{"tool": escape_text(tool), "contracts": tools[tool]} for tool in sorted(tools)],
        "changes": [
            {
                "run_date": row["run_date"],
                "tool": escape_text(row["tool"]),
                "class": row["cls"],
                "fields": [escape_text(field) for field in json.loads(row["fields"])],
                "renamed_from": escape_text(row["renamed_from"]) if row["renamed_from"] else None,
                "why": row["why"],
            }
            for row in changes.sort("run_date", "tool").to_dicts()
        ],
    }


READ_RULE = "snapshots_read"  # the rule whose verdict keeps up to which publications were read
_UNTIL = " until "


def split_publications(
    tables: Tables, partition: str, last: str | None, since: float
) -> tuple[list[TableHead], list[TableHead]]:
    """(read, unread) publications of a marketplace's snapshots, in their order. last: the moment of
    the last one that was read; where it is none of theirs, those after `since` (epoch seconds) are
    unread."""
    heads = tables.history(SNAPSHOTS.name, partition)
    places = [place for place, head in enumerate(heads) if format_moment(head.at) == last]
    cut = places[-1] + 1 if places else sum(head.at <= since for head in heads)
    return heads[:cut], heads[cut:]


def fold_changes(tables: Tables) -> tuple[list[Record], str]:
    """(rows of CHANGES with what the unread publications changed, which ones are read now)."""
    head = tables.head(CHANGES.name)
    marks, published = _read_marks(head), head.at if head else 0.0
    last = dict(marks or {})
    states: dict[str, list[Record]] = {}
    due: list[tuple[float, str, TableHead]] = []
    for name in tables.partitions(SNAPSHOTS.name):
        since = published if marks is None or name in marks else 0.0
        read, unread = split_publications(tables, name, last.get(name), since)
        states[name] = _read_rows(tables, name, read[-1]) if read else []
        turn = 0.0  # a publication never goes before the one that it replaced
        for publication in unread:
            turn = max(turn, publication.at)
            due.append((turn, name, publication))
        if heads := read + unread:
            last[name] = format_moment(heads[-1].at)
    rows = tables.read(CHANGES).to_dicts()
    for _, name, publication in sorted(due, key=itemgetter(0, 1)):
        before = list(chain.from_iterable(states.values()))
        states[name] = _read_rows(tables, name, publication)
        rows = add_changes(rows, before, chain.from_iterable(states.values()), publication.at)
    return rows, "; ".join(f"{name}{_UNTIL}{moment}" for name, moment in sorted(last.items()))


def format_moment(at: float) -> str:
    """The UTC time of epoch seconds, by which a publication is known again."""
    return datetime.fromtimestamp(at, UTC).isoformat()


def _read_rows(tables: Tables, partition: str, head: TableHead) -> list[Record]:
    return tables.read_publication(SNAPSHOTS, partition, head).to_dicts()


def _read_marks(head: TableHead | None) -> dict[str, str] | None:
    """Marketplace -> the moment of the last publication that the published changes know, of each
    that they know; None where they are of before the rule. Not when they were published: a
    marketplace may have been meanwhile."""
    audit = head.audit if head else []
    observed = next((row["observed"] for row in audit if row.get("rule") == READ_RULE), None)
    if observed is None:
        return None
    pairs = (part.partition(_UNTIL) for part in observed.split("; "))
    return {name: moment for name, sign, moment in pairs if sign}


State = dict[tuple[str, str], dict[str, Any]]

ORIGINS = read_table_spec(__file__, "contract_origins")
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
