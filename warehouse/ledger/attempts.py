"""Attempts at effects: claimed by one process, started before they are sent, then finished."""

import os
import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

from warehouse.ledger.database import Database
from warehouse.ledger.events import STARTED
from warehouse.ledger.files import LedgerUnavailable, make_unavailable
from warehouse.process_identity import identify_process
from warehouse.storage.blobs import BlobCorrupt, Blobs

_ROOM = 8 * 1024 * 1024  # bytes that must be free before anything is paid: an answer needs a place
_IN_THIS_PROCESS: set[tuple[str, int]] = set()  # (ledger path, attempt id) now being carried out


class BudgetExceeded(RuntimeError):
    """The reservation of one more effect would pass the budget of its scope."""


@dataclass(frozen=True)
class Outcome:
    """What an effect returned, and what it cost."""

    data: bytes
    model: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    usd: float = 0.0


@dataclass(frozen=True)
class Attempt:
    """One try at an effect."""

    id: int
    key: str
    stage: str
    partition: str
    run_id: str
    started_at: float
    status: str
    reserved_usd: float
    scope: str = "usd"


class Attempts:
    """The attempts of one ledger, carried out by this process or by others."""

    def __init__(self, database: Database, blobs: Blobs, run_id: str) -> None:
        self._database, self._blobs, self._run_id = database, blobs, run_id

    def read_blob(self, name: str | None) -> bytes | None:
        """The bytes of a blob; None for one that is lost, so that its effect is due again."""
        try:
            return self._blobs.get(name) if name else None
        except (KeyError, BlobCorrupt):
            return None

    def claim(
        self, stage: str, key: str, partition: str, reserve_usd: float, scope: str
    ) -> bytes | Attempt | None:
        """The stored bytes, or a new attempt that is ours, or None: somebody has it."""
        if (data := self.read_blob(self._database.find_blob(key))) is not None:
            return data
        with self._database.transaction() as db:
            # Looked at again under the lock: whoever held the key may have finished since.
            row = db.execute("SELECT blob FROM effects WHERE key = ?", (key,)).fetchone()
            if row and (data := self.read_blob(row[0])) is not None:
                return data
            self.bury_dead(db, key)
            held = db.execute(
                "SELECT 1 FROM attempts WHERE key = ? AND status = 'started'", (key,)
            ).fetchone()
            if held:
                return None
            if reserve_usd > 0:
                self._check_room()
            _reserve(db, stage, scope, reserve_usd)
            began = time.time()
            cursor = db.execute(
                "INSERT INTO attempts (key, stage, partition, status, run_id, pid, process_started,"
                " started_at, scope, reserved_usd) VALUES (?, ?, ?, 'started', ?, ?, ?, ?, ?, ?)",
                (key, stage, partition, self._run_id, os.getpid(), identify_process(),
                 began, scope, reserve_usd),
            )  # fmt: skip
            attempt = Attempt(
                cast(int, cursor.lastrowid), key, stage, partition, self._run_id, began,
                "started", reserve_usd, scope,
            )  # fmt: skip
            if reserve_usd > 0:
                row = vars(attempt)
                self._database.journal.write("started", **{name: row[name] for name in STARTED})
            _IN_THIS_PROCESS.add((str(self._database.path), attempt.id))
            return attempt

    def _check_room(self) -> None:
        """Raises LedgerUnavailable where an answer that was paid for could not be kept."""
        for folder in (self._database.path.parent, self._blobs.root):
            if folder.exists() and (free := shutil.disk_usage(folder).free) < _ROOM:
                raise LedgerUnavailable(
                    f"{folder}: {free:,} bytes are free, expected {_ROOM:,} before anything is"
                    " paid for; nothing was sent: free some space and run again"
                )

    @contextmanager
    def carry_out(self, attempt: Attempt) -> Iterator[None]:
        """The time of one effect: what it raises is recorded, and raised on."""
        try:
            yield
        except BaseException as error:
            # What was sent, and may have been answered and billed unseen, stays in the budget.
            unseen = not isinstance(error, Exception) or getattr(error, "maybe_paid", False)
            status = "unknown" if unseen and attempt.reserved_usd > 0 else "failed"
            with self._database.transaction() as db:
                ended = db.execute(
                    "UPDATE attempts SET status = ?, finished_at = ?, error = ?"
                    " WHERE id = ? AND status = 'started'",
                    (status, time.time(), _describe_error(error), attempt.id),
                )
                if attempt.reserved_usd > 0 and ended.rowcount:
                    self._database.journal.write(status, id=attempt.id)
            raise
        finally:
            _IN_THIS_PROCESS.discard((str(self._database.path), attempt.id))

    def finish(self, attempt: Attempt, outcome: Outcome) -> bytes:
        """Keeps what an effect returned: blob, then journal, then database."""
        now = time.time()
        try:
            blob = self._blobs.put(outcome.data)
            paid = {
                "model": outcome.model,
                "prompt_tokens": outcome.prompt_tokens,
                "completion_tokens": outcome.completion_tokens,
                "usd": outcome.usd,
            }
            with self._database.transaction() as db:
                begun = {name: value for name, value in vars(attempt).items() if name != "status"}
                self._database.journal.write("done", **begun, finished_at=now, blob=blob, **paid)
                db.execute(
                    "UPDATE attempts SET status = 'done', finished_at = ?, model = ?,"
                    " prompt_tokens = ?, completion_tokens = ?, usd = ? WHERE id = ?",
                    (now, *paid.values(), attempt.id),
                )
                db.execute(
                    "INSERT OR REPLACE INTO effects VALUES (?, ?, ?, ?)",
                    (attempt.key, attempt.stage, blob, now),
                )
                if outcome.usd:
                    db.execute(
                        "INSERT INTO paid VALUES (?, ?)"
                        " ON CONFLICT (scope) DO UPDATE SET usd = usd + excluded.usd",
                        (attempt.scope, outcome.usd),
                    )
        except OSError as error:
            raise make_unavailable(self._database.path, error) from error
        return outcome.data

    def bury_dead(self, db: sqlite3.Connection, key: str | None) -> None:
        """Marks attempts whose process is gone as unknown."""
        # Two statements: with `? IS NULL OR key = ?` SQLite read all attempts, 11 ms of 100,000.
        of_key = ("AND key = ?", [key]) if key is not None else ("", [])
        rows = db.execute(
            "SELECT id, pid, process_started, reserved_usd FROM attempts"
            f" WHERE status = 'started' {of_key[0]}",
            of_key[1],
        ).fetchall()
        for attempt, pid, process, reserved_usd in rows:
            if not self._is_alive(attempt, pid, process):
                db.execute(
                    "UPDATE attempts SET status = 'unknown', finished_at = ? WHERE id = ?",
                    (time.time(), attempt),
                )
                if reserved_usd > 0:
                    self._database.journal.write("unknown", id=attempt)

    def _is_alive(self, attempt: int, pid: int, process: str) -> bool:
        if pid == os.getpid():
            return (str(self._database.path), attempt) in _IN_THIS_PROCESS
        return identify_process(pid) == process  # a pid is reused


