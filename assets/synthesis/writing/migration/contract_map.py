"""Which contract stands where an older one stood: of one server's tools, then and now."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from functools import cached_property
from typing import Any

import polars as pl

from assets.contracts.history.snapshot import SNAPSHOTS
from assets.contracts.schema.tool_renames import renames
from assets.synthesis.common.tables import contract_of
from warehouse.storage.tables import Tables

Row = Mapping[str, Any]


class Book:
    """The contracts of before (digest -> snapshot row) and of now (`server_id/tool` -> row).

    `old` should also hold the unchanged neighbours of the tools asked about: a tool that stood
    beside the one that is gone cannot be what it was renamed to.
    """

    def __init__(self, old: Mapping[str, Row], now: Mapping[str, Row]) -> None:
        self.old, self.now = old, now
        self._follow: dict[tuple[str, str], Row | None] = {}
        self._body: dict[str, dict[str, Any]] = {}

    @cached_property
    def current(self) -> dict[str, Row]:
        """Every contract of now by digest."""
        return {row["contract_digest"]: row for row in self.now.values()}

    def contract(self, row: Row) -> dict[str, Any]:
        """The contract of a snapshot row, read once."""
        digest = row["contract_digest"]
        if digest not in self._body:
            self._body[digest] = contract_of(row)
        return self._body[digest]

    def before(self, digest: str) -> Row | None:
        """The snapshot row of a contract, old or of now; None where it was never seen."""
        return self.old.get(digest) or self.current.get(digest)

    def follow(self, server: str, tool: str) -> Row | None:
        """The row that stands now where a server's tool stood: by its name, else by a rename."""
        key = (server, tool)
        if key not in self._follow:
            same = self.now.get(f"{server}/{tool}")
            self._follow[key] = same or self._renamed(server).get(tool)
        return self._follow[key]

    def follow_digest(self, digest: str) -> Row | None:
        """The same, of a contract of which only the digest is known."""
        if digest in self.current:
            return self.current[digest]
        row = self.old.get(digest)
        return self.follow(row["server_id"], row["tool"]) if row else None

    def _renamed(self, server: str) -> dict[str, Row]:
        """Old tool name -> row of now, of the tools of one server that were renamed."""
        had, has = self._then.get(server, {}), self._today.get(server, {})
        gone = {name: self.contract(row) for name, row in had.items() if name not in has}
        come = {name: self.contract(row) for name, row in has.items() if name not in had}
        return {old: has[new] for new, old in renames(gone, come).items()}

    @cached_property
    def _then(self) -> dict[str, dict[str, Row]]:
        return _by_server(self.old.values())

    @cached_property
    def _today(self) -> dict[str, dict[str, Row]]:
        return _by_server(self.now.values())


def _by_server(rows: Collection[Row]) -> dict[str, dict[str, Row]]:
    found: dict[str, dict[str, Row]] = defaultdict(dict)
    for row in rows:
        found[row["server_id"]].setdefault(row["tool"], row)
    return found


def old_contracts(
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
            for row in _beside(tables, market, head.at, due):
                found.setdefault(row["contract_digest"], row)
            due -= found.keys()
    return found


def _beside(tables: Tables, market: str, at: float, due: set[str]) -> list[dict[str, Any]]:
    frame = tables.read(SNAPSHOTS, market, as_of=at)
    held = frame.filter(pl.col("contract_digest").is_in(list(due)))
    return frame.filter(pl.col("server_id").is_in(held["server_id"].to_list())).to_dicts()
