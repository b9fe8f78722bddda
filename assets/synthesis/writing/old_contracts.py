"""Contracts that were published once: what a pair of an older contract was written for."""

from collections.abc import Collection
from typing import Any

import polars as pl

from assets.contracts.history.snapshot import SNAPSHOTS
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
