"""What launches lead to: a server that is tried again after a failure, or whose tools are known,
leads to less than one that nobody has launched yet."""

from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from typing import Any

import polars as pl

from assets.contracts.quarantine.clear import CLEAR
from assets.servers.deploy.deployment_table import DEPLOYMENTS
from warehouse.storage.tables import Head, Tables, TableSpec

_VERSIONS = 8  # the last ones of a table, of each marketplace


def weigh_launches(tables: Tables, servers: Collection[str]) -> float:
    """Model calls and executions that launches of these servers lead to, as share of what as many
    servers of this home led to on average: whose tools are known leads to those of the contracts
    that an update changes, and who failed to those of the share that came back.

    Both shares are those of the last versions of the tables.
    """
    rows = tables.read(DEPLOYMENTS)
    known = set(tables.read(CLEAR)["server_id"])
    failed = set(rows.filter(pl.col("status") == "failed")["server_id"]) - known
    everyone = rows["server_id"].n_unique()
    listing = len(set(rows.filter(pl.col("status") == "ok")["server_id"]))
    updated, again = set(servers) & known, set(servers) & failed
    weights = float(len(set(servers) - updated - again))
    if updated:
        weights += len(updated) * measure_changed(tables) * everyone / max(listing, 1)
    if again:
        weights += len(again) * measure_recovered(tables) * everyone / max(listing, 1)
    return weights


def measure_recovered(tables: Tables) -> float:
    """The share of launches after a failure that came to tools; (k + 1) / (n + 2) of n, as few are
    seen."""
    tried = came = 0
    for before, after in _list_pairs(tables, DEPLOYMENTS):
        then = {row["server_id"]: row for row in before.iter_rows(named=True)}
        for row in after.iter_rows(named=True):
            old = then.get(row["server_id"])
            if old and old["status"] == "failed" and old["probed_at"] != row["probed_at"]:
                tried, came = tried + 1, came + (row["status"] == "ok")
    return (came + 1) / (tried + 2)


def measure_changed(tables: Tables) -> float:
    """The share of an updated server's contracts that were others than before; all, before an
    update was seen."""
    total = new = 0
    for before, after in _list_pairs(tables, CLEAR):
        then, now = (_group_contracts(frame) for frame in (before, after))
        for server in then.keys() & now.keys():
            if then[server] != now[server]:
                total, new = total + len(now[server]), new + len(now[server] - then[server])
    return new / total if total else 1.0


def _list_pairs(tables: Tables, spec: TableSpec) -> Iterator[tuple[pl.DataFrame, pl.DataFrame]]:
    """Each of the last versions beside the one before it."""
    for name in tables.partitions(spec.name):
        heads: Sequence[Head] = tables.history(spec.name, name)[-_VERSIONS:]
        frames = (tables.read(spec, name, as_of=head.at) for head in heads)
        yield from pairwise(frames)


def _group_contracts(frame: pl.DataFrame) -> dict[str, set[Any]]:
    groups = frame.group_by("server_id").agg("contract_digest")
    return {server: set(digests) for server, digests in groups.iter_rows()}
