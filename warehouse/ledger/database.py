"""The ledger's database with its journal: both open, and written together or not at all."""

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from warehouse.ledger.catch_up import apply_events
from warehouse.ledger.events import read_events
from warehouse.ledger.files import (
    LedgerUnavailable,
    held_by_database,
    hold_open,
    journal_of,
    make_unavailable,
)
from warehouse.ledger.journal import Journal, replay_journal, write_whole

_SCHEMA = Path(__file__).with_name("schema.sql")


class Database:
    """One connection for many threads. Raises LedgerUnavailable where a file cannot be used."""

    def __init__(self, path: Path, *, patience_s: float) -> None:
        self.path = path
        self._lock = threading.RLock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._held = hold_open(path)
            self._db = sqlite3.connect(
                path, timeout=patience_s, isolation_level=None, check_same_thread=False
            )
            self._db.executescript("PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;")
            _add_batch_column(self._db)
            self._db.executescript(_SCHEMA.read_text())
            self._journal: Journal | None = None
            self.journal = self._journal = self._open_journal()
            with self.transaction():
                pass  # reads what the journal has and the database lost
        except (sqlite3.Error, OSError) as error:
            raise make_unavailable(path, error) from error

    def _open_journal(self) -> Journal:
        """The journal beside the database; filled first where a ledger is older than journals."""
        path = journal_of(self.path)
        with self.transaction() as db:
            empty = db.execute("SELECT 1 FROM attempts LIMIT 1").fetchone() is None
            if not path.exists() and not empty:
                write_whole(path, held_by_database(db))
        if empty and replay_journal(path).attempts:
            raise LedgerUnavailable(
                f"ledger {self.path}: found an empty database beside {path.name}, which names paid"
                " answers; expected both or neither; `toolmill ledger rebuild` makes the database"
                f" anew from it (or delete {path} to start from nothing)"
            )
        return Journal(path)

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """One writer at a time; all that is written in the block, or nothing of it."""
        with self._lock:
            try:
                self._db.execute("BEGIN IMMEDIATE")
                try:
                    self._read_journal()
                    yield self._db
                    self._note_journal()
                except BaseException:
                    self._db.execute("ROLLBACK")
                    raise
                self._db.execute("COMMIT")
            except sqlite3.Error as error:
                raise make_unavailable(self.path, error) from error

    def _read_journal(self) -> None:
        """Makes up for what the journal has and the database lost: a received answer is not paid
        for again because the commit behind its line was killed or found no room."""
        row = self._db.execute("SELECT size FROM journaled").fetchone()
        if row and self._journal and self._journal.measure() > row[0]:
            apply_events(self._db, read_events(self._journal.path, row[0]))

    def _note_journal(self) -> None:
        if self._journal:
            size = self._journal.measure()
            self._db.execute(
                "INSERT INTO journaled VALUES (1, ?) ON CONFLICT (one) DO UPDATE"
                " SET size = excluded.size WHERE size <> excluded.size",
                (size,),
            )

    def find_blob(self, key: str) -> str | None:
        """The blob of an effect that is done."""
        rows = self.select("SELECT blob FROM effects WHERE key = ?", key)
        return rows[0][0] if rows else None

    def select(self, sql: str, *values: str | float) -> list[tuple]:
        """Rows as they are. No transaction: a reader of WAL never waits for a writer, nor holds one
        up."""
        with self._lock:
            try:
                return self._db.execute(sql, values).fetchall()
            except sqlite3.Error as error:
                raise make_unavailable(self.path, error) from error

    def close(self) -> None:
        with self._lock:
            self._db.close()
            self.journal.close()
            self._held.close()


def _add_batch_column(db: sqlite3.Connection) -> None:
    """A ledger older than batches gets their column, before the index over it is made."""
    columns = {row[1] for row in db.execute("PRAGMA table_info(attempts)")}
    if columns and "batch" not in columns:
        db.execute("ALTER TABLE attempts ADD COLUMN batch TEXT NOT NULL DEFAULT ''")
