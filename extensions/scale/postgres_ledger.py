"""The ledger in Postgres, in a schema of its own, as Dagster has a `runs` too. Session locks tell
which processes live. A statement without rows goes with the next one: under the writers' lock each
round trip to the server holds all writers up."""

import os
import re
import sqlite3
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from warehouse.errors import UnusableInput
from warehouse.ledger.database import (
    MOVED,
    URL,
    Connection,
    Cursor,
    LedgerUnavailable,
    Values,
    make_unavailable,
)
from warehouse.postgres import (
    FIRST_PAUSES_S,
    PAUSES_S,
    PostgresUnreachable,
    describe_fault,
    open_connection,
)
from warehouse.process_identity import describe_owner, is_abandoned, is_of_here

SCHEMA = Path(__file__).with_name("postgres_ledger.sql")
_QUEUE = 500  # statements of one message
# Classes of advisory locks; the database may hold those of others.
_WRITER, _OWNERS, _NAMES = 0x746D6C31, 0x746D6C33, 0x746D6C34
# A process of another machine that has lost its connection may be waiting for an answer.
_GRACE_S = 900.0
_SESSION = (
    "SET search_path = toolmill; SET tcp_keepalives_idle = 60; SET tcp_keepalives_interval = 15;"
    " SET tcp_keepalives_count = 4; SET synchronous_commit = off"
)
_MISSED_S = 30.0
_TRY_S, _QUICK_S = 10, 2  # of a try; then; libpq takes no less
# A commit that waits for the disk frees the writers' lock only then, so that the next one waits
# too: ours frees it at once, and waits in a transaction of its own (whose log record comes after).
# Those of many sessions wait side by side, and the server writes their logs with one flush.
_AWAIT_DISK = (
    "BEGIN; SET LOCAL synchronous_commit TO DEFAULT;"
    " SELECT pg_logical_emit_message(true, 'toolmill', ''); COMMIT"
)


