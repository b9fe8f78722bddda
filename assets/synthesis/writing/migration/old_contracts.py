"""Contracts that were published once, and what stands in their place now."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from typing import Any

import polars as pl

from assets.contracts.snapshot import SNAPSHOTS
from assets.contracts.tool_renames import find_renames
from assets.synthesis.tables import read_contract
from assets.synthesis.writing.migration.moved_arguments import Unmovable
from warehouse.item_failure import try_item
from warehouse.json_types import Row
from warehouse.storage.tables import Tables


def read_old_contracts(
    tables: Tables,
    digests: Collection[str],
    marketplace: str | None = None,
    *,
    as_of: float | None = None,
) -> dict[str, dict[str, Any]]:
    """digest -> snapshot row of each of `digests` in what was ever published, and of every tool
    that its server listed beside it then.

    The latest publication (before `as_of`) that holds a digest counts; reading stops when all are
    found. Of one marketplace, or of all. Digests that nothing published holds are left out.
    """
    found: dict[str, dict[str, Any]] = {}
    due = set(digests)
    markets = [marketplace] if marketplace else tables.partitions(SNAPSHOTS.name)
    for market in markets:
        seen: set[str] = set()
        for head in reversed(tables.history(SNAPSHOTS.name, market)):
            if not due:
                return found
            if head.digest in seen or (as_of is not None and head.at > as_of):
                continue
            seen.add(head.digest)
            frame = tables.read(SNAPSHOTS, market, as_of=head.at)
            held = frame.filter(pl.col("contract_digest").is_in(list(due)))
            beside = frame.filter(pl.col("server_id").is_in(held["server_id"].to_list()))
            for row in beside.to_dicts():
                found.setdefault(row["contract_digest"], row)
            due -= found.keys()
    return found


class Contracts:
    """The contracts of before (digest -> snapshot row) and of now (`server_id/tool` -> row).

    `old` should also hold the unchanged neighbours of the tools asked about: a tool that stood
    beside the one that is gone cannot be what it was renamed to.
    """

    def __init__(self, old: Mapping[str, Row], now: Mapping[str, Row]) -> None:
        self.rows = {**{row["contract_digest"]: row for row in now.values()}, **old}
        self.bodies = _read_bodies(self.rows)
        self._then, self._now = _group_by_server(old.values()), _group_by_server(now.values())
        self._renamed: dict[str, dict[str, Row]] = {}

    def find_successor(self, digest: str, server: str, tool: str) -> Row:
        """The row that stands now where a tool stood: by its name, else by a rename. Raises
        Unmovable."""
        if digest not in self.rows:
            raise Unmovable(f"the contract {digest[:15]} was never published")
        here = self._now[server].get(tool) or self._find_renamed_tools(server).get(tool)
        if here is None:
            raise Unmovable(f"{tool}, which it shows or calls, is gone or held")
        return here

    def _find_renamed_tools(self, server: str) -> dict[str, Row]:
        if server not in self._renamed:
            had, has = self._then[server], self._now[server]
            gone = _read_bodies({name: row for name, row in had.items() if name not in has})
            come = _read_bodies({name: row for name, row in has.items() if name not in had})
            self._renamed[server] = {old: has[new] for new, old in find_renames(gone, come).items()}
        return self._renamed[server]


def _read_bodies(rows: Mapping[str, Row]) -> dict[str, dict[str, Any]]:
    """The contracts that can be read, by the names of their rows."""
    found = {
        name: try_item(partial(read_contract, row), lambda _: None) for name, row in rows.items()
    }
    return {name: body for name, body in found.items() if body is not None}


def _group_by_server(rows: Iterable[Row]) -> dict[str, dict[str, Row]]:
    found: dict[str, dict[str, Row]] = defaultdict(dict)
    for row in rows:
        found[row["server_id"]].setdefault(row["tool"], row)
    return found
