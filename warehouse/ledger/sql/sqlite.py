"""The ledger in a SQLite file (WAL): one machine's, and nothing to set up."""

import os
import sqlite3
from pathlib import Path

from warehouse.ledger.files import LedgerUnavailable, make_unavailable
from warehouse.ledger.sql.store import Values
from warehouse.process_identity import identify_process

SCHEMA = Path(__file__).with_name("sqlite.sql")


class SqliteStore:
    """One connection to the file. Raises sqlite3.Error."""

    errors: type[Exception] = sqlite3.Error
    shared = False

    def __init__(self, path: Path, patience_s: float) -> None:
        self._path = path
        self._db = sqlite3.connect(
            path, timeout=patience_s, isolation_level=None, check_same_thread=False
        )
        self._db.executescript("PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;")
        _add_batch_column(self._db)
        self._db.executescript(SCHEMA.read_text())

    def begin(self, columns: str = "", values: Values = ()) -> tuple[sqlite3.Connection, Values]:
        self._db.execute("BEGIN IMMEDIATE")
        return self._db, self._db.execute(f"SELECT {columns}", values).fetchone() if columns else ()

    def commit(self, *, await_disk: bool = True) -> None:
        self._db.execute("COMMIT")

    def rollback(self) -> None:
        self._db.execute("ROLLBACK")

    def select(self, sql: str, values: Values) -> list[tuple]:
        """Rows as they are: a reader of WAL never waits for a writer, nor holds one up."""
        return self._db.execute(sql, values).fetchall()

    def read_seen(self) -> int | None:
        row = self._db.execute("SELECT size FROM journaled").fetchone()
        return row[0] if row else None

    def note_seen(self, size: int) -> None:
        self._db.execute(
            "INSERT INTO journaled VALUES (1, ?) ON CONFLICT (one) DO UPDATE"
            " SET size = excluded.size WHERE size <> excluded.size",
            (size,),
        )

    def prepare_erasure(self) -> None:
        self._db.execute("PRAGMA secure_delete = ON").fetchall()

    def finish_erasure(self) -> None:
        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def explain(self, error: Exception) -> LedgerUnavailable:
        return make_unavailable(self._path, error)

    def identify(self) -> tuple[int, str]:
        return os.getpid(), identify_process() or ""

    def is_alive(self, pid: int, process: str, since: float) -> bool:
        return identify_process(pid) == process  # a pid is reused

    def try_lock(self, name: str) -> bool:
        return True  # there is no other machine

    def unlock(self, name: str) -> None:
        """Nothing was locked."""

    def write_next_id(self) -> str:
        return "(SELECT COALESCE(MAX(id), 0) + 1 FROM attempts)"

    def write_day(self, seconds: str) -> str:
        return f"strftime('%Y-%m-%d', {seconds}, 'unixepoch')"

    def write_field(self, body: str, name: str) -> str:
        return f"json_extract({body}, '$.{name}')"

    def close(self) -> None:
        self._db.close()


def _add_batch_column(db: sqlite3.Connection) -> None:
    """A ledger older than batches gets their column, before the index over it is made."""
    columns = {row[1] for row in db.execute("PRAGMA table_info(attempts)")}
    if columns and "batch" not in columns:
        db.execute("ALTER TABLE attempts ADD COLUMN batch TEXT NOT NULL DEFAULT ''")