class PostgresStore:
    """One session, opened again where the server went away between transactions. Raises
    LedgerUnavailable where it does not answer, psycopg2.Error for what it reports."""

    def __init__(self, url: str, patience_s: float) -> None:
        if not re.match(r"postgres(ql)?(\+psycopg2)?://", url):
            raise UnusableInput(f"{URL}: expected postgresql://USER:PASSWORD@HOST/DATABASE")
        if find_spec("psycopg2") is None:
            fix = ".venv/bin/uv pip install 'toolmill[postgres]', or unset it"
            raise UnusableInput(f"{URL} needs the package psycopg2: {fix}")
        self._driver: Any = import_module("psycopg2")
        self.errors: type[Exception] = self._driver.Error
        self._url, self._patience_s = re.sub(r"^postgres[^:]*", "postgresql", url), patience_s
        self._pid, self._db = os.getpid(), None
        self._durable = self._wrote = False  # in the transaction that is open
        self._owes_disk = False  # whether a transaction since the disk was last waited for wrote
        self._queue: list[tuple[str, tuple]] = []
        self._missed = -_MISSED_S  # when it was last found gone, by the monotonic clock
        self._connect(FIRST_PAUSES_S)

    def _connect(self, pauses: Sequence[float] = PAUSES_S) -> None:
        """A session that holds the locks of a living process. Raises LedgerUnavailable, at once for
        those who ask soon after it was waited for: each of a run's workers does."""
        missed = time.monotonic() - self._missed < _MISSED_S
        pauses, timeout_s = ((), _QUICK_S) if missed else (pauses, _TRY_S)
        try:
            db = open_connection(self._url, pauses, self._prepare, timeout_s)
        except PostgresUnreachable as error:
            self._missed = time.monotonic()
            raise _describe_gone(str(error)) from None
        except self._driver.ProgrammingError as error:
            raise self.explain(error) from None
        self._pid, self._db = os.getpid(), db

    def _prepare(self, db: Any) -> None:
        extensions = import_module("psycopg2.extensions")
        extensions.register_type(extensions.new_type((1700,), "NUMBER", _read_number), db)
        cursor = db.cursor()
        cursor.execute(f"SET lock_timeout = {max(1, int(self._patience_s * 1000))}")
        cursor.execute("BEGIN; SELECT pg_advisory_xact_lock(%s, 0)", (_WRITER,))
        cursor.execute("SELECT to_regclass('toolmill.paid')")
        if cursor.fetchone()[0] is None:
            cursor.execute(f"CREATE SCHEMA IF NOT EXISTS toolmill; {_SESSION}")
            cursor.execute(SCHEMA.read_text())
        cursor.execute(f"COMMIT; {_SESSION}")
        cursor.execute("SELECT pg_advisory_lock_shared(%s, %s)", (_OWNERS, _hash(describe_owner())))

    def begin(
        self, durable: bool, columns: str = "", values: Values = ()
    ) -> tuple[Connection, Values]:
        sql = "BEGIN; SELECT pg_advisory_xact_lock(?, 0)"
        sql = f"{sql}; SELECT {columns}" if columns else sql
        try:
            row = self._retry(sql, (_WRITER, *values)).fetchone()
        except self.errors:
            self.rollback()
            raise
        self._durable, self._wrote = durable, False
        return self, row

    def commit(self) -> None:
        self._owes_disk |= self._wrote
        waits = self._durable and self._owes_disk
        try:
            self.execute(f"COMMIT; {_AWAIT_DISK}" if waits else "COMMIT")
        except self.errors:
            self.rollback()
            raise
        self._owes_disk &= not waits

    def rollback(self) -> None:
        self._queue.clear()
        with suppress(self.errors):  # a session that is gone has rolled back
            self.execute("ROLLBACK")

    def select(self, sql: str, values: Values) -> list[tuple]:
        return self._retry(sql, values).fetchall()

    def explain(self, error: Exception) -> LedgerUnavailable:
        code = getattr(error, "pgcode", None) or "08"
        if code[:2] in ("08", "57"):  # connection exceptions, operator intervention
            return _describe_gone(describe_fault(error))
        fix = "its user must be able to make and write the schema `toolmill`, its disk have space"
        if code == "55P03":
            fix = f"another process has written for {self._patience_s:.0f} s; end it or wait"
        message = " ".join(str(error.diag.message_primary).split())[:200]  # type: ignore[attr-defined]
        return LedgerUnavailable(
            f"ledger in Postgres ({URL}): {message}; {fix}; then run again: nothing is lost"
        )

    def identify(self) -> tuple[int, str]:
        return os.getpid(), describe_owner()

    def is_alive(self, pid: int, process: str, since: float) -> bool:
        if is_of_here(process):
            return not is_abandoned(process)
        lock = self.execute(
            "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND classid = ? AND objid = ?"
            " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
            (_OWNERS, _hash(process)),
        )
        return lock.fetchone() is not None or time.time() - since < _GRACE_S

    def try_lock(self, name: str) -> bool:
        return self._retry("SELECT pg_try_advisory_lock(?, ?)", (_NAMES, _hash(name))).fetchone()[0]

    def unlock(self, name: str) -> None:
        with suppress(self.errors, LedgerUnavailable):
            self._retry("SELECT pg_advisory_unlock(?, ?)", (_NAMES, _hash(name)))

    def write_next_id(self) -> str:
        return "nextval(pg_get_serial_sequence('attempts', 'id'))"

    def close(self) -> None:
        if self._db is not None and self._pid == os.getpid():
            if self._owes_disk:
                with suppress(self.errors):
                    self.execute(_AWAIT_DISK)
            self._db.close()

    def import_file(self, path: Path) -> None:
        """Adds the rows of a SQLite ledger and renames it, so that what it paid for is not paid for
        again. Attempts that were under way become unknown."""
        try:
            with closing(sqlite3.connect(path, timeout=self._patience_s)) as file:
                file.execute("BEGIN EXCLUSIVE")
                file.execute(
                    "UPDATE attempts SET status = 'unknown' WHERE status = 'started' AND batch = ''"
                )
                db, _ = self.begin(True)
                for table in ("effects", "batches", "budgets", "runs"):
                    for sql, row in _write_inserts(file, table):
                        db.execute(f"{sql} ON CONFLICT DO NOTHING", row)
                for sql, row in _write_inserts(file, "attempts"):
                    same_attempt = "SELECT 1 FROM attempts WHERE key = ? AND started_at = ?"
                    db.execute(f"{sql} WHERE NOT EXISTS ({same_attempt})", (*row, row[0], row[7]))
                db.execute("DELETE FROM paid")
                db.execute("INSERT INTO paid SELECT scope, SUM(usd) FROM attempts GROUP BY scope")
                self.commit()
                path.rename(path.with_name(path.name + MOVED))
        except self.errors as error:
            self.rollback()
            raise self.explain(error) from error
        except sqlite3.Error as error:
            raise make_unavailable(path, error) from error

    def execute(self, sql: str, values: Any = (), /) -> Cursor:
        """One statement. One that writes and returns nothing goes with the next that is waited
        for: under the writers' lock each way to the server and back holds all writers up."""
        writes = sql.startswith(("INSERT", "UPDATE", "DELETE"))
        self._wrote |= writes
        self._queue.append((sql, tuple(values)))
        if writes and " RETURNING " not in sql and len(self._queue) < _QUEUE:
            return _QueuedCursor()
        return self._send()

    def _send(self) -> Cursor:
        queued, self._queue = self._queue, []
        cursor = self._db.cursor()  # type: ignore[union-attr]
        if len(queued) == 1:
            cursor.execute(_write_marks(queued[0][0]), queued[0][1])
        else:
            whole = (cursor.mogrify(_write_marks(sql), values) for sql, values in queued)
            cursor.execute(b"; ".join(whole))
        return cursor

    def _retry(self, sql: str, values: Values = ()) -> Cursor:
        """A statement outside a transaction, once more in a new session where ours is gone, or is
        the one of the process that we were forked from."""
        if self._db is not None and not self._db.closed and self._pid == os.getpid():
            try:
                return self.execute(sql, values)
            except (self._driver.OperationalError, self._driver.InterfaceError):
                if not self._db.closed:
                    raise
        self._connect()
        return self.execute(sql, values)


