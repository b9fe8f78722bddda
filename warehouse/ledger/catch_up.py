"""Catching up: lines of the journal whose transaction never reached the database."""

import sqlite3
from collections.abc import Iterable
from typing import Any


def apply_events(db: sqlite3.Connection, events: Iterable[Any]) -> None:
    """Does to the database what these events say; what is no event is passed over.

    `started` is left out: its transaction did not end, so its effect was never sent.
    """
    for event in events:
        kind = event.get("is") if isinstance(event, dict) else None
        apply = _APPLY.get(kind) if isinstance(kind, str) else None
        if apply is not None:
            try:
                apply(db, event)
            except (KeyError, sqlite3.InterfaceError, sqlite3.ProgrammingError):
                continue  # half a record


def _apply_done(db: sqlite3.Connection, row: dict[str, Any]) -> None:
    known = db.execute("SELECT key, status FROM attempts WHERE id = ?", (row["id"],)).fetchone()
    if known is None or known[0] != row["key"] or known[1] == "done":
        return
    names = ("finished_at", "model", "prompt_tokens", "completion_tokens", "usd", "id")
    effect = [row[name] for name in ("key", "stage", "blob", "finished_at")]
    db.execute(
        "UPDATE attempts SET status = 'done', finished_at = ?, model = ?, prompt_tokens = ?,"
        " completion_tokens = ?, usd = ?, error = NULL WHERE id = ?",
        [row[name] for name in names],
    )
    if row["blob"]:
        db.execute("INSERT OR REPLACE INTO effects VALUES (?, ?, ?, ?)", effect)
    db.execute(
        "INSERT INTO paid VALUES (?, ?) ON CONFLICT (scope) DO UPDATE SET usd = usd + excluded.usd",
        (row["scope"], row["usd"]),
    )


def _apply_unknown(db: sqlite3.Connection, row: dict[str, Any]) -> None:
    db.execute(
        "UPDATE attempts SET status = ? WHERE id = ? AND status = 'started'", (row["is"], row["id"])
    )


def _apply_forgotten(db: sqlite3.Connection, row: dict[str, Any]) -> None:
    db.execute("DELETE FROM effects WHERE key = ?", (row["key"],))


def _apply_budget(db: sqlite3.Connection, row: dict[str, Any]) -> None:
    db.execute("INSERT OR REPLACE INTO budgets VALUES (?, ?)", (row["scope"], row["usd"]))


def _apply_run(db: sqlite3.Connection, row: dict[str, Any]) -> None:
    names = ("scope", "number", "id", "opened_at", "closed_at")
    db.execute("INSERT OR REPLACE INTO runs VALUES (?, ?, ?, ?, ?)", [row[name] for name in names])


_APPLY = {
    "done": _apply_done,
    "unknown": _apply_unknown,
    "failed": _apply_unknown,
    "forgotten": _apply_forgotten,
    "budget": _apply_budget,
    "run": _apply_run,
}
