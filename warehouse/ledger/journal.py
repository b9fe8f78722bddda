"""The ledger's journal: one JSON line for everything that must outlive the database.

Journaled: every finished effect, the start and end of attempts that hold a budget or went with a
batch, batches, forgotten keys, budgets, runs. Left out: attempts that cost nothing and came to
nothing. Every line begins with its line break, so that one that a full disk tore spoils no other.
"""

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from warehouse.json_types import Row
from warehouse.ledger.events import DONE, EFFECT, STARTED, read_events
from warehouse.storage.files import write_all


class Journal:
    """Appends to one file, each line in one write call unless the disk is full: processes never
    interleave within one. What was written survives the death of its process, not a power cut."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.written = 0  # bytes, by this object
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def write(self, event: str, **row: Any) -> None:
        """Appends one event. Raises OSError when the disk does not take the whole line."""
        line = "\n" + json.dumps({"is": event, **row}, separators=(",", ":"))
        write_all(self._file, data := line.encode())
        self.written += len(data)

    def measure(self) -> int:
        """Its size in bytes."""
        return os.fstat(self._file).st_size

    def close(self) -> None:
        os.close(self._file)


@dataclass
class Replayed:
    """What the lines of a journal add up to."""

    attempts: dict[int, dict[str, Any]] = field(default_factory=dict)  # done, started, unknown
    effects: dict[str, dict[str, Any]] = field(default_factory=dict)
    budgets: dict[str, float] = field(default_factory=dict)
    runs: dict[tuple[str, int], dict[str, Any]] = field(default_factory=dict)
    batches: dict[str, dict[str, Any]] = field(default_factory=dict)
    # Attempts whose id another has, be it of the same key: a database from a backup gives the
    # numbers after it again.
    displaced: list[dict[str, Any]] = field(default_factory=list)
    torn: int = 0
    journaled: int | None = None  # bytes of the journal that a database has seen

    def apply(self, kind: str, row: dict[str, Any]) -> None:
        """One event more. Raises KeyError for the end of an attempt that never began."""
        if kind == "done":
            self._put_attempt({**row, "status": "done"})
            if row["blob"]:
                self.effects[row["key"]] = _pick_columns(row, EFFECT)
        elif kind == "started":
            self._put_attempt({**row, "status": kind})
        elif kind in ("unknown", "failed"):
            attempt = self.attempts[row["id"]]
            if attempt["status"] == "done":
                return  # what was received stays received
            if kind == "failed":
                del self.attempts[row["id"]]
            else:
                attempt["status"] = kind
        elif kind == "forgotten":
            self.effects.pop(row["key"], None)
        elif kind == "budget":
            self.budgets[row["scope"]] = row["usd"]
        elif kind == "run":
            self.runs[(row["scope"], row["number"])] = row
        elif kind == "batch":
            self.batches[row["name"]] = row

    def _put_attempt(self, row: dict[str, Any]) -> None:
        known = self.attempts.get(row["id"], row)
        if identify_attempt(known) != identify_attempt(row):
            self.displaced.append(known)
        self.attempts[row["id"]] = row

    def number_attempts(self) -> None:
        """Gives each displaced attempt an id of its own, and each effect without an attempt one
        that cost nothing."""
        free = (number for number in count(1) if number not in self.attempts)
        known = set(map(identify_attempt, self.attempts.values()))
        for row in self.displaced:
            if identify_attempt(row) not in known:  # else a rebuild was killed
                number = next(free)
                self.attempts[number] = {**row, "id": number}
                known.add(identify_attempt(row))
        self.displaced.clear()
        owned = {(row["key"], row.get("finished_at")) for row in self.attempts.values()}
        for effect in self.effects.values():
            if (effect["key"], at := effect["finished_at"]) in owned:
                continue
            number = next(free)
            self.attempts[number] = {
                "id": number, "key": effect["key"], "stage": effect["stage"], "partition": "_",
                "run_id": "-", "started_at": at, "finished_at": at, "scope": "usd",
                "reserved_usd": 0.0, "model": "", "prompt_tokens": 0, "completion_tokens": 0,
                "usd": 0.0, "status": "done", "batch": "",
            }  # fmt: skip


def identify_attempt(row: Row) -> tuple[str, Any]:
    """What is one attempt's alone, whatever its number: its key and when it began."""
    return row["key"], row["started_at"]


def replay_journal(path: Path, end: int | None = None) -> Replayed:
    """What the journal holds, up to byte `end`; lines that cannot be read are counted and left
    out."""
    found = Replayed()
    for event in read_events(path, end=end):
        try:
            found.apply(*event) if event else None
        except KeyError:
            event = None
        found.torn += event is None
    return found


def write_whole(path: Path, held: Replayed) -> None:
    """A journal that replays to `held`, whole or absent."""
    beside = path.with_name(f"{path.name}.{os.getpid()}.new")
    beside.unlink(missing_ok=True)
    journal = Journal(beside)
    try:
        for event, rows in _iter_events(held):
            for row in rows:
                journal.write(event, **row)
        os.fsync(journal._file)
    finally:
        journal.close()
    beside.replace(path)


def _iter_events(held: Replayed) -> Iterable[tuple[str, Iterable[Row]]]:
    done, open_, unknown = [], [], []
    for attempt in sorted(held.attempts.values(), key=lambda row: row["id"]):
        if attempt["status"] == "done":
            effect = held.effects.get(attempt["key"], {})
            own = effect.get("finished_at") == attempt["finished_at"]
            done.append({**_pick_columns(attempt, DONE), "blob": effect["blob"] if own else ""})
        else:
            open_.append(_pick_columns(attempt, STARTED))
            if attempt["status"] == "unknown":
                unknown.append({"id": attempt["id"]})
    yield "done", done
    yield "started", open_
    yield "unknown", unknown
    yield "budget", [{"scope": scope, "usd": usd} for scope, usd in held.budgets.items()]
    yield "run", held.runs.values()
    yield "batch", held.batches.values()


def _pick_columns(row: Row, names: Iterable[str]) -> dict[str, Any]:
    return {name: row.get(name) for name in names}
