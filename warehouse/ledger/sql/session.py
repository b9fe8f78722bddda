"""A session of Postgres: opened anew where the server went away, many statements a message.

Under the ledger's lock each way to the server and back holds all writers up: a statement that
returns nothing waits for the next one that does.
"""

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib import import_module
from typing import Any

from warehouse.ledger.sql.store import Cursor, Values

# Between tries to connect: a server that restarts is back by then. Who begins has nothing to lose.
PAUSES_S = (0.2, 1.0, 3.0)
FIRST_PAUSES_S = (0.2, 0.5)
_QUEUE = 500  # statements of one message


class Unreachable(Exception):
    """No session: its text says why in words that hold no password."""


def open_connection(
    url: str,
    pauses: Sequence[float] = FIRST_PAUSES_S,
    prepare: Callable[[Any], None] = lambda _: None,
    timeout_s: int = 10,
) -> Any:
    """A connection of psycopg2 that `prepare` had, tried once more after each pause. timeout_s: of
    one try. Raises Unreachable, and psycopg2.ProgrammingError of `prepare`."""
    driver: Any = import_module("psycopg2")
    for pause in (*pauses, None):
        try:
            db = driver.connect(url, connect_timeout=timeout_s, application_name="toolmill")
        except (driver.OperationalError, driver.InterfaceError) as error:
            found = describe_fault(error)
        except driver.ProgrammingError:
            raise Unreachable("not a URL it takes") from None
        else:
            try:
                db.autocommit = True
                prepare(db)
                return db
            except (driver.OperationalError, driver.InterfaceError) as error:
                found = describe_fault(error)
        if pause is None:
            raise Unreachable(found) from None
        time.sleep(pause)
    raise AssertionError  # the last pause is None


def describe_fault(error: Exception) -> str:
    """What went wrong; neither the address nor the error's words: both may hold the password."""
    refused = "connection refused" in str(error).lower()
    return "connection refused" if refused else type(error).__name__


class Session(ABC):
    """One session; how it is opened is its owner's."""

    def __init__(self) -> None:
        self._driver: Any = import_module("psycopg2")
        self._pid, self._db = os.getpid(), None
        self._wrote = False  # in the transaction that is open
        self._queued: list[tuple[str, tuple]] = []

    @abstractmethod
    def _connect(self, pauses: Sequence[float] = PAUSES_S) -> None: ...

    def execute(self, sql: str, values: Any = (), /) -> Cursor:
        """One statement. One that writes and returns nothing goes with the next that is waited
        for: under the writers' lock each way to the server and back holds all writers up."""
        writes = sql.startswith(("INSERT", "UPDATE", "DELETE"))
        self._wrote |= writes
        self._queued.append((sql, tuple(values)))
        if writes and " RETURNING " not in sql and len(self._queued) < _QUEUE:
            return _Unasked()
        return self._send()

    def _send(self) -> Cursor:
        """All that is queued, in one message; the rows of the last."""
        queued, self._queued = self._queued, []
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


class _Unasked:
    """Of a statement that may not have been sent yet."""

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
