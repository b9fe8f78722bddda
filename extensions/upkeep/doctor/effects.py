"""Checks of what was paid for: the ledger, and that what tables name of it is there."""

import polars as pl

from extensions.upkeep.doctor.check import NOTICE, RUN, Finding, Home, Looked
from orchestration.tables import ADAPTERS
from training.releases.in_service import find_model_flaw
from warehouse.ledger.database import URL, LedgerUnavailable, find_url
from warehouse.ledger.inspection import measure_health
from warehouse.storage.tables import TableSpec


def check_ledger(at: Home) -> Looked:
    """Whether the database is whole and the answers that it names are there."""
    place = URL if find_url() else "state/ledger.db"
    has = at.blobs.has if at.everything else lambda sha: at.blobs.path(sha).is_file()
    try:
        health = measure_health(at.state / "ledger.db", find_url(), has)
    except LedgerUnavailable as error:
        return Looked(1, [Finding(place, str(error), "put a copy of it back")])
    if health is None:
        return Looked(0)
    findings = []
    if health.blobs_missing:
        problem = f"the answers of {health.blobs_missing} effects are lost"
        fix = f"{RUN}: what is wanted is paid for again; or put a copy of the blobs back"
        findings.append(Finding("blobs", problem, fix))
    if health.unknown:
        problem = f"{health.unknown} attempts of killed runs may have been paid; they count as paid"
        findings.append(Finding(place, problem, "toolmill spend names them", NOTICE))
    return Looked(health.effects, findings)


def check_models(at: Home) -> Looked:
    """Whether the adapter that each role trained last is there, whole."""
    rows = [(table, row) for table in ADAPTERS for row in _read_rows(at, table)]
    found = []
    for table, row in rows:
        if flaw := find_model_flaw(at.home, str(row["role"]), str(row["model"])):
            fix = f"materialize {table.name} again, or restore the latest backup"
            found.append(Finding(f"models/{str(row['model'])[:12]}", flaw, fix))
    return Looked(len(rows), found)


def _read_rows(at: Home, table: TableSpec) -> list[dict]:
    try:
        return at.tables.read(table).to_dicts()
    except (ValueError, OSError, pl.exceptions.PolarsError):
        return []  # `check_pointers` tells of it
