"""A connection to Postgres, for the ledger's store and for Dagster's."""

import time
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

# Pauses between tries to connect: a server that restarts is back by then; a process that only
# starts has nothing to lose.
PAUSES_S = (0.2, 1.0, 3.0)
FIRST_PAUSES_S = (0.2, 0.5)


class PostgresUnreachable(Exception):
    """No connection; its text says why without the address, which may hold a password."""


def open_connection(
    url: str,
    pauses: Sequence[float] = FIRST_PAUSES_S,
    prepare: Callable[[Any], None] = lambda _: None,
    timeout_s: int = 10,
) -> Any:
    """A psycopg2 connection in autocommit mode after `prepare`, tried again after each pause.
    timeout_s: of one try. Raises PostgresUnreachable, psycopg2.ProgrammingError."""
    driver: Any = import_module("psycopg2")
    for pause in (*pauses, None):
        try:
            db = driver.connect(url, connect_timeout=timeout_s, application_name="toolmill")
        except driver.ProgrammingError:
            raise PostgresUnreachable("not a URL that psycopg2 takes") from None
        except (driver.OperationalError, driver.InterfaceError) as error:
            problem = describe_fault(error)
        else:
            try:
                db.autocommit = True
                prepare(db)
                return db
            except (driver.OperationalError, driver.InterfaceError) as error:
                problem = describe_fault(error)
        if pause is None:
            raise PostgresUnreachable(problem) from None
        time.sleep(pause)
    raise AssertionError  # the last pause is None


def describe_fault(error: Exception) -> str:
    """What went wrong, without the error's own words: they may hold the password."""
    refused = "connection refused" in str(error).lower()
    return "connection refused" if refused else type(error).__name__
