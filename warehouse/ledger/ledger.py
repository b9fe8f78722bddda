"""The ledger of effects, each named by a digest of what can change its result, and paid for once:
its blob is written first, then `done`. `started` attempts of a killed process become `unknown`, and
are repeated."""

import asyncio
import fcntl
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from warehouse.ledger.attempts import (
    AttemptLog,
    EffectAttempt,
    EffectOutcome,
    EffectPending,
    sum_spent,
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
from warehouse.ledger.database import LedgerDatabase, LedgerUnavailable
from warehouse.storage.blobs import Blobs

# One answer in a transaction of its own costs a commit and a line; many share the commit.
_AT_ONCE = 500
_COUNTED = (("answered", "done"), ("failed", "failed"), ("unknown", "unknown"))


class Batches:
    """The batches of one ledger. Raises LedgerUnavailable where a file cannot be used."""

    def __init__(self, database: LedgerDatabase, attempts: AttemptLog) -> None:
        self._database, self._attempts = database, attempts

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
        count = 0
        for part in _split_parts(outcomes):
            count += len(self._attempts.finish_all(part))
        return count

    def end(self, ended: Iterable[tuple[EffectAttempt, str]], status: str) -> int:
        """Ends requests without an answer: `failed`, or `unknown` where it may have been paid."""
        return sum(self._attempts.end_all(part, status) for part in _split_parts(ended))

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


def _split_parts(items: Iterable[Any]) -> Iterator[Sequence[Any]]:
    part: list[Any] = []
    for item in items:
        part.append(item)
        if len(part) == _AT_ONCE:
            yield part
            part = []
    if part:
        yield part


_RUN_S = 20 * 3600.0  # an open run older than this was abandoned: the world has moved on
_WAIT_LIMIT_S = 1800.0  # a fetch or a training run of another process may hold a key this long


class Ledger:
    """All effects under one root. One object may serve many threads and one event loop."""

    def __init__(
        self,
        path: Path,
        blobs: Blobs,
        *,
        run_id: str = "-",
        patience_s: float = 60.0,
        url: str | None = None,
    ) -> None:
        """path: of the SQLite file. url: of a Postgres instead; `path` then says where to keep
        answers that arrive while it does not answer."""
        self.path, self.blobs, self.run_id = path, blobs, run_id
        self._database = LedgerDatabase(path, patience_s=patience_s, url=url)
        self._attempts = AttemptLog(self._database, blobs, run_id)
        self.batches = Batches(self._database, self._attempts)

    def once(
        self,
        stage: str,
        key: str,
        fn: Callable[[], EffectOutcome],
        *,
        partition: str = "_",
        reserve_usd: float = 0.0,
        scope: str = "usd",
    ) -> bytes:
        """The bytes of effect `key`, carried out only once. `reserve_usd`, its highest cost, is
        held against the budget of `scope` until then. Raises BudgetExceeded before `fn` is called,
        and `fn`'s errors after recording the attempt as failed."""
        deadline = time.monotonic() + _WAIT_LIMIT_S
        while not isinstance(
            claim := self._attempts.claim(stage, key, partition, reserve_usd, scope), EffectAttempt
        ):
            if claim is not None:
                return claim
            _check_wait(key, deadline)
            time.sleep(0.1)
        with self._attempts.carry_out(claim):
            return self._attempts.finish(claim, fn())

    async def once_async(
        self,
        stage: str,
        key: str,
        fn: Callable[[], Awaitable[EffectOutcome]],
        *,
        partition: str = "_",
        reserve_usd: float = 0.0,
        scope: str = "usd",
    ) -> bytes:
        deadline = time.monotonic() + _WAIT_LIMIT_S
        while not isinstance(
            claim := self._attempts.claim(stage, key, partition, reserve_usd, scope), EffectAttempt
        ):
            if claim is not None:
                return claim
            _check_wait(key, deadline)
            await asyncio.sleep(0.1)
        with self._attempts.carry_out(claim):
            return self._attempts.finish(claim, await fn())

    def seen(self, key: str) -> bytes | None:
        """The stored bytes of an effect that is done, or None; a lost blob counts as not done."""
        return self._attempts.read_blob(self._database.find_blob(key))

    def forget(self, key: str) -> None:
        """Makes an effect whose product (a model's folder) was lost due again, its cost kept."""
        with self._database.transaction() as db:
            db.execute("DELETE FROM effects WHERE key = ?", (key,))

    def forget_answers(self, blobs: Collection[str]) -> int:
        """Makes effects with these blobs due again, costs kept; returns how many there were."""
        names = sorted(blobs)
        marks = ", ".join("?" * len(names))
        rows = self._database.select(f"SELECT key FROM effects WHERE blob IN ({marks})", *names)
        for (key,) in rows:
            self.forget(key)
        return len(rows)

    def set_budget(self, scope: str, limit_usd: float) -> None:
        """Sets the most that effects of `scope` may cost in all, in US dollars."""
        with self._database.transaction() as db:
            db.execute(
                "INSERT INTO budgets VALUES (?, ?)"
                " ON CONFLICT (scope) DO UPDATE SET limit_usd = excluded.limit_usd"
                " WHERE budgets.limit_usd <> excluded.limit_usd",
                (scope, limit_usd),
            )

    def spent(self, scope: str = "usd") -> float:
        """US dollars paid, plus those still reserved by attempts that are under way or unknown."""
        with self._database.transaction() as db:
            return sum_spent(db, scope)

    def counts(
        self, *, since: float | None = None, run_id: str | None = None
    ) -> dict[tuple[str, str], int]:
        """Attempts per (stage, status), of one run or since a time (epoch seconds)."""
        rows = self._database.select(
            "SELECT stage, status, COUNT(*) FROM attempts"
            " WHERE started_at >= ? AND (? IS NULL OR run_id = ?) GROUP BY stage, status",
            *(since or 0.0, run_id, run_id),
        )
        return {(stage, status): count for stage, status, count in rows}

    def list_unknown(self) -> list[EffectAttempt]:
        """Attempts maybe sent and answered: timed out, cut off, or of a process that died."""
        with self._database.transaction() as db:
            self._attempts.end_dead(db, None)
            rows = db.execute(
                "SELECT id, key, stage, partition, run_id, started_at, status, reserved_usd, scope,"
                " batch, error FROM attempts WHERE status = 'unknown' ORDER BY id"
            ).fetchall()
        return [EffectAttempt(*row) for row in rows]

    def costs(self) -> list[dict[str, Any]]:
        """Effects, seconds, tokens and US dollars per stage, partition and model: the rows of
        `spend`. Seconds are of each attempt alone: attempts that ran side by side count each."""
        with self._database.transaction() as db:
            cursor = db.execute(
                "SELECT stage, partition, model, status, COUNT(*) AS effects,"
                " SUM(COALESCE(finished_at - started_at, 0)) AS seconds,"
                " SUM(prompt_tokens) AS prompt_tokens,"
                " SUM(completion_tokens) AS completion_tokens, SUM(usd) AS usd"
                " FROM attempts GROUP BY stage, partition, model, status"
                " ORDER BY stage, partition, model, status"
            )
            names = [column[0] for column in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def count_last_run(self, partition: str, stages: Sequence[str]) -> dict[str, int]:
        """Attempts by stage of a partition's last Dagster run with any of `stages`, or {}."""
        marks = ", ".join("?" * len(stages))
        rows = self._database.select(
            "SELECT stage, COUNT(*) FROM attempts WHERE run_id = (SELECT run_id FROM attempts"
            f" WHERE partition = ? AND stage IN ({marks}) ORDER BY id DESC LIMIT 1) GROUP BY stage",
            partition,
            *stages,
        )
        return dict(rows)

    def open_run(self, scope: str) -> str:
        """The UTC date and number, "2026-01-31.4", of `scope`'s open run or a new one: the key of
        effects on the moving world. A killed run stays open for its successor."""
        with self._database.transaction() as db:
            row = db.execute(
                "SELECT number, id, closed_at, opened_at FROM runs WHERE scope = ?"
                " ORDER BY number DESC LIMIT 1",
                (scope,),
            ).fetchone()
            if row and row[2] is None and row[3] > time.time() - _RUN_S:
                return row[1]
            number = (row[0] if row else 0) + 1
            run_date = f"{time.strftime('%Y-%m-%d', time.gmtime())}.{number}"
            db.execute(
                "INSERT INTO runs VALUES (?, ?, ?, ?, NULL)", (scope, number, run_date, time.time())
            )
            return run_date

    def close_run(self, scope: str) -> None:
        """Ends the open run of `scope`; closing a closed run changes nothing."""
        with self._database.transaction() as db:
            db.execute(
                "UPDATE runs SET closed_at = ? WHERE scope = ? AND closed_at IS NULL",
                (time.time(), scope),
            )

    def close(self) -> None:
        self._database.close()


def _check_wait(key: str, deadline: float) -> None:
    if time.monotonic() > deadline:
        raise LedgerUnavailable(
            f"effect {key[:12]} is still held by another live process after"
            f" {_WAIT_LIMIT_S:.0f} s; end that run or wait for it, then run again"
        )
