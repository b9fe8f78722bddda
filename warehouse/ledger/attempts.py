"""Attempts at effects: claimed by one process, started before they are sent, then finished."""

import json
import shutil
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from warehouse.ledger.batch_records import (
    DROPPED,
    OPEN,
    is_abandoned,
    read_batch,
    release_attempts,
    write_batch,
)
from warehouse.ledger.database import (
    Connection,
    LedgerDatabase,
    LedgerUnavailable,
    make_unavailable,
)
from warehouse.storage.blobs import BlobCorrupt, Blobs
from warehouse.storage.digest import sha256
from warehouse.storage.files import write_atomically

_ROOM = 8 * 1024 * 1024  # bytes that must be free before anything is paid: an answer needs a place
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
UNRECORDED = "unrecorded"  # folder of answers that the database could not take when they came
_IN_THIS_PROCESS: set[tuple[str, int]] = set()  # (ledger path, attempt id) now being carried out


class BudgetExceeded(RuntimeError):
    """The reservation of one more effect would pass the budget of its scope."""


class EffectPending(RuntimeError):
    """The effect is under way in the open batch of this name ("": in another process)."""


LOCAL_ANSWER = "answer"  # the stage of a local model's answers, which no row of a table names


@dataclass(frozen=True)
class EffectOutcome:
    """What an effect returned, and what it cost. repeatable: whether this machine would return the
    same again, so that nothing waits for the disk to keep it."""

    data: bytes
    model: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    usd: float = 0.0
    repeatable: bool = False


@dataclass(frozen=True)
class EffectAttempt:
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
    error: str | None = None


def describe_losses(losses: Iterable[tuple[str | None, str]]) -> str:
    """How many attempts were lost by what, of the (error, batch) of each."""
    counts = Counter(_name_loss(error, batch) for error, batch in losses)
    return ", ".join(f"{n} {what}" for what, n in counts.most_common())


def _name_loss(error: str | None, batch: str) -> str:
    if batch:
        return "lost with a batch"
    if error is None:  # `end_dead` knows no more
        return "cut off with a killed run"
    kind, _, text = error.partition(": ")
    if kind == "TimeoutError" or text.startswith("timeout"):
        return "timed out"
    return "interrupted" if kind in _INTERRUPTIONS else "lost the connection"


_INTERRUPTIONS = ("KeyboardInterrupt", "CancelledError", "SystemExit", "GeneratorExit")


