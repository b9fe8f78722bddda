"""Looking at a ledger, and making it anew: what was ever paid is kept."""

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from warehouse.ledger.batch_records import DROPPED, GATHERING, OPEN, READY, SENT, write_batch
from warehouse.ledger.events import EFFECT, RUN, Batch
from warehouse.ledger.files import LedgerUnavailable, find_journal, hold_open
from warehouse.ledger.journal import Replayed, identify_attempt, replay_journal, write_whole
from warehouse.ledger.records import write_budget, write_effect, write_run
from warehouse.ledger.sql.contents import read_contents, read_database
from warehouse.ledger.sql.postgres import URL, PostgresStore
from warehouse.ledger.sql.sqlite import SCHEMA
from warehouse.ledger.sql.store import Connection
from warehouse.storage.blobs import Blobs

_PATIENCE_S = 60.0
_REBUILD = "run `toolmill ledger rebuild`: it keeps the union of both"


@dataclass(frozen=True)
class Health:
    """What a look found. `healthy`: the database is whole and the journal names all it holds; of a
    Postgres, which many journals fill, that it holds all that the one here names."""

    ledger: str
    database: str  # ok, absent, or what SQLite says
    effects: int
    effects_in_journal: int
    only_in_database: int
    only_in_journal: int
    torn_lines: int
    blobs_missing: int  # effects that would be paid again when they are wanted
    unknown: int
    paid_usd: float
    healthy: bool
    fix: str

    def row(self) -> dict[str, Any]:
        return asdict(self)


def check(
    path: Path,
    blobs: Blobs,
    *,
    url: str | None = None,
    has: Callable[[str], bool] | None = None,
    settled: bool = False,
) -> Health:
    """Compares the database at `path`, or the Postgres at `url`, with the journal at `path` and the
    blobs; changes nothing.

    has: whether a blob is there; by default it is read. settled: look only at what the database has
    seen of the journal: what lies behind is in flight, or is made up for by who opens it next.
    Raises LedgerUnavailable when another process holds its lock, or its Postgres does not answer.
    """
    database, condition = read_database(path, url)
    journal = replay_journal(find_journal(path), database.journaled if settled else None)
    has = has or blobs.has
    ours, theirs = _list_paid_keys(database), _list_paid_keys(journal)
    held = _merge_replayed(database, journal)
    healthy = condition in ("ok", "absent") and (ours >= theirs if url else ours == theirs)
    missing = sum(not has(effect["blob"]) for effect in held.effects.values())
    return Health(
        ledger=f"the Postgres of {URL}" if url else str(path),
        database=condition,
        effects=len(database.effects),
        effects_in_journal=len(journal.effects),
        only_in_database=len(ours - theirs),
        only_in_journal=len(theirs - ours),
        torn_lines=journal.torn,
        blobs_missing=missing,
        unknown=sum(attempt["status"] == "unknown" for attempt in held.attempts.values()),
        paid_usd=_sum_paid(held),
        healthy=healthy,
        fix="nothing" if healthy else _REBUILD,
    )


def list_effect_blobs(path: Path, url: str | None = None) -> set[str]:
    """The blobs of every effect, and the files of batches under way, that database or journal name.
    Raises LedgerUnavailable where the database is locked or damaged: who removes blobs must know of
    all."""
    database, condition = read_database(path, url)
    if condition not in ("ok", "absent"):
        raise LedgerUnavailable(f"ledger {path}: {condition}; {_REBUILD}")
    sides = (database, replay_journal(find_journal(path)))
    named = {effect["blob"] for side in sides for effect in side.effects.values()}
    open_ = [row for side in sides for row in side.batches.values() if row["state"] in OPEN]
    return named | {row["blob"] for row in open_ if row["blob"]}


def rebuild_ledger(path: Path, blobs: Blobs, url: str | None = None) -> Health:
    """Makes database and journal anew from what either holds; the old files stay beside them. url:
    of a Postgres, which then holds all that it, the journal and a SQLite file at `path` held.

    Attempts that were under way become `unknown`: they may have been paid, and keep their
    reservation; those of a batch at its provider stay under way, those of one that was never sent
    are due again. Raises LedgerUnavailable while any process has the ledger open, or when there is
    nothing to build from.
    """
    if not url and not path.exists() and not find_journal(path).exists():
        raise LedgerUnavailable(
            f"ledger {path}: found neither it nor {find_journal(path).name}; expected one of them;"
            " the next run starts a new ledger (TOOLMILL_STATE says where)"
        )
    with hold_open(path, alone=True):
        if url:
            _rebuild_postgres(path, url)
        else:
            held = _merge_replayed(read_database(path, None)[0], replay_journal(find_journal(path)))
            _end_attempts(held)
            beside = path.with_name(f"{path.name}.new")
            beside.unlink(missing_ok=True)
            _write_database(beside, held)
            _set_aside(path)
            beside.replace(path)
            write_whole(find_journal(path), held)
    return check(path, blobs, url=url)


