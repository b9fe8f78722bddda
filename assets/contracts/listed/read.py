"""Which listed contracts a search may show, as it is known at this moment."""

from typing import Any

import polars as pl

from assets.contracts.history.snapshot import SNAPSHOTS
from assets.contracts.listed.table import LISTED, UNVERIFIED
from assets.contracts.quarantine.decisions import Decided, read_decisions
from assets.contracts.quarantine.findings import FINDINGS
from assets.contracts.scan import HIGH
from warehouse.store import Warehouse


def read_unverified(warehouse: Warehouse) -> list[dict[str, Any]]:
    """Rows of LISTED that nobody launched and nothing holds: for a search that was asked to show
    them, with their mark, and for nothing else.

    A server that was launched since is left out, as is a contract that a person or a finding about
    the same contract elsewhere holds. Raises DecisionError when the record of decisions cannot be
    trusted.
    """
    tables = warehouse.tables
    launched = set(tables.read(SNAPSHOTS)["server_id"])
    held = Decided(read_decisions(warehouse.home)).find_held_digests()
    held |= set(tables.read(FINDINGS).filter(severity=HIGH)["contract_digest"])
    rows = tables.read(LISTED).filter(pl.col("standing") == UNVERIFIED).to_dicts()
    return [
        row
        for row in rows
        if row["server_id"] not in launched and row["contract_digest"] not in held
    ]
