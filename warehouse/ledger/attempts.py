"""Attempts at effects: claimed by one process, started before they are sent, then finished."""

import shutil
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from warehouse.ledger.batch_records import (
    DROPPED,
    OPEN,
    is_abandoned,
    read_batch,
    release_attempts,
    write_batch,
)
from warehouse.ledger.database import Database
from warehouse.ledger.events import STARTED
from warehouse.ledger.files import LedgerUnavailable, make_unavailable
from warehouse.ledger.records import add_paid, write_effect
from warehouse.ledger.sql.store import Connection
from warehouse.storage.blobs import BlobCorrupt, Blobs

_ROOM = 8 * 1024 * 1024  # bytes that must be free before anything is paid: an answer needs a place
# Each blob waits for the disk twice, 7 ms under load; side by side the disk serves them together.
_WRITERS = 16
_SPENT = (
    "COALESCE((SELECT usd FROM paid WHERE scope = ?), 0) + COALESCE((SELECT SUM(reserved_usd)"
    " FROM attempts WHERE scope = ? AND status IN ('started', 'unknown')), 0)"
)
# What decides on a claim, as one question: of Postgres each is a way there and back.
_CLAIM = (
    "(SELECT blob FROM effects WHERE key = ?),"
    " (SELECT COUNT(*) FROM attempts WHERE key = ? AND status = 'started'),"
    f" (SELECT limit_usd FROM budgets WHERE scope = ?), {_SPENT}"
)
_IN_THIS_PROCESS: set[tuple[str, int]] = set()  # (ledger path, attempt id) now being carried out


class BudgetExceeded(RuntimeError):
    """The reservation of one more effect would pass the budget of its scope."""


class EffectPending(RuntimeError):
    """The effect is under way at a provider, as part of the open batch of this name ("": another
    process carries it out right now)."""


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
    batch: str = ""


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
        self,
        stage: str,
        key: str,
        partition: str,
        reserve_usd: float,
        scope: str,
        batch: str = "",
    ) -> bytes | Attempt | None:
        """The stored bytes, or a new attempt that is ours (with `batch` that batch's, whatever
        process lives), or None: somebody has it. Raises EffectPending where an open batch has."""
        if (data := self.read_blob(self._database.find_blob(key))) is not None:
            return data
        asked = f"{_CLAIM}, {self._database.store.write_next_id()}", key, key, scope, scope, scope
        # Looked at again under the lock: whoever held the key may have finished since.
        with self._database.asking(*asked) as (db, (blob, held, limit, spent, number)):
            if (data := self.read_blob(blob)) is not None:
                return data
            if held:
                self.bury_dead(db, key)
                held = db.execute(
                    "SELECT batch FROM attempts WHERE key = ? AND status = 'started'", (key,)
                ).fetchone()
                if held and not held[0]:
                    return None
                if held and not self.put_away(db, held[0]):
                    raise EffectPending(held[0])
                spent = sum_spent(db, scope)
            if reserve_usd > 0:
                self._check_room()
                _check_budget(scope, stage, reserve_usd, spent, limit)
            row = number, stage, key, partition, reserve_usd, scope, batch
            return self._start(db, *row)

    def _start(
        self,
        db: Connection,
        number: int,
        stage: str,
        key: str,
        partition: str,
        reserve_usd: float,
        scope: str,
        batch: str,
    ) -> Attempt:
        owner = (0, "") if batch else self._database.store.identify()
        attempt = Attempt(
            number, key, stage, partition, self._run_id, time.time(),
            "started", reserve_usd, scope, batch,
        )  # fmt: skip
        db.execute(
            "INSERT INTO attempts (id, key, stage, partition, status, run_id, pid,"
            " process_started, started_at, scope, reserved_usd, batch)"
            " VALUES (?, ?, ?, ?, 'started', ?, ?, ?, ?, ?, ?, ?)",
            (number, key, stage, partition, self._run_id, *owner, attempt.started_at, scope,
             reserve_usd, batch),
        )  # fmt: skip
        if _is_journaled(attempt):
            row = vars(attempt)
            self._database.journal.write("started", **{name: row[name] for name in STARTED})
        if not batch:
            _IN_THIS_PROCESS.add((str(self._database.path), attempt.id))
        return attempt

    def put_away(self, db: Connection, batch: str) -> bool:
        """Whether nobody will send the batch; what it holds is due again then."""
        found = read_batch(db, batch)
        if not is_abandoned(found, self._database.store.is_alive):
            return False
        self.release(db, batch, "dropped: the batch was never sent")
        if found and found.state in OPEN:
            gone = found.model_copy(update={"state": DROPPED})
            self._database.journal.write("batch", **gone.model_dump())
            write_batch(db, gone)
        return True

    def release(self, db: Connection, batch: str, error: str) -> int:
        """Ends as failed what is under way of a batch; how many."""
        ended = release_attempts(db, batch, error)
        for attempt in ended:
            self._database.journal.write("failed", id=attempt)
        return len(ended)

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
            # Where the database is gone the attempt stays under way until its process has ended.
            ending = self._database.transaction(await_disk=False)
            with suppress(LedgerUnavailable), ending as db:
                ended = db.execute(
                    "UPDATE attempts SET status = ?, finished_at = ?, error = ?"
                    " WHERE id = ? AND status = 'started' RETURNING id",
                    (status, time.time(), _describe_error(error), attempt.id),
                ).fetchall()
                if attempt.reserved_usd > 0 and ended:
                    self._database.journal.write(status, id=attempt.id)
            raise
        finally:
            _IN_THIS_PROCESS.discard((str(self._database.path), attempt.id))

    def finish(self, attempt: Attempt, outcome: Outcome) -> bytes:
        """Keeps what an effect returned: blob, then journal, then database."""
        try:
            blob = self._blobs.put(outcome.data)
            try:
                with self._database.transaction(await_disk=False) as db:
                    self._write_done(db, attempt, outcome, blob)
            except LedgerUnavailable:
                # It was paid for: the line waits for the next transaction of anyone here.
                self._database.journal.write("done", **_describe_done(attempt, outcome, blob))
                raise
        except OSError as error:
            raise make_unavailable(self._database.path, error) from error
        return outcome.data

    def finish_all(self, found: Sequence[tuple[Attempt, Outcome]]) -> list[Attempt]:
        """`finish` for many in one transaction; those that were still under way, each once."""
        finished = []
        try:
            with ThreadPoolExecutor(_WRITERS) as pool:
                blobs = list(pool.map(self._blobs.put, (outcome.data for _, outcome in found)))
            with self._database.transaction() as db:
                for (attempt, outcome), blob in zip(found, blobs, strict=True):
                    if _is_under_way(db, attempt):
                        self._write_done(db, attempt, outcome, blob)
                        finished.append(attempt)
        except OSError as error:
            raise make_unavailable(self._database.path, error) from error
        return finished

    def _write_done(self, db: Connection, attempt: Attempt, outcome: Outcome, blob: str) -> None:
        row = _describe_done(attempt, outcome, blob)
        self._database.journal.write("done", **row)
        names = ("finished_at", "model", "prompt_tokens", "completion_tokens", "usd", "id")
        db.execute(
            "UPDATE attempts SET status = 'done', finished_at = ?, model = ?,"
            " prompt_tokens = ?, completion_tokens = ?, usd = ? WHERE id = ?",
            [row[name] for name in names],
        )
        write_effect(db, attempt.key, attempt.stage, blob, row["finished_at"])
        if outcome.usd:
            add_paid(db, attempt.scope, outcome.usd)

    def end_all(self, ended: Sequence[tuple[Attempt, str]], status: str) -> int:
        """Ends attempts under way of which nothing was received, each with its error: `failed` is
        due again, `unknown` too but keeps its reservation. How many there were."""
        count = 0
        with self._database.transaction() as db:
            for attempt, error in ended:
                if _is_under_way(db, attempt):
                    db.execute(
                        "UPDATE attempts SET status = ?, finished_at = ?, error = ? WHERE id = ?",
                        (status, time.time(), _make_storable(error), attempt.id),
                    )
                    if _is_journaled(attempt):
                        self._database.journal.write(status, id=attempt.id)
                    count += 1
        return count

    def bury_dead(self, db: Connection, key: str | None) -> None:
        """Marks attempts whose process is gone as unknown."""
        # Two statements: with `? IS NULL OR key = ?` SQLite read all attempts, 11 ms of 100,000.
        of_key = ("AND key = ?", [key]) if key is not None else ("", [])
        rows = db.execute(
            "SELECT id, pid, process_started, started_at, reserved_usd FROM attempts"
            f" WHERE status = 'started' AND batch = '' {of_key[0]}",
            of_key[1],
        ).fetchall()
        for attempt, pid, process, since, reserved_usd in rows:
            if not self._is_alive(attempt, pid, process, since):
                db.execute(
                    "UPDATE attempts SET status = 'unknown', finished_at = ? WHERE id = ?",
                    (time.time(), attempt),
                )
                if reserved_usd > 0:
                    self._database.journal.write("unknown", id=attempt)

    def _is_alive(self, attempt: int, pid: int, process: str, since: float) -> bool:
        if (pid, process) == self._database.store.identify():
            return (str(self._database.path), attempt) in _IN_THIS_PROCESS
        return self._database.store.is_alive(pid, process, since)