def _write_inserts(file: sqlite3.Connection, table: str) -> Iterator[tuple[str, tuple]]:
    """An INSERT for each row of a table, and its values; attempts without their ids."""
    cursor = file.execute(f"SELECT * FROM {table}")
    names = [column[0] for column in cursor.description]
    start = 1 if names[0] == "id" else 0
    marks = ", ".join("?" * len(names[start:]))
    for row in cursor:
        yield f"INSERT INTO {table} ({', '.join(names[start:])}) SELECT {marks}", row[start:]


def _describe_gone(problem: str) -> LedgerUnavailable:
    return LedgerUnavailable(
        f"ledger in Postgres: it does not answer ({problem}); start it, or correct or unset {URL};"
        " nothing is lost: run again"
    )


def _read_number(text: str | None, _cursor: Any) -> float | int | None:
    """A sum of whole numbers, which Postgres gives as a decimal."""
    return None if text is None else float(text) if "." in text else int(text)


def _hash(name: str) -> int:
    return zlib.crc32(name.encode()) & 0x7FFFFFFF


class _QueuedCursor:
    @property
    def description(self) -> Any:
        raise TypeError("rows of a statement that writes are asked for by RETURNING")

    def fetchone(self) -> Any:
        return self.description

    def fetchall(self) -> list[Any]:
        return self.description

    def __iter__(self) -> Iterator[Any]:
        return self.description


@cache
def _write_marks(sql: str) -> str:
    return sql.replace("%", "%%").replace("?", "%s")
