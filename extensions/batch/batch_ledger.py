"""The batches of a ledger: which requests are under way in which, and what came back."""

import fcntl
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from warehouse.ledger.attempts import (
    EffectAttempt,
    EffectOutcome,
    EffectPending,
    find_status,
    make_answer,
    make_storable,
    write_answer,
)
from warehouse.ledger.batch_records import (
    DROPPED,
    GATHERING,
    OPEN,
    BatchRecord,
    is_abandoned,
    list_batches,
    read_batch,
    release_attempts,
    write_batch,
)
from warehouse.ledger.database import make_unavailable
from warehouse.ledger.ledger import Ledger

# One answer in a transaction of its own costs a commit and a line; many share the commit.
_AT_ONCE = 500
# Each blob waits for the disk twice, 7 ms under load; side by side the disk serves them together.
_WRITERS = 16
_COUNTED = (("answered", "done"), ("failed", "failed"), ("unknown", "unknown"))


class BatchLedger:
    """The batches of one ledger. Raises LedgerUnavailable where a file cannot be used."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger, self._database, self._attempts = ledger, ledger.database, ledger.attempts

    def open(self, name: str, **facts: Any) -> BatchRecord:
        """A new batch that this process gathers; `facts`: of Batch."""
        pid, process = self._database.store.identify()
        batch = BatchRecord(
            name=name, state=GATHERING, opened_at=time.time(), pid=pid, process=process, **facts
        )
        self.save(batch)
        return batch

    def save(self, batch: BatchRecord) -> None:
        with self._database.transaction() as db:
            write_batch(db, batch)

    def update(self, batch: BatchRecord, **facts: Any) -> BatchRecord:
        """The batch with what is new of it, kept where it differs from what is kept."""
        new = batch.model_copy(update=facts)
        if self.read(batch.name) != new:
            self.save(new)
        return new

    def read(self, name: str) -> BatchRecord | None:
        with self._database.transaction() as db:
            return read_batch(db, name)

    def find(self, *states: str) -> list[BatchRecord]:
        """Batches in these states (default: all), oldest first, after those of killed processes."""
        with self._database.transaction() as db:
            for batch in list_batches(db):
                if batch.state == GATHERING:
                    self._attempts.drop_abandoned(db, batch.name)
            return [batch for batch in list_batches(db) if not states or batch.state in states]

    def claim(
        self, batch: BatchRecord, stage: str, key: str, *, reserve_usd: float, scope: str
    ) -> bytes | None:
        """None: the effect is the batch's from here on; or its stored bytes. Raises EffectPending
        where it is under way already, BudgetExceeded where it does not fit."""
        claim = self._attempts.claim(
            stage, key, batch.partition, reserve_usd, scope, batch=batch.name
        )
        if claim is None:
            raise EffectPending("")
        return None if isinstance(claim, EffectAttempt) else claim

    def find_holder(self, key: str) -> str | None:
        """The batch that an effect is under way in, by a look without a lock, if it may be sent."""
        rows = self._database.select(
            "SELECT batch FROM attempts WHERE key = ? AND status = 'started' AND batch <> ''", key
        )
        if not rows:
            return None
        with self._database.transaction() as db:
            batch = read_batch(db, rows[0][0])
            return None if is_abandoned(batch, self._database.store.is_alive) else rows[0][0]

    def drop(self, batch: BatchRecord, why: str) -> int:
        """Puts away a batch of which nothing was sent; how many requests are due again."""
        with self._database.transaction() as db:
            released = release_attempts(db, batch.name, f"dropped: {why}")
            write_batch(db, batch.model_copy(update={"state": DROPPED, "problem": why}))
        return released

    def list_waiting(self, name: str) -> dict[str, EffectAttempt]:
        """Key -> attempt, of the requests of a batch that are under way."""
        with self._database.transaction() as db:
            rows = db.execute(
                "SELECT id, key, stage, partition, run_id, started_at, status, reserved_usd, scope,"
                " batch FROM attempts WHERE batch = ? AND batch <> '' AND status = 'started'",
                (name,),
            ).fetchall()
        return {row[1]: EffectAttempt(*row) for row in rows}

    def finish(self, outcomes: Iterable[tuple[EffectAttempt, EffectOutcome]]) -> int:
        """Keeps answers, in transactions of many; how many were not kept before."""
        return sum(self._finish_part(part) for part in _split_parts(outcomes))

    def end(self, ended: Iterable[tuple[EffectAttempt, str]], status: str) -> int:
        """Ends requests without an answer: `failed`, or `unknown` where it may have been paid."""
        return sum(self._end_part(part, status) for part in _split_parts(ended))

    def count(self, name: str) -> dict[str, Any]:
        """What the requests of a batch came to: answered, failed, unknown, and US dollars."""
        rows = self._database.select(
            "SELECT status, COUNT(*), SUM(usd) FROM attempts WHERE batch = ? AND batch <> ''"
            " GROUP BY status",
            name,
        )
        totals = {status: (count, usd) for status, count, usd in rows}
        counts = {name: totals.get(status, (0, 0.0))[0] for name, status in _COUNTED}
        return {**counts, "usd": round(totals.get("done", (0, 0.0))[1], 9)}

    def list_failures(self, key: str) -> list[str]:
        rows = self._database.select(
            "SELECT error FROM attempts WHERE key = ? AND status IN ('failed', 'unknown')"
            " AND batch <> '' ORDER BY id",
            key,
        )
        return [row[0] or "" for row in rows]

    @contextmanager
    def hold(self, name: str) -> Iterator[BatchRecord | None]:
        """The batch while this process alone sends or harvests it; None if another does."""
        path = self._database.path.with_name(f"batch-{name}.lock")
        with path.open("ab") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                yield None
                return
            with self._database.hold_name(name) as ours:
                yield self.read(name) if ours else None
            ended = self.read(name)
            if ended is None or ended.state not in OPEN:
                path.unlink(missing_ok=True)  # whoever waits for it reads that it has ended

    def _finish_part(self, outcomes: Sequence[tuple[EffectAttempt, EffectOutcome]]) -> int:
        """Keeps answers in one transaction; returns how many were still under way."""
        try:
            with ThreadPoolExecutor(_WRITERS) as pool:
                blobs = list(
                    pool.map(self._ledger.blobs.put, (outcome.data for _, outcome in outcomes))
                )
            count = 0
            with self._database.transaction() as db:
                for (attempt, outcome), blob in zip(outcomes, blobs, strict=True):
                    if find_status(db, attempt.id, attempt.key) == "started":
                        write_answer(db, make_answer(attempt, outcome, blob))
                        count += 1
            return count
        except OSError as error:
            raise make_unavailable(self._database.path, error) from error

    def _end_part(self, ended: Sequence[tuple[EffectAttempt, str]], status: str) -> int:
        """Ends attempts under way of which nothing was received, each with its error: `failed` is
        due again, `unknown` too but keeps its reservation. How many there were."""
        count = 0
        with self._database.transaction() as db:
            for attempt, error in ended:
                if find_status(db, attempt.id, attempt.key) == "started":
                    db.execute(
                        "UPDATE attempts SET status = ?, finished_at = ?, error = ? WHERE id = ?",
                        (status, time.time(), make_storable(error), attempt.id),
                    )
                    count += 1
        return count


def _split_parts(items: Iterable[Any]) -> Iterator[Sequence[Any]]:
    part: list[Any] = []
    for item in items:
        part.append(item)
        if len(part) == _AT_ONCE:
            yield part
            part = []
    if part:
        yield part