def _reserve(db: sqlite3.Connection, stage: str, scope: str, usd: float) -> None:
    limit = db.execute("SELECT limit_usd FROM budgets WHERE scope = ?", (scope,)).fetchone()
    if limit is None or usd <= 0:
        return
    spent = sum_spent(db, scope)
    if spent + usd > limit[0] + 1e-12:
        raise BudgetExceeded(
            f"budget {scope!r}: {stage} needs up to {usd:.6f} USD, {spent:.6f} of"
            f" {limit[0]:.6f} USD are spent or reserved; what is done stays, raise the budget"
            " and run again to go on"
        )


def sum_spent(db: sqlite3.Connection, scope: str) -> float:
    """US dollars paid in `scope`, plus those that attempts under way or unknown still hold."""
    return db.execute(
        "SELECT COALESCE((SELECT usd FROM paid WHERE scope = ?1), 0)"
        " + COALESCE((SELECT SUM(reserved_usd) FROM attempts"
        " WHERE scope = ?1 AND status IN ('started', 'unknown')), 0)",
        (scope,),
    ).fetchone()[0]


def _describe_error(error: BaseException) -> str:
    """As SQLite takes it: a third party's text may hold halves of surrogate pairs."""
    text = f"{type(error).__name__}: {error}"[:500]
    return text.encode("utf-8", "backslashreplace").decode()
