"""Catching up: lines of the journal whose transaction never reached the database."""

from collections.abc import Iterable
from functools import partial
from typing import Any

from warehouse.ledger.batch_records import write_batch
from warehouse.ledger.events import EFFECT, RUN, Batch, Event
from warehouse.ledger.records import add_paid, write_budget, write_effect, write_run
from warehouse.ledger.sql.store import Connection


def apply_events(db: Connection, events: Iterable[Event | None]) -> None:
    """Does to the database what these events say; what is no event is passed over.

    `started` is left out: its transaction did not end, so its effect was never sent.
    """
    for kind, row in filter(None, events):
        if kind in _APPLY:
            _APPLY[kind](db, row)


def _apply_done(db: Connection, row: dict[str, Any]) -> None:
    known = db.execute("SELECT key, status FROM attempts WHERE id = ?", (row["id"],)).fetchone()
    if known is None or known[0] != row["key"] or known[1] == "done":
        return
    names = ("finished_at", "model", "prompt_tokens", "completion_tokens", "usd", "id")
    effect = [row[name] for name in EFFECT]
    db.execute(
        "UPDATE attempts SET status = 'done', finished_at = ?, model = ?, prompt_tokens = ?,"
        " completion_tokens = ?, usd = ?, error = NULL WHERE id = ?",
        [row[name] for name in names],
    )
    if row["blob"]:
        write_effect(db, *effect)
    add_paid(db, row["scope"], row["usd"])


def _apply_end(status: str, db: Connection, row: dict[str, Any]) -> None:
    db.execute(
        "UPDATE attempts SET status = ? WHERE id = ? AND status = 'started'", (status, row["id"])
    )


def _apply_forgotten(db: Connection, row: dict[str, Any]) -> None:
    db.execute("DELETE FROM effects WHERE key = ?", (row["key"],))


def _apply_budget(db: Connection, row: dict[str, Any]) -> None:
    write_budget(db, row["scope"], row["usd"])


def _apply_run(db: Connection, row: dict[str, Any]) -> None:
    write_run(db, *(row[name] for name in RUN))


def _apply_batch(db: Connection, row: dict[str, Any]) -> None:
    write_batch(db, Batch(**row))


_APPLY = {
    "done": _apply_done,
    "unknown": partial(_apply_end, "unknown"),
    "failed": partial(_apply_end, "failed"),
    "forgotten": _apply_forgotten,
    "budget": _apply_budget,
    "run": _apply_run,
    "batch": _apply_batch,
}
