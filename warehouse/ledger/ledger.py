"""The ledger of effects (SQLite, WAL): started before sent, read instead of redone, paid once.

An effect is named by a digest of everything that can change its result. Nobody pays twice for a
received answer: its blob is written first, then a line of the journal, then `done`. A killed
process leaves `started` attempts; whoever comes next lists them as `unknown` and does them again.
"""

import asyncio
import os
import sqlite3
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import psutil

from warehouse.ledger.files import (
    LedgerUnavailable,
    held_by_database,
    hold_open,
    journal_of,
    make_unavailable,
)
from warehouse.ledger.journal import STARTED, Journal, replay_journal, write_whole
from warehouse.storage.blobs import BlobCorrupt, Blobs

_SCHEMA = Path(__file__).with_name("schema.sql")
_RUN_S = 20 * 3600.0  # an open run older than this was abandoned: the world has moved on
_WAIT_LIMIT_S = 1800.0  # a fetch or a training run of another process may hold a key this long
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


class Ledger:
    """All effects under one root. One object may serve many threads and one event loop."""

    def __init__(
        self, path: Path, blobs: Blobs, *, run_id: str = "-", patience_s: float = 60.0
    ) -> None:
        self.path = path
        self.blobs = blobs
        self.run_id = run_id
        self._lock = threading.RLock()
        self._process_started = psutil.Process().create_time()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._held = hold_open(path)
            self._db = sqlite3.connect(
                path, timeout=patience_s, isolation_level=None, check_same_thread=False
            )
            self._db.executescript("PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;")
            self._db.executescript(_SCHEMA.read_text())
            self._journal = self._open_journal()
        except (sqlite3.Error, OSError) as error:
            raise make_unavailable(path, error) from error

    def _open_journal(self) -> Journal:
        """The journal beside the database; filled first where a ledger is older than journals."""
        path = journal_of(self.path)
        with self._transaction() as db:
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

    def once(
        self,
        stage: str,
        key: str,
        fn: Callable[[], Outcome],
        *,
        partition: str = "_",
        reserve_usd: float = 0.0,
        scope: str = "usd",
    ) -> bytes:
        """The bytes of the effect `key`, carried out now unless it was carried out before.

        `reserve_usd` is the most the effect may cost; it is held against the budget of `scope`
        until the real cost is known. Raises BudgetExceeded before `fn` is called, and whatever
        `fn` raises after recording the attempt as failed.
        """
        deadline = time.monotonic() + _WAIT_LIMIT_S
        while not isinstance(
            claim := self._claim(stage, key, partition, reserve_usd, scope), Attempt
        ):
            if claim is not None:
                return claim
            self._check_wait(key, deadline)
            time.sleep(0.1)
        with self._carrying_out(claim):
            return self._finish(claim, fn())

    async def once_async(
        self,
        stage: str,
        key: str,
        fn: Callable[[], Awaitable[Outcome]],
        *,
        partition: str = "_",
        reserve_usd: float = 0.0,
        scope: str = "usd",
    ) -> bytes:
        """`once` for an awaitable effect."""
        deadline = time.monotonic() + _WAIT_LIMIT_S
        while not isinstance(
            claim := self._claim(stage, key, partition, reserve_usd, scope), Attempt
        ):
            if claim is not None:
                return claim
            self._check_wait(key, deadline)
            await asyncio.sleep(0.1)
        with self._carrying_out(claim):
            return self._finish(claim, await fn())

    def seen(self, key: str) -> bytes | None:
        """The stored bytes of an effect that is done, or None; a lost blob counts as not done."""
        # No transaction: a reader of WAL never waits for a writer, nor holds one up.
        with self._lock:
            try:
                row = self._db.execute("SELECT blob FROM effects WHERE key = ?", (key,)).fetchone()
            except sqlite3.Error as error:
                raise make_unavailable(self.path, error) from error
        return self._read_stored(row)

    def _read_stored(self, row: tuple[str] | None) -> bytes | None:
        try:
            return self.blobs.get(row[0]) if row else None
        except (KeyError, BlobCorrupt):
            return None

    def forget(self, key: str) -> None:
        """Makes an effect due again whose product (a model's folder) was lost; what it cost
        stays counted."""
        with self._transaction() as db:
            db.execute("DELETE FROM effects WHERE key = ?", (key,))
            self._journal.write("forgotten", key=key)

    def set_budget(self, scope: str, limit_usd: float) -> None:
        """Sets the most that effects of `scope` may cost in all, in US dollars."""
        with self._transaction() as db:
            row = db.execute("SELECT limit_usd FROM budgets WHERE scope = ?", (scope,)).fetchone()
            if row != (limit_usd,):
                db.execute("INSERT OR REPLACE INTO budgets VALUES (?, ?)", (scope, limit_usd))
                self._journal.write("budget", scope=scope, usd=limit_usd)

    def spent(self, scope: str = "usd") -> float:
        """US dollars paid, plus those still reserved by attempts that are under way or unknown."""
        with self._transaction() as db:
            return self._sum_spent(db, scope)

    def counts(
        self, *, since: float | None = None, run_id: str | None = None
    ) -> dict[tuple[str, str], int]:
        """Attempts per (stage, status), of one run or since a time (epoch seconds)."""
        with self._transaction() as db:
            rows = db.execute(
                "SELECT stage, status, COUNT(*) FROM attempts"
                " WHERE started_at >= ? AND (? IS NULL OR run_id = ?) GROUP BY stage, status",
                (since or 0.0, run_id, run_id),
            ).fetchall()
        return {(stage, status): count for stage, status, count in rows}

    def list_unknown(self) -> list[Attempt]:
        """Attempts that were under way when their process died: sent, perhaps; answered, unseen."""
        with self._transaction() as db:
            self._bury_dead(db, None)
            rows = db.execute(
                "SELECT id, key, stage, partition, run_id, started_at, status, reserved_usd, scope"
                " FROM attempts WHERE status = 'unknown' ORDER BY id"
            ).fetchall()
        return [Attempt(*row) for row in rows]

    def costs(self) -> list[dict[str, Any]]:
        """Effects, tokens and US dollars per stage, partition and model: the rows of `spend`."""
        with self._transaction() as db:
            cursor = db.execute(
                "SELECT stage, partition, model, status, COUNT(*) AS effects,"
                " SUM(prompt_tokens) AS prompt_tokens,"
                " SUM(completion_tokens) AS completion_tokens, SUM(usd) AS usd"
                " FROM attempts GROUP BY stage, partition, model, status"
                " ORDER BY stage, partition, model, status"
            )
            names = [column[0] for column in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def open_run(self, scope: str) -> str:
        """The run date of `scope`'s open run, or of a new one: what keys effects on the moving
        world. UTC date and number, "2026-01-31.4".

        A run that was killed is left open, so its successor reads what was already fetched; after
        one that finished and was closed, the next looks at the world anew.
        """
        with self._transaction() as db:
            row = db.execute(
                "SELECT number, id, closed_at, opened_at FROM runs WHERE scope = ?"
                " ORDER BY number DESC LIMIT 1",
                (scope,),
            ).fetchone()
            if row and row[2] is None and row[3] > time.time() - _RUN_S:
                return row[1]
            number = (row[0] if row else 0) + 1
            run_date = f"{time.strftime('%Y-%m-%d', time.gmtime())}.{number}"
            self._write_run(db, scope, number, run_date, time.time(), None)
            return run_date

    def find_run_start(self, scope: str) -> float:
        """When the last run of `scope` was opened (epoch seconds); now, if it has none."""
        with self._transaction() as db:
            row = db.execute("SELECT MAX(opened_at) FROM runs WHERE scope = ?", (scope,)).fetchone()
        return row[0] or time.time()

    def close_run(self, scope: str) -> None:
        """Ends the open run of `scope`; closing a closed run changes nothing."""
        with self._transaction() as db:
            open_ = db.execute(
                "SELECT scope, number, id, opened_at FROM runs"
                " WHERE scope = ? AND closed_at IS NULL",
                (scope,),
            ).fetchall()
            for row in open_:
                self._write_run(db, *row, time.time())

    def _write_run(self, db: sqlite3.Connection, *row: Any) -> None:
        db.execute("INSERT OR REPLACE INTO runs VALUES (?, ?, ?, ?, ?)", row)
        names = ("scope", "number", "id", "opened_at", "closed_at")
        self._journal.write("run", **dict(zip(names, row, strict=True)))

    def close(self) -> None:
        with self._lock:
            self._db.close()
            self._journal.close()
            self._held.close()

    def _claim(
        self, stage: str, key: str, partition: str, reserve_usd: float, scope: str
    ) -> bytes | Attempt | None:
        """The stored bytes, or a new attempt that is ours, or None: somebody has it."""
        if (data := self.seen(key)) is not None:
            return data
        with self._transaction() as db:
            # Looked at again under the lock: whoever held the key may have finished since `seen`.
            row = db.execute("SELECT blob FROM effects WHERE key = ?", (key,)).fetchone()
            if (data := self._read_stored(row)) is not None:
                return data
            self._bury_dead(db, key)
            held = db.execute(
                "SELECT 1 FROM attempts WHERE key = ? AND status = 'started'", (key,)
            ).fetchone()
            if held:
                return None
            self._reserve(db, stage, scope, reserve_usd)
            began = time.time()
            cursor = db.execute(
                "INSERT INTO attempts (key, stage, partition, status, run_id, pid, process_started,"
                " started_at, scope, reserved_usd) VALUES (?, ?, ?, 'started', ?, ?, ?, ?, ?, ?)",
                (key, stage, partition, self.run_id, os.getpid(), self._process_started,
                 began, scope, reserve_usd),
            )  # fmt: skip
            attempt = Attempt(
                cast(int, cursor.lastrowid), key, stage, partition, self.run_id, began,
                "started", reserve_usd, scope,
            )  # fmt: skip
            if reserve_usd > 0:
                row = vars(attempt)
                self._journal.write("started", **{name: row[name] for name in STARTED})
            _IN_THIS_PROCESS.add((str(self.path), attempt.id))
            return attempt

    def _reserve(self, db: sqlite3.Connection, stage: str, scope: str, usd: float) -> None:
        limit = db.execute("SELECT limit_usd FROM budgets WHERE scope = ?", (scope,)).fetchone()
        if limit is None or usd <= 0:
            return
        spent = self._sum_spent(db, scope)
        if spent + usd > limit[0] + 1e-12:
            raise BudgetExceeded(
                f"budget {scope!r}: {stage} needs up to {usd:.6f} USD, {spent:.6f} of"
                f" {limit[0]:.6f} USD are spent or reserved; what is done stays, raise the budget"
                " and run again to go on"
            )

    def _sum_spent(self, db: sqlite3.Connection, scope: str) -> float:
        return db.execute(
            "SELECT COALESCE((SELECT usd FROM paid WHERE scope = ?1), 0)"
            " + COALESCE((SELECT SUM(reserved_usd) FROM attempts"
            " WHERE scope = ?1 AND status IN ('started', 'unknown')), 0)",
            (scope,),
        ).fetchone()[0]

    @contextmanager
    def _carrying_out(self, attempt: Attempt) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            # What was sent, and may have been answered and billed unseen, stays in the budget.
            unseen = not isinstance(error, Exception) or getattr(error, "maybe_paid", False)
            status = "unknown" if unseen and attempt.reserved_usd > 0 else "failed"
            with self._transaction() as db:
                ended = db.execute(
                    "UPDATE attempts SET status = ?, finished_at = ?, error = ?"
                    " WHERE id = ? AND status = 'started'",
                    (status, time.time(), f"{type(error).__name__}: {error}"[:500], attempt.id),
                )
                if attempt.reserved_usd > 0 and ended.rowcount:
                    self._journal.write(status, id=attempt.id)
            raise
        finally:
            _IN_THIS_PROCESS.discard((str(self.path), attempt.id))

    def _finish(self, attempt: Attempt, outcome: Outcome) -> bytes:
        now = time.time()
        try:
            blob = self.blobs.put(outcome.data)
            paid = {
                "model": outcome.model,
                "prompt_tokens": outcome.prompt_tokens,
                "completion_tokens": outcome.completion_tokens,
                "usd": outcome.usd,
            }
            with self._transaction() as db:
                begun = {name: value for name, value in vars(attempt).items() if name != "status"}
                self._journal.write("done", **begun, finished_at=now, blob=blob, **paid)
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
            raise make_unavailable(self.path, error) from error
        return outcome.data

    def _bury_dead(self, db: sqlite3.Connection, key: str | None) -> None:
        """Marks attempts whose process is gone as unknown."""
        # Two statements: with `? IS NULL OR key = ?` SQLite read all attempts, 11 ms of 100,000.
        of_key = ("AND key = ?", [key]) if key is not None else ("", [])
        rows = db.execute(
            "SELECT id, pid, process_started, reserved_usd FROM attempts"
            f" WHERE status = 'started' {of_key[0]}",
            of_key[1],
        ).fetchall()
        for attempt, pid, process_started, reserved_usd in rows:
            if not self._is_alive(attempt, pid, process_started):
                db.execute(
                    "UPDATE attempts SET status = 'unknown', finished_at = ? WHERE id = ?",
                    (time.time(), attempt),
                )
                if reserved_usd > 0:
                    self._journal.write("unknown", id=attempt)

    def _is_alive(self, attempt: int, pid: int, process_started: float) -> bool:
        if pid == os.getpid():
            return (str(self.path), attempt) in _IN_THIS_PROCESS
        try:
            process = psutil.Process(pid)
            # A pid is reused; the start time tells the process from its successor.
            return abs(process.create_time() - process_started) < 1 and (
                process.status() != psutil.STATUS_ZOMBIE
            )
        except psutil.NoSuchProcess:
            return False

    def _check_wait(self, key: str, deadline: float) -> None:
        if time.monotonic() > deadline:
            raise LedgerUnavailable(
                f"effect {key[:12]} is still held by another live process after"
                f" {_WAIT_LIMIT_S:.0f} s; end that run or wait for it, then run again"
            )

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            try:
                self._db.execute("BEGIN IMMEDIATE")
                try:
                    yield self._db
                except BaseException:
                    self._db.execute("ROLLBACK")
                    raise
                self._db.execute("COMMIT")
            except sqlite3.Error as error:
                raise make_unavailable(self.path, error) from error
