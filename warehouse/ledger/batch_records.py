"""Batches as rows of the ledger's database."""

import time
from collections.abc import Callable
from typing import Annotated

from pydantic import BaseModel, Field

from warehouse.ledger.database import Connection

GATHERING, READY, SENT = "gathering", "ready", "sent"
HARVESTED, DROPPED, GIVEN_UP = "harvested", "dropped", "given_up"
OPEN = (GATHERING, READY, SENT)

_Count = Annotated[int, Field(ge=0, lt=2**62)]
_Number = Annotated[float, Field(allow_inf_nan=False)]
_Dollars = Annotated[float, Field(allow_inf_nan=False, ge=0, le=1e12)]


class BatchRecord(BaseModel, strict=True):
    """A file of requests for a Batch API. Times are epoch seconds, prices discounted US dollars per
    million tokens. state: gathering (by process `pid`), ready (perhaps sent), sent, then harvested,
    dropped (never sent) or given_up."""

    name: str  # in the provider's metadata: by it a batch is found again
    state: str
    stage: str  # of the run, as its progress is named: pairs, judgements, summaries
    partition: str
    role: str
    model: str
    base_url: str
    window: str
    usd_in: _Dollars
    usd_out: _Dollars
    opened_at: _Number
    pid: _Count
    process: str
    requests: _Count = 0
    blob: str = ""  # the file itself
    dropped: list[str] = []  # optional parameters that the endpoint refused, left out of it
    file_id: str = ""
    tried_at: _Number = 0.0  # when its creation was last requested, with an answer or without
    batch_id: str = ""
    sent_at: _Number = 0.0
    status: str = ""  # as the provider reported last
    completed_at: _Number = 0.0  # by the provider's clock
    reads: _Count = 0  # of its results that came to less than the provider counts
    answered: _Count = 0
    failed: _Count = 0
    unknown: _Count = 0
    ignored: _Count = 0  # answers under foreign ids, or that came twice
    usd: _Dollars = 0.0
    refused: list[str] = []  # optional parameters that its errors complain of
    problem: str = ""  # the last thing that went wrong, in one line


def write_batch(db: Connection, batch: BatchRecord) -> None:
    db.execute(
        "INSERT INTO batches VALUES (?, ?, ?) ON CONFLICT (name) DO UPDATE"
        " SET state = excluded.state, body = excluded.body",
        (batch.name, batch.state, batch.model_dump_json()),
    )


def read_batch(db: Connection, name: str) -> BatchRecord | None:
    row = db.execute("SELECT body FROM batches WHERE name = ?", (name,)).fetchone()
    return BatchRecord.model_validate_json(row[0]) if row else None


def list_batches(db: Connection) -> list[BatchRecord]:
    rows = db.execute("SELECT body FROM batches").fetchall()
    batches = [BatchRecord.model_validate_json(body) for (body,) in rows]
    return sorted(batches, key=lambda batch: (batch.opened_at, batch.name))


def is_abandoned(batch: BatchRecord | None, is_alive: Callable[[int, str, float], bool]) -> bool:
    """Whether nobody will ever send the batch: its process is gone, or it was dropped."""
    if batch is None or batch.state not in OPEN:
        return True
    return batch.state == GATHERING and not is_alive(batch.pid, batch.process, batch.opened_at)


def release_attempts(db: Connection, name: str, error: str) -> int:
    """Fails a batch's attempts under way, so that they are due again; returns how many."""
    rows = db.execute(
        "UPDATE attempts SET status = 'failed', finished_at = ?, error = ?"
        " WHERE batch = ? AND status = 'started' RETURNING id",
        (time.time(), error, name),
    ).fetchall()
    return len(rows)
