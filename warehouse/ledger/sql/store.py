"""What the ledger needs of a database engine, besides SQL that every engine takes."""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from warehouse.ledger.files import LedgerUnavailable

Values = Sequence[Any]


class Cursor(Protocol):
    """The rows of one statement."""

    @property
    def description(self) -> Any: ...
    def fetchone(self) -> Any: ...
    def fetchall(self) -> list[Any]: ...
    def __iter__(self) -> Iterator[Any]: ...


class Connection(Protocol):
    """Takes statements with `?` in the place of values."""

    def execute(self, sql: str, values: Any = ..., /) -> Cursor:
        """The rows of a SELECT, or of what RETURNING names; there are no others."""
        ...


class Store(Protocol):
    """One connection, and what is the engine's own. Its `errors` are the engine's; the caller turns
    them into LedgerUnavailable by `explain`."""

    errors: type[Exception]
    shared: bool  # whether other machines write it too, each with a journal of its own

    def begin(self, columns: str = "", values: Values = ()) -> tuple[Connection, Values]:
        """A transaction of which there is one at a time, whoever opens it, and what these columns
        of a SELECT hold in it."""
        ...

    def commit(self, *, await_disk: bool = True) -> None:
        """Lets the next writer in; then, where the engine is on a disk that others rely on, waits
        for that disk. Without, the next commit or `close` waits for this one too."""
        ...

    def rollback(self) -> None: ...

    def select(self, sql: str, values: Values) -> list[tuple]:
        """Rows without a transaction."""
        ...

    def read_seen(self) -> int | None:
        """How much of this state's journal the database has seen, in bytes."""
        ...

    def note_seen(self, size: int) -> None: ...

    def prepare_erasure(self) -> None:
        """What the next transaction overwrites is to leave the files, by `finish_erasure`."""
        ...

    def finish_erasure(self) -> None: ...

    def explain(self, error: Exception) -> LedgerUnavailable: ...

    def identify(self) -> tuple[int, str]:
        """This process, as its attempts and batches name it."""
        ...

    def is_alive(self, pid: int, process: str, since: float) -> bool:
        """Whether the process that `identify` named so may still be carrying out what it began at
        `since` (epoch seconds)."""
        ...

    def try_lock(self, name: str) -> bool:
        """Whether no other machine holds this name; it is held until `unlock` or our end."""
        ...

    def unlock(self, name: str) -> None: ...

    def write_next_id(self) -> str:
        """SQL for the number of the next attempt."""
        ...

    def write_day(self, seconds: str) -> str:
        """SQL for the UTC day of epoch seconds."""
        ...

    def write_field(self, body: str, name: str) -> str:
        """SQL for a number in a column of JSON."""
        ...

    def close(self) -> None: ...
