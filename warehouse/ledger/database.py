"""The ledger's database with its journal: both open, and written together or not at all."""

import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from warehouse.ledger.catch_up import apply_events
from warehouse.ledger.events import read_events
from warehouse.ledger.files import LedgerUnavailable, find_journal, hold_open, make_unavailable
from warehouse.ledger.journal import Journal, replay_journal, write_whole
from warehouse.ledger.sql.contents import read_contents
from warehouse.ledger.sql.opening import open_store
from warehouse.ledger.sql.store import Connection

_REBUILD = "`toolmill ledger rebuild`"


class Database:
    """One connection for many threads. Raises LedgerUnavailable where a file cannot be used, or
    its Postgres does not answer."""

    def __init__(self, path: Path, *, patience_s: float, url: str | None = None) -> None:
        self.path = path
        self._lock = threading.RLock()
        self._journal: Journal | None = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._held = hold_open(path)
            self.store = open_store(path, url, patience_s)
            self.journal = self._journal = self._open_journal()
            with self.transaction():
                pass  # reads what the journal has and the database lost
        except (sqlite3.Error, OSError) as error:
            raise make_unavailable(path, error) from error

    def _open_journal(self) -> Journal:
        """The journal beside the database; filled first where a ledger is older than journals."""
        path = find_journal(self.path)
        if self.store.shared:
            self._refuse_unmoved(path)
            return Journal(path)
        with self.transaction() as db:
            empty = db.execute("SELECT 1 FROM attempts LIMIT 1").fetchone() is None
            if not path.exists() and not empty:
                write_whole(path, read_contents(db))
        if empty and replay_journal(path).attempts:
            raise LedgerUnavailable(
                f"ledger {self.path}: found an empty database beside {path.name}, which names paid"
                f" answers; expected both or neither; {_REBUILD} makes the database"
                f" anew from it (or delete {path} to start from nothing)"
            )
        return Journal(path)

    def _refuse_unmoved(self, journal: Path) -> None:
        """Raises LedgerUnavailable where files here name paid answers that the shared database was
        never told: they would be paid for again."""
        with self.transaction():
            known = self.store.read_seen() is not None
        if self.path.exists() or (not known and replay_journal(journal).attempts):
            left = self.path if self.path.exists() else journal
            raise LedgerUnavailable(
                f"ledger in Postgres: {left} names paid answers that it was never told; {_REBUILD}"
                " moves them there"
            )

    @contextmanager
    def transaction(self, *, await_disk: bool = True) -> Iterator[Connection]:
        """One writer at a time; all that is written in the block, or nothing of it. await_disk:
        False where the journal has it all, so that a disk that dies loses nothing."""
        with self.asking("", await_disk=await_disk) as (db, _):
            yield db

    @contextmanager
    def asking(
        self, columns: str, *values: str | float, await_disk: bool = True
    ) -> Iterator[tuple[Connection, Sequence[Any]]]:
        """A transaction that begins with a question: what these columns of a SELECT hold in it."""
        with self._lock:
            try:
                db, found = self.store.begin(columns, values)
                try:
                    *seen, caught_up = self._read_journal(db)
                    if caught_up and columns:
                        found = db.execute(f"SELECT {columns}", values).fetchone()
                    yield db, found
                    self._note_journal(*seen)
                except BaseException:
                    self.store.rollback()
                    raise
                self.store.commit(await_disk=await_disk)
            except self.store.errors as error:
                raise self.store.explain(error) from error

    def _read_journal(self, db: Connection) -> tuple[int, int, bool]:
        """Makes up for what the journal has and the database lost: a received answer is not paid
        for again because the commit behind its line was killed or found no room. How much of the
        journal is seen now, how much this process has written of it, and whether it was behind."""
        if not self._journal:
            return 0, 0, False
        seen, size = self.store.read_seen(), self._journal.measure()
        if seen is None or size <= seen:
            return size, self._journal.written, False
        apply_events(db, read_events(self._journal.path, seen, size))
        return size, self._journal.written, True

    def _note_journal(self, seen: int, written: int) -> None:
        """What another process wrote meanwhile, outside a transaction, is left to the next one."""
        if self._journal:
            size, own = self._journal.measure(), self._journal.written - written
            self.store.note_seen(size if size == seen + own else seen)

    @contextmanager
    def erasing(self) -> Iterator[Connection]:
        """A transaction after which no file of the database has what it overwrote."""
        with self._lock:
            try:
                self.store.prepare_erasure()
                with self.transaction() as db:
                    yield db
                self.store.finish_erasure()
            except self.store.errors as error:
                raise self.store.explain(error) from error

    def find_blob(self, key: str) -> str | None:
        """The blob of an effect that is done."""
        rows = self.select("SELECT blob FROM effects WHERE key = ?", key)
        return rows[0][0] if rows else None

    def select(self, sql: str, *values: str | float) -> list[tuple]:
        """Rows as they are, without a transaction."""
        with self._lock:
            try:
                return self.store.select(sql, values)
            except self.store.errors as error:
                raise self.store.explain(error) from error

    @contextmanager
    def hold_name(self, name: str) -> Iterator[bool]:
        """Whether no other machine holds this name; if so it is held in the block."""
        with self._lock:
            held = self.store.try_lock(name)
        try:
            yield held
        finally:
            if held:
                with self._lock:
                    self.store.unlock(name)

    def close(self) -> None:
        with self._lock:
            self.store.close()
            self.journal.close()
            self._held.close()
