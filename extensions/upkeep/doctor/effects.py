"""Checks of what was paid for: the ledger, and that what tables name of it is there."""

import polars as pl

from extensions.upkeep.doctor.check import NOTICE, RUN, Finding, Home, Looked
from orchestration.tables import ADAPTERS
from training.releases.in_service import find_model_flaw
from warehouse.ledger.files import LedgerUnavailable, find_journal
from warehouse.ledger.recovery import Health, check
from warehouse.ledger.sql.opening import URL, find_url
from warehouse.storage.tables import TableSpec


def check_ledger(at: Home) -> Looked:
    """Whether database, journal and answers agree; what is in flight is passed over."""
    path, url = at.state / "ledger.db", find_url()
    if not url and not path.exists() and not find_journal(path).exists():
        return Looked(0)
    blobs = at.blobs
    has = blobs.has if at.everything else lambda sha: blobs.path(sha).is_file()
    try:
        health = check(path, blobs, url=url, has=has, settled=True)
    except LedgerUnavailable as error:
        return Looked(1, [Finding(_describe_place(), str(error), "toolmill ledger check")])
    return Looked(health.effects, _list_ledger_findings(health))


def _describe_place() -> str:
    return URL if find_url() else "state/ledger.db"


def _list_ledger_findings(health: Health) -> list[Finding]:
    found = []
    if not health.healthy:
        problem = (
            f"database {health.database}; {health.only_in_database} effects are in the database"
            f" alone, {health.only_in_journal} in the journal alone"
        )
        found.append(Finding(_describe_place(), problem, "toolmill ledger rebuild"))
    elif health.database == "absent":
        problem = f"absent beside a journal of {health.effects_in_journal} effects"
        found.append(Finding(_describe_place(), problem, "toolmill ledger rebuild"))
    if health.blobs_missing:
        problem = f"the answers of {health.blobs_missing} effects are lost"
        fix = f"{RUN}: what is wanted is paid for again; or restore the latest backup"
        found.append(Finding("blobs", problem, fix))
    if health.torn_lines:
        problem = f"{health.torn_lines} torn lines; the database has what they said"
        found.append(Finding("state/ledger.journal", problem, "toolmill ledger rebuild", NOTICE))
    if health.unknown:
        problem = f"{health.unknown} attempts of killed runs may have been paid; they count as paid"
        found.append(Finding(_describe_place(), problem, "toolmill spend names them", NOTICE))
    return found


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
