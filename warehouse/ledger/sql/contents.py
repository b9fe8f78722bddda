"""What a ledger's database holds, read without opening the ledger, also while a run writes."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from warehouse.ledger.events import DONE, STARTED
from warehouse.ledger.files import LedgerUnavailable, list_users, make_unavailable
from warehouse.ledger.journal import Replayed
from warehouse.ledger.sql.postgres import PostgresStore
from warehouse.ledger.sql.store import Connection

_PATIENCE_S = 5.0


def read_database(path: Path, url: str | None) -> tuple[Replayed, str]:
    """What the database holds, as far as it can be read, and how it is: ok, absent, or what SQLite
    says. Raises LedgerUnavailable where it is locked, or its Postgres does not answer."""
    if url:
        return _read_postgres(path, url), "ok"
    if not path.exists():
        return Replayed(), "absent"
    with closing(_open_sqlite(path)) as db:
        try:
            # Only whether the file can be read at all; one that is locked is not corrupt.
            db.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
            db.execute("BEGIN")  # one snapshot, also while a run writes
            condition = str(db.execute("PRAGMA quick_check(1)").fetchone()[0])
        except sqlite3.OperationalError as error:
            if "locked" in str(error):
                fix = f"{list_users(path)} holds its lock; end it and run again"
                raise LedgerUnavailable(f"ledger {path}: {error}; {fix}") from error
            condition = str(error)
        except sqlite3.DatabaseError as error:
            condition = str(error)
        return read_contents(db), condition.splitlines()[0]


def _read_postgres(path: Path, url: str) -> Replayed:
    store = PostgresStore(url, path, _PATIENCE_S)
    try:
        held = read_contents(store.begin()[0])  # nobody writes meanwhile
        held.journaled = store.read_seen()
        store.rollback()
        return held
    except store.errors as error:
        raise store.explain(error) from error
    finally:
        store.close()


def find_oldest_attempt(path: Path, url: str | None) -> float | None:
    """When the oldest effect that is under way began (epoch seconds), whoever carries it out.
    Raises LedgerUnavailable."""
    rows = _select(path, url, "SELECT MIN(started_at) FROM attempts WHERE status = 'started'")
    return rows[0][0] if rows else None


def list_errors(path: Path, url: str | None) -> list[str]:
    """What attempts say went wrong. Raises LedgerUnavailable."""
    return [text for (text,) in _select(path, url, "SELECT error FROM attempts WHERE error <> ''")]


def _select(path: Path, url: str | None, query: str) -> list[tuple]:
    """Rows of a ledger that is not opened; none where there is no file. Raises
    LedgerUnavailable."""
    if url:
        store = PostgresStore(url, path, _PATIENCE_S)
        try:
            return store.select(query, ())
        except store.errors as error:
            raise store.explain(error) from error
        finally:
            store.close()
    if not path.exists():
        return []
    try:
        with closing(_open_sqlite(path)) as db:
            return db.execute(query).fetchall()
    except sqlite3.Error as error:
        raise make_unavailable(path, error) from error


def _open_sqlite(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=_PATIENCE_S)


def read_contents(db: Connection) -> Replayed:
    """What of a database belongs into its journal; of a damaged one, what can still be read."""
    held = Replayed()
    for row in _read_rows(db, "effects", "key"):
        held.effects[row["key"]] = row
    for row in _read_rows(db, "attempts", "id"):
        if row["status"] == "done" or (
            row["status"] in ("started", "unknown")
            and (row["reserved_usd"] > 0 or row.get("batch"))
        ):
            names = DONE if row["status"] == "done" else STARTED
            kept = {name: row.get(name) for name in names if name != "blob"}
            kept["batch"] = kept["batch"] or ""  # a ledger older than batches has no such column
            held.attempts[row["id"]] = {**kept, "status": row["status"]}
    for row in _read_rows(db, "budgets", "scope"):
        held.budgets[row["scope"]] = row["limit_usd"]
    for row in _read_rows(db, "runs", "scope"):
        held.runs[(row["scope"], row["number"])] = row
    for row in _read_rows(db, "journaled", "size"):
        held.journaled = row["size"]
    for row in _read_rows(db, "batches", "name"):
        held.batches[row["name"]] = json.loads(row["body"])
    held.number_attempts()
    return held


def _read_rows(db: Connection, table: str, key: str) -> Iterator[dict[str, Any]]:
    """A table from both ends: a damaged page hides neither what lies before nor behind it."""
    seen = set()
    for order in ("ASC", "DESC"):
        try:
            cursor = db.execute(f"SELECT * FROM {table} ORDER BY {key} {order}")
            names = [column[0] for column in cursor.description]
            for values in cursor:
                if values in seen:
                    continue
                seen.add(values)
                yield dict(zip(names, values, strict=True))
            return
        except sqlite3.DatabaseError:
            continue
