"""Batches as rows of the ledger's database: written, read, and put away where nobody sent them."""

import time
from collections.abc import Callable

from warehouse.ledger.events import Batch
from warehouse.ledger.sql.store import Connection

GATHERING, READY, SENT = "gathering", "ready", "sent"
HARVESTED, DROPPED, GIVEN_UP = "harvested", "dropped", "given_up"
OPEN = (GATHERING, READY, SENT)


def write_batch(db: Connection, batch: Batch) -> None:
    """Keeps a batch in the place of what was known of it."""
    row = batch.name, batch.state, batch.model_dump_json()
    db.execute(
        "INSERT INTO batches VALUES (?, ?, ?) ON CONFLICT (name) DO UPDATE"
        " SET state = excluded.state, body = excluded.body",
        row,
    )


def read_batch(db: Connection, name: str) -> Batch | None:
    """The batch of that name, if there is one."""
    row = db.execute("SELECT body FROM batches WHERE name = ?", (name,)).fetchone()
    return Batch.model_validate_json(row[0]) if row else None


def list_batches(db: Connection) -> list[Batch]:
    """All of them, in the order in which they were opened."""
    rows = db.execute("SELECT body FROM batches").fetchall()
    return sorted(
        (Batch.model_validate_json(row[0]) for row in rows),
        key=lambda one: (one.opened_at, one.name),
    )


def is_abandoned(batch: Batch | None, is_alive: Callable[[int, str, float], bool]) -> bool:
    """Whether nobody will ever send the batch: who gathered it is gone, or it was put away."""
    if batch is None or batch.state not in OPEN:
        return True
    return batch.state == GATHERING and not is_alive(batch.pid, batch.process, batch.opened_at)


def release_attempts(db: Connection, name: str, error: str) -> list[int]:
    """Ends as failed what is under way of a batch, so that it is due again; their numbers."""
    rows = db.execute(
        "UPDATE attempts SET status = 'failed', finished_at = ?, error = ?"
        " WHERE batch = ? AND status = 'started' RETURNING id",
        (time.time(), error, name),
    ).fetchall()
    return [row[0] for row in rows]
