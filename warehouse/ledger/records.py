"""Rows of the ledger's database in the place of those that have their key."""

from typing import Any

from warehouse.ledger.sql.store import Connection


def write_effect(db: Connection, key: str, stage: str, blob: str, finished_at: float) -> None:
    """What an effect returned last."""
    db.execute(
        "INSERT INTO effects VALUES (?, ?, ?, ?) ON CONFLICT (key) DO UPDATE SET"
        " stage = excluded.stage, blob = excluded.blob, finished_at = excluded.finished_at",
        (key, stage, blob, finished_at),
    )


def add_paid(db: Connection, scope: str, usd: float) -> None:
    """Adds US dollars to what a scope has cost."""
    db.execute(
        "INSERT INTO paid VALUES (?, ?)"
        " ON CONFLICT (scope) DO UPDATE SET usd = paid.usd + excluded.usd",
        (scope, usd),
    )


def write_budget(db: Connection, scope: str, usd: float) -> None:
    """The most that a scope may cost."""
    db.execute(
        "INSERT INTO budgets VALUES (?, ?)"
        " ON CONFLICT (scope) DO UPDATE SET limit_usd = excluded.limit_usd",
        (scope, usd),
    )


def write_run(db: Connection, *row: Any) -> None:
    """A run: scope, number, id, opened_at, closed_at."""
    db.execute(
        "INSERT INTO runs VALUES (?, ?, ?, ?, ?) ON CONFLICT (scope, number) DO UPDATE SET"
        " id = excluded.id, opened_at = excluded.opened_at, closed_at = excluded.closed_at",
        row,
    )
