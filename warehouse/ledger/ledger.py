"""The ledger of effects, each named by a digest of what can change its result, and paid for once:
its blob is written first, then `done`. `started` attempts of a killed process become `unknown`, and
are repeated."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from warehouse.ledger.attempts import AttemptLog, EffectAttempt, EffectOutcome, sum_spent
from warehouse.ledger.database import LedgerDatabase, LedgerUnavailable
from warehouse.storage.blobs import Blobs

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
        self.database = LedgerDatabase(path, patience_s=patience_s, url=url)
        self.attempts = AttemptLog(self.database, blobs, run_id)

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
            claim := self.attempts.claim(stage, key, partition, reserve_usd, scope), EffectAttempt
        ):
            if claim is not None:
                return claim
            _check_wait(key, deadline)
            time.sleep(0.1)
        with self.attempts.carry_out(claim):
            return self.attempts.finish(claim, fn())

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
            claim := self.attempts.claim(stage, key, partition, reserve_usd, scope), EffectAttempt
        ):
            if claim is not None:
                return claim
            _check_wait(key, deadline)
            await asyncio.sleep(0.1)
        with self.attempts.carry_out(claim):
            return self.attempts.finish(claim, await fn())

    def seen(self, key: str) -> bytes | None:
        """The stored bytes of an effect that is done, or None; a lost blob counts as not done."""
        return self.attempts.read_blob(self.database.find_blob(key))

    def forget(self, key: str) -> None:
        """Makes an effect whose product (a model's folder) was lost due again, its cost kept."""
        with self.database.transaction() as db:
            db.execute("DELETE FROM effects WHERE key = ?", (key,))

    def set_budget(self, scope: str, limit_usd: float) -> None:
        """Sets the most that effects of `scope` may cost in all, in US dollars."""
        with self.database.transaction() as db:
            db.execute(
                "INSERT INTO budgets VALUES (?, ?)"
                " ON CONFLICT (scope) DO UPDATE SET limit_usd = excluded.limit_usd"
                " WHERE budgets.limit_usd <> excluded.limit_usd",
                (scope, limit_usd),
            )

    def spent(self, scope: str = "usd") -> float:
        """US dollars paid, plus those still reserved by attempts that are under way or unknown."""
        with self.database.transaction() as db:
            return sum_spent(db, scope)

    def counts(
        self, *, since: float | None = None, run_id: str | None = None
    ) -> dict[tuple[str, str], int]:
        """Attempts per (stage, status), of one run or since a time (epoch seconds)."""
        rows = self.database.select(
            "SELECT stage, status, COUNT(*) FROM attempts"
            " WHERE started_at >= ? AND (? IS NULL OR run_id = ?) GROUP BY stage, status",
            *(since or 0.0, run_id, run_id),
        )
        return {(stage, status): count for stage, status, count in rows}

    def list_unknown(self) -> list[EffectAttempt]:
        """Attempts maybe sent and answered: timed out, cut off, or of a process that died."""
        with self.database.transaction() as db:
            self.attempts.end_dead(db, None)
            rows = db.execute(
                "SELECT id, key, stage, partition, run_id, started_at, status, reserved_usd, scope,"
                " batch, error FROM attempts WHERE status = 'unknown' ORDER BY id"
            ).fetchall()
        return [EffectAttempt(*row) for row in rows]

    def costs(self) -> list[dict[str, Any]]:
        """Effects, seconds, tokens and US dollars per stage, partition and model: the rows of
        `spend`. Seconds are of each attempt alone: attempts that ran side by side count each."""
        with self.database.transaction() as db:
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
        rows = self.database.select(
            "SELECT stage, COUNT(*) FROM attempts WHERE run_id = (SELECT run_id FROM attempts"
            f" WHERE partition = ? AND stage IN ({marks}) ORDER BY id DESC LIMIT 1) GROUP BY stage",
            partition,
            *stages,
        )
        return dict(rows)

    def open_run(self, scope: str) -> str:
        """The UTC date and number, "2026-01-31.4", of `scope`'s open run or a new one: the key of
        effects on the moving world. A killed run stays open for its successor."""
        with self.database.transaction() as db:
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
        with self.database.transaction() as db:
            db.execute(
                "UPDATE runs SET closed_at = ? WHERE scope = ? AND closed_at IS NULL",
                (time.time(), scope),
            )

    def close(self) -> None:
        self.database.close()


def _check_wait(key: str, deadline: float) -> None:
    if time.monotonic() > deadline:
        raise LedgerUnavailable(
            f"effect {key[:12]} is still held by another live process after"
            f" {_WAIT_LIMIT_S:.0f} s; end that run or wait for it, then run again"
        )