class AttemptLog:
    """The attempts of one ledger, carried out by this process or by others."""

    def __init__(self, database: LedgerDatabase, blobs: Blobs, run_id: str) -> None:
        self._database, self._blobs, self._run_id = database, blobs, run_id

    def read_blob(self, name: str | None) -> bytes | None:
        """The bytes of a blob; None for one that is lost, so that its effect is due again."""
        try:
            return self._blobs.get(name) if name else None
        except (KeyError, BlobCorrupt):
            return None

    def claim(
        self, stage: str, key: str, partition: str, reserve_usd: float, scope: str, batch: str = ""
    ) -> bytes | EffectAttempt | None:
        """The stored bytes, or a new attempt that is ours (with `batch` that batch's, whatever
        process lives), or None: somebody has it. Raises EffectPending where an open batch has."""
        file = self._find_unrecorded(key)
        if file.exists():
            answer = json.loads(file.read_bytes())
            with self._database.transaction() as late_db:
                if find_status(late_db, answer["id"], key) in ("started", "failed", "unknown"):
                    write_answer(late_db, answer)
            file.unlink(missing_ok=True)
        if (data := self.read_blob(self._database.find_blob(key))) is not None:
            return data
        columns = f"{_CLAIM}, {self._database.store.write_next_id()}"
        durable = reserve_usd > 0 or batch != ""
        # Selected again under the lock: another process may have finished the key since.
        with self._database.transaction_after(
            columns, key, key, scope, scope, scope, durable=durable
        ) as (db, (blob, under_way, limit, spent, number)):
            if (data := self.read_blob(blob)) is not None:
                return data
            if under_way:
                self.end_dead(db, key)
                holder = db.execute(
                    "SELECT batch FROM attempts WHERE key = ? AND status = 'started'", (key,)
                ).fetchone()
                if holder and not holder[0]:
                    return None
                if holder and not self.drop_abandoned(db, holder[0]):
                    raise EffectPending(holder[0])
                spent = sum_spent(db, scope)
            if reserve_usd > 0:
                self._check_room()
                _check_budget(scope, stage, reserve_usd, spent, limit)
            attempt = EffectAttempt(
                number, key, stage, partition, self._run_id, time.time(),
                "started", reserve_usd, scope, batch,
            )  # fmt: skip
            return self._start(db, attempt)

    def _start(self, db: Connection, attempt: EffectAttempt) -> EffectAttempt:
        owner = (0, "") if attempt.batch else self._database.store.identify()
        db.execute(
            "INSERT INTO attempts (id, key, stage, partition, status, run_id, pid,"
            " process_started, started_at, scope, reserved_usd, batch)"
            " VALUES (?, ?, ?, ?, 'started', ?, ?, ?, ?, ?, ?, ?)",
            (attempt.id, attempt.key, attempt.stage, attempt.partition, attempt.run_id, *owner,
             attempt.started_at, attempt.scope, attempt.reserved_usd, attempt.batch),
        )  # fmt: skip
        if not attempt.batch:
            _IN_THIS_PROCESS.add((str(self._database.path), attempt.id))
        return attempt

    def drop_abandoned(self, db: Connection, name: str) -> bool:
        """Drops a batch that nobody will send, making its requests due; whether it was one."""
        batch = read_batch(db, name)
        if not is_abandoned(batch, self._database.store.is_alive):
            return False
        release_attempts(db, name, "dropped: the batch was never sent")
        if batch and batch.state in OPEN:
            write_batch(db, batch.model_copy(update={"state": DROPPED}))
        return True

    def _check_room(self) -> None:
        """Raises LedgerUnavailable where an answer that was paid for could not be kept."""
        for folder in (self._database.path.parent, self._blobs.root):
            if folder.exists() and (free := shutil.disk_usage(folder).free) < _ROOM:
                raise LedgerUnavailable(
                    f"{folder}: {free:,} bytes are free, expected {_ROOM:,} before anything is"
                    " paid for; nothing was sent: free some space and run again"
                )

    @contextmanager
    def carry_out(self, attempt: EffectAttempt) -> Iterator[None]:
        """The time of one effect: an error is recorded, and raised on."""
        try:
            yield
        except BaseException as error:
            # What was sent, and may have been answered and billed unseen, stays in the budget.
            unseen = not isinstance(error, Exception) or getattr(error, "maybe_paid", False)
            status = "unknown" if unseen and attempt.reserved_usd > 0 else "failed"
            # Where the database is gone the attempt stays under way until its process has ended.
            with suppress(LedgerUnavailable), self._database.transaction(durable=False) as db:
                db.execute(
                    "UPDATE attempts SET status = ?, finished_at = ?, error = ?"
                    " WHERE id = ? AND status = 'started'",
                    (
                        status,
                        time.time(),
                        make_storable(f"{type(error).__name__}: {error}"),
                        attempt.id,
                    ),
                )
            raise
        finally:
            _IN_THIS_PROCESS.discard((str(self._database.path), attempt.id))

    def finish(self, attempt: EffectAttempt, outcome: EffectOutcome) -> bytes:
        try:
            blob = self._blobs.put(outcome.data, durable=not outcome.repeatable)
            answer = make_answer(attempt, outcome, blob)
            try:
                paid = attempt.reserved_usd > 0 or outcome.usd > 0
                with self._database.transaction(durable=paid) as db:
                    write_answer(db, answer)
            except LedgerUnavailable:
                # It was paid for: whoever wants this effect next finds the answer here.
                write_atomically(self._find_unrecorded(attempt.key), json.dumps(answer).encode())
                raise
        except OSError as error:
            raise make_unavailable(self._database.path, error) from error
        return outcome.data

    def _find_unrecorded(self, key: str) -> Path:
        """The file of an answer that the database could not take when it came."""
        return self._database.path.parent / UNRECORDED / f"{sha256(key.encode())}.json"

    def end_dead(self, db: Connection, key: str | None) -> None:
        """Marks attempts whose process is gone as unknown: of one effect, or of all."""
        # Two statements: with `? IS NULL OR key = ?` SQLite read all attempts, 11 ms of 100,000.
        of_key = ("AND key = ?", [key]) if key is not None else ("", [])
        rows = db.execute(
            "SELECT id, pid, process_started, started_at FROM attempts"
            f" WHERE status = 'started' AND batch = '' {of_key[0]}",
            of_key[1],
        ).fetchall()
        for attempt, pid, process, since in rows:
            if not self._is_alive(attempt, pid, process, since):
                db.execute(
                    "UPDATE attempts SET status = 'unknown', finished_at = ? WHERE id = ?",
                    (time.time(), attempt),
                )

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


def make_answer(attempt: EffectAttempt, outcome: EffectOutcome, blob: str) -> dict[str, Any]:
    return {
        "id": attempt.id, "key": attempt.key, "stage": attempt.stage, "scope": attempt.scope,
        "finished_at": time.time(), "blob": blob, "model": outcome.model,
        "prompt_tokens": outcome.prompt_tokens, "completion_tokens": outcome.completion_tokens,
        "usd": outcome.usd,
    }  # fmt: skip


def write_answer(db: Connection, answer: dict[str, Any]) -> None:
    names = ("finished_at", "model", "prompt_tokens", "completion_tokens", "usd", "id", "key")
    db.execute(
        "UPDATE attempts SET status = 'done', finished_at = ?, model = ?, prompt_tokens = ?,"
        " completion_tokens = ?, usd = ? WHERE id = ? AND key = ?",
        [answer[name] for name in names],
    )
    db.execute(
        "INSERT INTO effects VALUES (?, ?, ?, ?) ON CONFLICT (key) DO UPDATE SET"
        " stage = excluded.stage, blob = excluded.blob, finished_at = excluded.finished_at",
        [answer[name] for name in ("key", "stage", "blob", "finished_at")],
    )
    if answer["usd"]:
        db.execute(
            "INSERT INTO paid VALUES (?, ?)"
            " ON CONFLICT (scope) DO UPDATE SET usd = paid.usd + excluded.usd",
            (answer["scope"], answer["usd"]),
        )


def find_status(db: Connection, number: int, key: str) -> str | None:
    row = db.execute("SELECT status FROM attempts WHERE id = ? AND key = ?", (number, key))
    return (row.fetchone() or (None,))[0]


def make_storable(text: str) -> str:
    """As databases take it: a third party's text may hold halves of surrogate pairs, and NUL."""
    return text[:500].encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")
