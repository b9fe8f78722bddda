"""A ledger looked at without opening it, also while a run writes."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from warehouse.ledger.attempts import LOCAL_ANSWER, UNRECORDED, describe_losses
from warehouse.ledger.batch_records import OPEN
from warehouse.ledger.database import make_unavailable, open_store

_PATIENCE_S = 5.0


@dataclass(frozen=True)
class LedgerHealth:
    """effects: recorded answers. blobs_missing: lost answers, to be paid again if wanted. unknown:
    attempts that may have been paid unseen; losses: what they were lost by."""

    effects: int
    blobs_missing: int
    unknown: int
    losses: str


def measure_health(path: Path, url: str | None, has: Callable[[str], bool]) -> LedgerHealth | None:
    """has: whether a blob is there. None where there is no ledger yet. Raises LedgerUnavailable
    where it is locked or damaged, or its Postgres does not answer."""
    if not url and not path.exists():
        return None
    if not url:
        check_file(path)
    blobs = _select(path, url, "SELECT blob FROM effects")
    losses = _select(path, url, "SELECT error, batch FROM attempts WHERE status = 'unknown'")
    missing = sum(not has(blob) for (blob,) in blobs)
    return LedgerHealth(
        len(blobs), missing, len(losses), describe_losses((e, b) for e, b in losses)
    )


def check_file(path: Path) -> None:
    """Raises LedgerUnavailable where SQLite finds a page of the file damaged."""
    [(condition,)] = _select(path, None, "PRAGMA quick_check(1)")
    if condition != "ok":
        raise make_unavailable(path, sqlite3.DatabaseError(f"malformed: {condition}"))


def list_effect_blobs(path: Path, url: str | None = None) -> set[str]:
    """The blobs of every effect, and the files of open batches. Raises LedgerUnavailable where the
    ledger is locked or damaged: who removes blobs must know them all."""
    if not url and path.exists():
        check_file(path)
    effects = _select(path, url, "SELECT blob FROM effects")
    batches = _select(path, url, f"SELECT body FROM batches WHERE state IN {OPEN}")
    unrecorded = (path.parent / UNRECORDED).glob("*.json")
    blobs = {blob for (blob,) in effects}
    blobs |= {json.loads(body)["blob"] for (body,) in batches}
    return (blobs | {json.loads(file.read_bytes())["blob"] for file in unrecorded}) - {""}


def list_local_answers(path: Path, url: str | None = None) -> set[str]:
    """The blobs of local models' answers."""
    query = "SELECT blob FROM effects WHERE stage = ?"
    return {blob for (blob,) in _select(path, url, query, LOCAL_ANSWER)} - {""}


def find_oldest_attempt(path: Path, url: str | None) -> float | None:
    """When the oldest effect under way began (epoch seconds). Raises LedgerUnavailable."""
    rows = _select(path, url, "SELECT MIN(started_at) FROM attempts WHERE status = 'started'")
    return rows[0][0] if rows else None


def _select(path: Path, url: str | None, query: str, *values: str) -> list[tuple]:
    """Rows of a ledger that is not opened; none where there is no file."""
    if url:
        store = open_store(path, url, _PATIENCE_S)
        try:
            return store.select(query, values)
        except store.errors as error:
            raise store.explain(error) from error
        finally:
            store.close()
    if not path.exists():
        return []
    place = f"{path.resolve().as_uri()}?mode=ro"
    try:
        with closing(sqlite3.connect(place, uri=True, timeout=_PATIENCE_S)) as db:
            return db.execute(query, values).fetchall()
    except sqlite3.Error as error:
        raise make_unavailable(path, error) from error
