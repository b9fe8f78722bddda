"""Which engine holds a ledger."""

import os
from pathlib import Path

from warehouse.ledger.sql.postgres import URL, PostgresStore
from warehouse.ledger.sql.sqlite import SqliteStore
from warehouse.ledger.sql.store import Store

__all__ = ["URL", "find_url", "open_store"]


def find_url() -> str | None:
    """The Postgres that TOOLMILL_LEDGER_URL names; None: the SQLite file in the state. From the
    environment alone: it holds a password."""
    return os.environ.get(URL) or None


def open_store(path: Path, url: str | None, patience_s: float) -> Store:
    """The ledger's database. Raises UnusableInput, LedgerUnavailable, sqlite3.Error."""
    return PostgresStore(url, path, patience_s) if url else SqliteStore(path, patience_s)