def _rebuild_postgres(path: Path, url: str) -> None:
    store = PostgresStore(url, path, _PATIENCE_S)
    try:
        store.claim_alone()
        journal, file = replay_journal(find_journal(path)), read_database(path, None)[0]
        db, _ = store.begin()
        held = _merge_replayed(_merge_replayed(read_contents(db), file), journal)
        _end_attempts(held)
        store.clear()
        _fill(db, held)
        store.renumber()
        store.commit()
        _set_aside(path)
        # Noted at once: a journal that the database was never told of is refused.
        write_whole(find_journal(path), held)
        store.begin()
        store.note_seen(find_journal(path).stat().st_size)
        store.commit()
    except store.errors as error:
        raise store.explain(error) from error
    finally:
        store.close()


def _end_attempts(held: Replayed) -> None:
    for number, attempt in list(held.attempts.items()):
        batch = held.batches.get(attempt.get("batch") or "", {})
        if attempt["status"] != "started" or batch.get("state") in (READY, SENT):
            continue
        if batch:
            del held.attempts[number]
        else:
            attempt["status"] = "unknown"
    for batch in held.batches.values():
        batch["state"] = DROPPED if batch["state"] == GATHERING else batch["state"]


def _merge_replayed(database: Replayed, journal: Replayed) -> Replayed:
    """What either holds; where both know an attempt, `done` is more than under way, and where one
    id has two keys, both are kept."""
    held = Replayed(torn=journal.torn)
    for side in (database, journal):
        for attempt in (*side.attempts.values(), *side.displaced):
            known = held.attempts.get(attempt["id"])
            if known is not None and identify_attempt(known) != identify_attempt(attempt):
                held.displaced.append(attempt)
            elif known is None or known["status"] != "done":
                held.attempts[attempt["id"]] = attempt
        for key, effect in side.effects.items():
            known = held.effects.get(key)
            if known is None or effect["finished_at"] > known["finished_at"]:
                held.effects[key] = effect
        held.budgets.update(side.budgets)
        held.runs.update(side.runs)
        held.batches.update(side.batches)
    held.number_attempts()
    return held


def _list_paid_keys(held: Replayed) -> set[tuple[str, str]]:
    return {(effect["key"], effect["blob"]) for effect in held.effects.values()}


def _sum_paid(held: Replayed) -> float:
    return round(sum(row.get("usd") or 0.0 for row in held.attempts.values()), 9)


def _write_database(path: Path, held: Replayed) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.executescript(SCHEMA.read_text())
        db.execute("BEGIN")
        _fill(db, held)
        db.execute("COMMIT")


def _fill(db: Connection, held: Replayed) -> None:
    """Writes all rows into empty tables."""
    for row in held.attempts.values():
        db.execute(
            "INSERT INTO attempts VALUES (?, ?, ?, ?, ?, ?, 0, '', ?, ?, ?, ?, ?, ?, ?, ?,"
            " NULL, ?)",
            (row["id"], row["key"], row["stage"], row["partition"], row["status"],
             row["run_id"], row["started_at"], row.get("finished_at"), row["scope"],
             row["reserved_usd"] or 0.0, row.get("model") or "", row.get("prompt_tokens") or 0,
             row.get("completion_tokens") or 0, row.get("usd") or 0.0,
             row.get("batch") or ""),
        )  # fmt: skip
    for effect in held.effects.values():
        write_effect(db, *(effect[name] for name in EFFECT))
    for scope, limit in held.budgets.items():
        write_budget(db, scope, limit)
    for batch in held.batches.values():
        write_batch(db, Batch(**batch))
    for run in held.runs.values():
        write_run(db, *(run[name] for name in RUN))
    db.execute("DELETE FROM paid")
    db.execute("INSERT INTO paid SELECT scope, SUM(usd) FROM attempts GROUP BY scope")


def _set_aside(path: Path) -> None:
    """Renames the old files; a new database beside an old `-wal` would be damaged by it."""
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime()) + f".{time.time_ns() % 1_000_000:06d}"
    for name in (f"{path.name}-wal", f"{path.name}-shm", path.name):
        file = path.with_name(name)
        if file.exists():
            file.rename(path.with_name(f"{name}.before-{stamp}"))
    if find_journal(path).exists():
        kept = find_journal(path).with_name(f"{find_journal(path).name}.before-{stamp}")
        kept.write_bytes(find_journal(path).read_bytes())
