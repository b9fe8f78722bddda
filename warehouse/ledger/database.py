"""The ledger's database: SQLite in WAL mode, or an extension's engine. A transaction that records
money waits for the disk (`synchronous=FULL`, 5 ms), one of a free effect does not."""

import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import psutil

from warehouse.errors import UnusableInput
from warehouse.extensions import LEDGERS, load_extensions
from warehouse.process_identity import identify_process

URL = "TOOLMILL_LEDGER_URL"
SCHEMA = Path(__file__).with_name("sqlite.sql")
MOVED = ".moved"  # suffix of a SQLite ledger whose rows are in the database of URL

Values = Sequence[Any]


class LedgerUnavailable(RuntimeError):
    maybe_paid = True  # the answer that could not be recorded was received


class Cursor(Protocol):
    @property
    def description(self) -> Any: ...
    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...
    def __iter__(self) -> Iterator[Any]: ...


class Connection(Protocol):
    """Takes statements with `?` in the place of values."""

    def execute(self, sql: str, values: Any = ..., /) -> Cursor:
        """The rows of a SELECT, or of RETURNING; other statements return none."""
        ...


class LedgerStore(Protocol):
    """A connection to an engine, whose `errors` `explain` turns into LedgerUnavailable."""

    errors: type[Exception]

    def begin(
        self, durable: bool, columns: str = "", values: Values = ()
    ) -> tuple[Connection, Values]:
        """Starts the only write transaction of all processes, and selects `columns` in it.
        durable: whether its commit waits for the disk."""
        ...

    def commit(self) -> None: ...
    def rollback(self) -> None: ...

    def select(self, sql: str, values: Values) -> list[tuple]: ...

    def explain(self, error: Exception) -> LedgerUnavailable: ...

    def identify(self) -> tuple[int, str]:
        """(pid, identity) of this process, as attempts and batches record it."""
        ...

    def is_alive(self, pid: int, process: str, since: float) -> bool:
        """Whether the process that `identify` returned may still do what it began at `since`."""
        ...

    def try_lock(self, name: str) -> bool:
        """Locks a name against other machines until `unlock` or the end of the process."""
        ...

    def unlock(self, name: str) -> None: ...

    def write_next_id(self) -> str:
        """SQL for the id of the next attempt."""
        ...

    def import_file(self, path: Path) -> None:
        """Takes in the rows of a SQLite ledger that was used before this database."""
        ...

    def close(self) -> None: ...


def find_url() -> str | None:
    """TOOLMILL_LEDGER_URL, from the environment only (a password); None for SQLite's file."""
    return os.environ.get(URL) or None


def open_store(path: Path, url: str | None, patience_s: float) -> LedgerStore:
    """The ledger's database engine. Raises UnusableInput, LedgerUnavailable, sqlite3.Error."""
    if not url:
        return SqliteStore(path, patience_s)
    engines = load_extensions(LEDGERS)
    if not engines:
        raise UnusableInput(f"{URL} needs the extension `scale`: install it, or unset {URL}")
    return next(iter(engines.values()))(url, patience_s)


class SqliteStore:
    """One connection to the file. Raises sqlite3.Error, LedgerUnavailable."""

    errors: type[Exception] = sqlite3.Error

    def __init__(self, path: Path, patience_s: float) -> None:
        self._path = path
        if not path.exists() and (moved := path.with_name(path.name + MOVED)).exists():
            raise LedgerUnavailable(
                f"ledger {path}: its rows were moved to the database of {URL}, which is not set;"
                f" set it, or rename {moved.name} back to go on without what was paid since"
            )
        self._db = sqlite3.connect(
            path, timeout=patience_s, isolation_level=None, check_same_thread=False
        )
        self._db.executescript("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;")
        self._durable = True
        self._db.executescript(SCHEMA.read_text())

    def begin(
        self, durable: bool, columns: str = "", values: Values = ()
    ) -> tuple[sqlite3.Connection, Values]:
        if durable != self._durable:  # the statement is an eighth of a free effect's cost
            self._db.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
            self._durable = durable
        self._db.execute("BEGIN IMMEDIATE")
        return self._db, self._db.execute(f"SELECT {columns}", values).fetchone() if columns else ()

    def commit(self) -> None:
        self._db.execute("COMMIT")

    def rollback(self) -> None:
        if self._db.in_transaction:  # a full disk has ended it already
            self._db.execute("ROLLBACK")

    def select(self, sql: str, values: Values) -> list[tuple]:
        return self._db.execute(sql, values).fetchall()

    def explain(self, error: Exception) -> LedgerUnavailable:
        return make_unavailable(self._path, error)

    def identify(self) -> tuple[int, str]:
        return _identify_self(os.getpid())

    def is_alive(self, pid: int, process: str, since: float) -> bool:
        return identify_process(pid) == process  # a pid is reused

    def try_lock(self, name: str) -> bool:
        return True  # there is no other machine

    def unlock(self, name: str) -> None:
        """Nothing was locked."""

    def write_next_id(self) -> str:
        return "(SELECT COALESCE(MAX(id), 0) + 1 FROM attempts)"

    def import_file(self, path: Path) -> None:
        """Nothing: this is that file."""

    def close(self) -> None:
        self._db.close()


