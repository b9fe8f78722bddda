"""The ledger in Postgres: many machines write it, one transaction at a time as in SQLite.

Tables lie in a schema of their own, for Dagster's storage in the same database has a `runs` too.
Who lives is told by session locks: the server frees those of a process that is gone.
"""

import os
import re
import time
import uuid
import zlib
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from warehouse.errors import UnusableInput
from warehouse.ledger.files import LedgerUnavailable
from warehouse.ledger.sql.session import (
    FIRST_PAUSES_S,
    PAUSES_S,
    Session,
    Unreachable,
    describe_fault,
    open_connection,
)
from warehouse.ledger.sql.store import Connection, Values
from warehouse.process_identity import describe_owner, is_abandoned, is_of_here
from warehouse.storage.files import hold_lock, write_atomically

URL = "TOOLMILL_LEDGER_URL"
SCHEMA = Path(__file__).with_name("postgres.sql")
TABLES = ("effects", "attempts", "batches", "budgets", "runs", "paid")
# Classes of advisory locks; the database may hold those of others.
_WRITER, _USERS, _OWNERS, _NAMES = 0x746D6C31, 0x746D6C32, 0x746D6C33, 0x746D6C34
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


class PostgresStore(Session):
    """One session, opened anew where the server went away between transactions. Raises
    LedgerUnavailable where it does not answer, psycopg2.Error for what it says."""

    shared = True

    def __init__(self, url: str, path: Path, patience_s: float) -> None:
        if not re.match(r"postgres(ql)?(\+psycopg2)?://", url):
            raise UnusableInput(f"{URL}: expected postgresql://USER:PASSWORD@HOST/DATABASE")
        if find_spec("psycopg2") is None:
            fix = ".venv/bin/uv pip install 'toolmill[postgres]', or unset it"
            raise UnusableInput(f"{URL} needs the package psycopg2: {fix}")
        super().__init__()
        self.errors: type[Exception] = self._driver.Error
        self._url, self._patience_s = re.sub(r"^postgres[^:]*", "postgresql", url), patience_s
        self._journal = _find_journal_id(path)
        self._seen: int | None = None  # of the journal, in the transaction that is open
        self._noted: int | None = None
        self._owes = False  # some transaction since the disk was last waited for
        self._missed = -_MISSED_S  # when it was last found gone, by the monotonic clock
        self._connect(FIRST_PAUSES_S)

    def _connect(self, pauses: Sequence[float] = PAUSES_S) -> None:
        """A session that holds the locks of a living process. Raises LedgerUnavailable, at once for
        those who ask soon after it was waited for: each of a run's workers does."""
        missed = time.monotonic() - self._missed < _MISSED_S
        pauses, timeout_s = ((), _QUICK_S) if missed else (pauses, _TRY_S)
        try:
            db = open_connection(self._url, pauses, self._prepare, timeout_s)
        except Unreachable as error:
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
        cursor.execute("SELECT to_regclass('toolmill.journaled')")
        if cursor.fetchone()[0] is None:
            cursor.execute(f"CREATE SCHEMA IF NOT EXISTS toolmill; {_SESSION}")
            cursor.execute(SCHEMA.read_text())
        cursor.execute(f"COMMIT; {_SESSION}")
        cursor.execute("SELECT pg_advisory_lock_shared(%s, 0)", (_USERS,))
        cursor.execute("SELECT pg_advisory_lock_shared(%s, %s)", (_OWNERS, _hash(describe_owner())))

    def begin(self, columns: str = "", values: Values = ()) -> tuple[Connection, Values]:
        sql = (
            "BEGIN; SELECT pg_advisory_xact_lock(?, 0);"
            " SELECT (SELECT size FROM journaled WHERE journal = ?)"
        )
        sql = f"{sql}, {columns}" if columns else sql
        try:
            row = self._retry(sql, (_WRITER, self._journal, *values)).fetchone()
        except self.errors:
            self.rollback()
            raise
        (self._seen, *asked), self._noted, self._wrote = row, None, False
        return self, asked

    def commit(self, *, await_disk: bool = True) -> None:
        self._owes |= self._wrote
        if self._noted not in (None, self._seen):
            self.execute(
                "INSERT INTO journaled VALUES (?, ?) ON CONFLICT (journal) DO UPDATE"
                " SET size = excluded.size",
                (self._journal, self._noted),
            )
        try:
            waits = await_disk and self._owes
            self.execute(f"COMMIT; {_AWAIT_DISK}" if waits else "COMMIT")
        except self.errors:
            self.rollback()
            raise
        self._owes &= not await_disk

    def rollback(self) -> None:
        self._queued.clear()
        with suppress(self.errors):  # a session that is gone has rolled back
            self.execute("ROLLBACK")

    def select(self, sql: str, values: Values) -> list[tuple]:
        return self._retry(sql, values).fetchall()

    def read_seen(self) -> int | None:
        return self._seen

    def note_seen(self, size: int) -> None:
        self._noted = size

    def prepare_erasure(self) -> None:
        """Nothing: the table is written anew afterwards."""

    def finish_erasure(self) -> None:
        self._retry("VACUUM FULL attempts")

    def explain(self, error: Exception) -> LedgerUnavailable:
        code = getattr(error, "pgcode", None) or "08"
        if code[:2] in ("08", "57"):  # connection exceptions, operator intervention
            return _describe_gone(describe_fault(error))
        fix = "its user must be able to make and write the schema `toolmill`, its disk have space"
        if code == "55P03":
            fix = f"another process has written for {self._patience_s:.0f} s; end it or wait"
        said = " ".join(str(error.diag.message_primary).split())[:200]  # type: ignore[attr-defined]
        return LedgerUnavailable(
            f"ledger in Postgres ({URL}): {said}; {fix}; then run again: nothing is lost"
        )

    def identify(self) -> tuple[int, str]:
        return os.getpid(), describe_owner()

    def is_alive(self, pid: int, process: str, since: float) -> bool:
        if is_of_here(process):
            return not is_abandoned(process)
        held = self.execute(
            "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND classid = ? AND objid = ?"
            " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
            (_OWNERS, _hash(process)),
        )
        return held.fetchone() is not None or time.time() - since < _GRACE_S

    def try_lock(self, name: str) -> bool:
        row = self._retry("SELECT pg_try_advisory_lock(?, ?)", (_NAMES, _hash(name))).fetchone()
        return row[0]

    def unlock(self, name: str) -> None:
        with suppress(self.errors, LedgerUnavailable):
            self._retry("SELECT pg_advisory_unlock(?, ?)", (_NAMES, _hash(name)))

    def claim_alone(self) -> None:
        """Raises LedgerUnavailable where any other process has the ledger open."""
        if not self._retry("SELECT pg_try_advisory_lock(?, 0)", (_USERS,)).fetchone()[0]:
            raise LedgerUnavailable(
                f"ledger in Postgres ({URL}): another process has it open; end those runs first, a"
                " ledger is rebuilt when nobody uses it"
            )

    def clear(self) -> None:
        """Empties the tables, in the transaction that is open. What other states' journals told it
        stays noted."""
        for table in TABLES:
            self.execute(f"DELETE FROM {table}")
        self.execute("DELETE FROM journaled WHERE journal = ?", (self._journal,))

    def renumber(self) -> None:
        """The next attempt's id comes after all that are there."""
        self.execute(
            "SELECT setval(pg_get_serial_sequence('attempts', 'id'),"
            " (SELECT COALESCE(MAX(id), 0) + 1 FROM attempts), false)"
        )

    def write_next_id(self) -> str:
        return "nextval(pg_get_serial_sequence('attempts', 'id'))"

    def write_day(self, seconds: str) -> str:
        return f"to_char(to_timestamp({seconds}) AT TIME ZONE 'UTC', 'YYYY-MM-DD')"

    def write_field(self, body: str, name: str) -> str:
        return f"({body}::json ->> '{name}')::double precision"

    def close(self) -> None:
        if self._db is not None and self._pid == os.getpid():
            if self._owes:
                with suppress(self.errors):  # the journal has what a server that is gone lost
                    self.execute(_AWAIT_DISK)
            self._db.close()


def _describe_gone(found: str) -> LedgerUnavailable:
    return LedgerUnavailable(
        f"ledger in Postgres: it does not answer ({found}); start it, or correct or unset {URL};"
        " nothing is lost: run again"
    )


def _read_number(text: str | None, _cursor: Any) -> float | int | None:
    """A sum of whole numbers, which Postgres gives as a decimal."""
    return None if text is None else float(text) if "." in text else int(text)


def _hash(name: str) -> int:
    return zlib.crc32(name.encode()) & 0x7FFFFFFF


def _find_journal_id(path: Path) -> str:
    """A name of the journal beside `path`, never that of another state's; a backup leaves it out,
    so that a restored journal is a new one."""
    file = path.with_name(f".{path.stem}.id")
    with hold_lock(path.with_name(f".{path.stem}.id.lock")):
        if not file.exists():
            write_atomically(file, uuid.uuid4().hex.encode())
        return file.read_text()