def _check_budget(scope: str, stage: str, usd: float, spent: float, limit: float | None) -> None:
    """Raises BudgetExceeded where `usd` more would pass the limit of a scope."""
    if limit is not None and spent + usd > limit + 1e-12:
        raise BudgetExceeded(
            f"budget {scope!r}: {stage} needs up to {usd:.6f} USD, {spent:.6f} of"
            f" {limit:.6f} USD are spent or reserved; what is done stays, raise the budget"
            " and run again to go on"
        )


def sum_spent(db: Connection, scope: str) -> float:
    """US dollars paid in `scope`, plus those that attempts under way or unknown still hold."""
    return db.execute(f"SELECT {_SPENT}", (scope, scope)).fetchone()[0]


def _describe_done(attempt: Attempt, outcome: Outcome, blob: str) -> dict[str, Any]:
    """The line of the journal that keeps a received answer."""
    begun = {name: value for name, value in vars(attempt).items() if name != "status"}
    return {
        **begun, "finished_at": time.time(), "blob": blob, "model": outcome.model,
        "prompt_tokens": outcome.prompt_tokens, "completion_tokens": outcome.completion_tokens,
        "usd": outcome.usd,
    }  # fmt: skip


def _is_under_way(db: Connection, attempt: Attempt) -> bool:
    row = db.execute("SELECT key, status FROM attempts WHERE id = ?", (attempt.id,)).fetchone()
    return row == (attempt.key, "started")


def _is_journaled(attempt: Attempt) -> bool:
    """Whether a lost database must not forget it: it holds money, or lies at a provider."""
    return attempt.reserved_usd > 0 or attempt.batch != ""


def _describe_error(error: BaseException) -> str:
    return _make_storable(f"{type(error).__name__}: {error}")


def _make_storable(text: str) -> str:
    """As databases take it: a third party's text may hold halves of surrogate pairs, and NUL."""
    return text[:500].encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")