@cache
def _identify_self(pid: int) -> tuple[int, str]:
    return pid, identify_process(pid) or ""


class LedgerDatabase:
    def __init__(self, path: Path, *, patience_s: float, url: str | None = None) -> None:
        self.path = path
        self._lock = threading.RLock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self.store = open_store(path, url, patience_s)
            if url and path.exists():
                self.store.import_file(path)
            with self.transaction(durable=False):
                pass  # a file that cannot be written is an error now, not after the first payment
        except (sqlite3.Error, OSError) as error:
            raise make_unavailable(path, error) from error

    @contextmanager
    def transaction(self, *, durable: bool = True) -> Iterator[Connection]:
        """One write transaction over all processes, all or nothing. durable: waits for the disk."""
        with self.transaction_after("", durable=durable) as (db, _):
            yield db

    @contextmanager
    def transaction_after(
        self, columns: str, *values: str | float, durable: bool = True
    ) -> Iterator[tuple[Connection, Values]]:
        """A transaction that begins by selecting these columns; of Postgres one round trip."""
        with self._lock:
            try:
                db, row = self.store.begin(durable, columns, values)
                try:
                    yield db, row
                except BaseException:
                    self.store.rollback()
                    raise
                self.store.commit()
            except self.store.errors as error:
                raise self.store.explain(error) from error

    def find_blob(self, key: str) -> str | None:
        rows = self.select("SELECT blob FROM effects WHERE key = ?", key)
        return rows[0][0] if rows else None

    def select(self, sql: str, *values: str | float | None) -> list[tuple]:
        with self._lock:
            try:
                return self.store.select(sql, values)
            except self.store.errors as error:
                raise self.store.explain(error) from error

    @contextmanager
    def hold_name(self, name: str) -> Iterator[bool]:
        """Whether no other machine holds this name; if so it is held in the block."""
        with self._lock:
            is_ours = self.store.try_lock(name)
        try:
            yield is_ours
        finally:
            if is_ours:
                with self._lock:
                    self.store.unlock(name)

    def close(self) -> None:
        with self._lock:
            self.store.close()


def make_unavailable(path: Path, error: Exception) -> LedgerUnavailable:
    """What an error of SQLite or of the disk means, and what to do."""
    message = str(error)
    if "locked" in message:
        fix = f"{list_users(path)} holds its lock; end it or wait, then run again: nothing is lost"
    elif "malformed" in message or "not a database" in message or "no such" in message:
        fix = (
            "put a copy of it back, or move it away to start a new one: the answers that only it"
            " names are then paid for again"
        )
    else:
        fix = "it must be a writable SQLite file on a disk with space (TOOLMILL_STATE moves it)"
    return LedgerUnavailable(f"ledger {path}: {message}; {fix}")


def list_users(path: Path) -> str:
    """Other processes that have the file open, for an error message."""
    users = []
    for process in psutil.process_iter(["pid", "name"]):
        try:
            is_open = str(path.resolve()) in {file.path for file in process.open_files()}
        except (psutil.Error, OSError):
            continue
        if is_open and process.pid != psutil.Process().pid:
            users.append(f"process {process.pid} ({process.info['name']})")
    return ", ".join(users) or "another process"
