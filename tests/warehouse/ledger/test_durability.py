"""What was received is not paid for again, whatever the database could not take."""

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from extensions.upkeep.ledger_inspection import (
    find_oldest_attempt,
    list_effect_blobs,
    measure_health,
)
from tests.support.cases import cases
from tests.warehouse.ledger.test_ledger import open_ledger
from warehouse.ledger.attempts import BudgetExceeded, EffectOutcome, describe_losses
from warehouse.ledger.crawl_state import CrawlMemo
from warehouse.ledger.database import LedgerUnavailable
from warehouse.ledger.ledger import Ledger
from warehouse.storage.blobs import Blobs
from warehouse.storage.digest import sha256


class Silence(Exception):
    """An effect that may have been answered and billed."""

    maybe_paid = True


def fail(error: BaseException) -> EffectOutcome:
    raise error


def fill_ledger(folder: Path) -> Ledger:
    """A ledger with every kind of row in it."""
    ledger = open_ledger(folder)
    ledger.set_budget("usd", 0.5)
    for n in range(3):
        ledger.once(
            "llm", f"k{n}", lambda: EffectOutcome(b"paid", "m", 5, 7, 0.04), reserve_usd=0.1
        )
    ledger.once("page", "free", lambda: EffectOutcome(b"page"))
    ledger.once("train", "lost", lambda: EffectOutcome(b"folder", usd=0.02), reserve_usd=0.02)
    ledger.forget("lost")
    with pytest.raises(Silence):
        ledger.once("llm", "silent", lambda: fail(Silence()), reserve_usd=0.1)
    with pytest.raises(ValueError, match="no"):
        ledger.once("llm", "failed", lambda: fail(ValueError("no")), reserve_usd=0.1)
    ledger.open_run("registry")
    ledger.close_run("registry")
    ledger.open_run("registry")
    return ledger


def assert_kept(folder: Path) -> None:
    ledger = open_ledger(folder)
    for n in range(3):
        assert ledger.once("llm", f"k{n}", lambda: pytest.fail("paid twice")) == b"paid"
    assert ledger.once("page", "free", lambda: pytest.fail("asked twice")) == b"page"
    assert ledger.seen("lost") is None, "what was forgotten is due"
    assert [attempt.key for attempt in ledger.list_unknown()] == ["silent"]
    assert ledger.spent() == pytest.approx(3 * 0.04 + 0.02 + 0.1)
    with pytest.raises(BudgetExceeded, match=r"0\.240000 of 0\.500000"):
        ledger.once("llm", "dear", lambda: pytest.fail("was sent"), reserve_usd=0.27)
    assert ledger.open_run("registry").endswith(".2"), "the open run is still open"
    assert sum(row["usd"] for row in ledger.costs()) == pytest.approx(0.14)
    ledger.close()


def test_a_copy_is_a_whole_ledger(tmp_path):
    ledger = fill_ledger(tmp_path)
    with closing(sqlite3.connect(ledger.path)) as file:
        file.execute("VACUUM INTO ?", (str(tmp_path / "copy.db"),))
    ledger.close()
    for suffix in ("-wal", "-shm"):
        (tmp_path / f"ledger.db{suffix}").unlink(missing_ok=True)
    ledger.path.write_bytes(b"SQLite format 3\0" + os.urandom(8192))
    with pytest.raises(LedgerUnavailable, match=r"ledger\.db: .*put a copy of it back"):
        open_ledger(tmp_path)
    (tmp_path / "copy.db").replace(ledger.path)
    assert_kept(tmp_path)


def test_a_damaged_page_is_found_and_no_list_of_blobs_is_short_of_one(tmp_path):
    ledger = open_ledger(tmp_path)
    for n in range(400):
        ledger.once("page", f"{n:04}", lambda: EffectOutcome(b"x"))
    ledger.close()
    data = bytearray(ledger.path.read_bytes())
    middle = len(data) // 2 // 4096 * 4096
    data[middle : middle + 4096] = os.urandom(4096)
    ledger.path.write_bytes(data)
    for look in (
        lambda: list_effect_blobs(ledger.path),
        lambda: measure_health(ledger.path, None, lambda _: True),
    ):
        with pytest.raises(LedgerUnavailable, match="put a copy of it back"):
            look()


def test_what_was_lost_is_called_by_what_it_was_lost_by(tmp_path):
    from warehouse.llm.roles import NoAnswer

    ledger = open_ledger(tmp_path)
    gone = NoAnswer("endpoint_down", "reset", "an answer", "try again", maybe_paid=True)
    late = NoAnswer("timeout", "no answer in 60 s", "an answer", "raise timeout_s", maybe_paid=True)
    for key, error in (("a", late), ("b", late), ("c", gone), ("d", KeyboardInterrupt())):
        with pytest.raises(type(error)):
            ledger.once("llm:judge", key, partial(fail, error), reserve_usd=0.01)
    losses = describe_losses((item.error, item.batch) for item in ledger.list_unknown())
    assert losses == "2 timed out, 1 lost the connection, 1 interrupted"
    health = measure_health(ledger.path, None, lambda _: True)
    assert (health.unknown, health.losses) == (4, losses)
    assert describe_losses([(None, ""), ("x", "batch-1")]) == (
        "1 cut off with a killed run, 1 lost with a batch"
    )


def test_an_inspection_counts_and_opens_nothing(tmp_path):
    path = tmp_path / "state" / "ledger.db"
    assert measure_health(path, None, lambda _: True) is None
    assert list_effect_blobs(path) == set()
    assert find_oldest_attempt(path, None) is None
    assert not path.parent.exists()
    ledger = fill_ledger(path.parent)
    health = measure_health(path, None, lambda _: False)
    assert (health.effects, health.blobs_missing, health.unknown) == (4, 4, 1)
    assert list_effect_blobs(path) == {ledger.blobs.put(data) for data in (b"paid", b"page")}


class FullDisk:
    """A connection to a disk that is full when a statement is executed."""

    def __init__(self, inner: sqlite3.Connection, statement: str) -> None:
        self.inner, self.statement = inner, statement

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)

    def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
        if sql.startswith(self.statement):
            raise sqlite3.OperationalError("database or disk is full")
        return self.inner.execute(sql, *values)


@cases("statement", "UPDATE attempts SET status = 'done'", "INSERT INTO effects")
@cases("reopened", False, True)
def test_an_answer_whose_commit_found_no_room_is_not_paid_for_again(tmp_path, statement, reopened):
    ledger = open_ledger(tmp_path)
    real = ledger.database.store._db  # type: ignore[attr-defined]
    ledger.database.store._db = FullDisk(real, statement)  # type: ignore[attr-defined]
    with pytest.raises(LedgerUnavailable, match="disk is full"):
        ledger.once("llm", "k", lambda: EffectOutcome(b"paid", "m", 1, 2, 0.04), reserve_usd=0.1)
    assert list_effect_blobs(ledger.path) == {ledger.blobs.put(b"paid")}, "gc leaves it alone"
    ledger.database.store._db = real  # type: ignore[attr-defined]
    if reopened:
        ledger.close()
        ledger = open_ledger(tmp_path)
    for _ in range(2):
        assert ledger.once("llm", "k", lambda: pytest.fail("paid twice"), reserve_usd=0.1)
        assert ledger.spent() == pytest.approx(0.04)
    assert ledger.costs()[0]["prompt_tokens"] == 1


def test_an_answer_that_was_recorded_late_is_counted_once(tmp_path):
    """A kill after the commit leaves the file."""
    ledger = open_ledger(tmp_path)
    real = ledger.database.store._db  # type: ignore[attr-defined]
    ledger.database.store._db = FullDisk(real, "INSERT INTO effects")  # type: ignore[attr-defined]
    with pytest.raises(LedgerUnavailable):
        ledger.once("llm", "k", lambda: EffectOutcome(b"paid", usd=0.04), reserve_usd=0.1)
    ledger.database.store._db = real  # type: ignore[attr-defined]
    [file] = (tmp_path / "unrecorded").iterdir()
    answer = file.read_bytes()
    ledger.once("llm", "k", lambda: pytest.fail("paid twice"))
    file.write_bytes(answer)
    assert ledger.once("llm", "k", lambda: pytest.fail("paid twice")) == b"paid"
    assert ledger.spent() == pytest.approx(0.04)
    assert list(file.parent.iterdir()) == []


def test_what_costs_money_waits_for_the_disk_and_what_is_repeatable_does_not(tmp_path, monkeypatch):
    ledger = open_ledger(tmp_path)

    def read_setting() -> EffectOutcome:
        return EffectOutcome(str(ledger.database.select("PRAGMA synchronous")[0][0]).encode())

    assert ledger.once("llm", "paid", read_setting, reserve_usd=0.1) == b"2"  # FULL
    assert ledger.once("page", "free", read_setting) == b"1"  # NORMAL
    ledger, synced = open_ledger(tmp_path), list[int]()
    monkeypatch.setattr(os, "fsync", synced.append)
    ledger.once("llm", "offline", lambda: EffectOutcome(b"rules", repeatable=True))
    assert synced == []
    ledger.once("page", "that day", lambda: EffectOutcome(b"a page of that day"))
    assert len(synced) == 2
    ledger.blobs.path(sha256(b"rules")).write_bytes(b"")  # what a power cut may leave
    assert ledger.once("llm", "offline", lambda: EffectOutcome(b"rules")) == b"rules"
    assert ledger.blobs.get(sha256(b"rules")) == b"rules"


HOLDER = """
import sqlite3, sys, time
db = sqlite3.connect(sys.argv[1], isolation_level=None)
if sys.argv[2] == "readers too":
    db.execute("PRAGMA locking_mode=EXCLUSIVE")
db.execute("BEGIN EXCLUSIVE")
print("held", flush=True); time.sleep(60)
"""


def start_holder(path: Path, whom: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", HOLDER, str(path), whom]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"held\n"
    return process


@cases("whom", "writers", "readers too")
def test_a_locked_ledger_names_its_file_its_holder_and_the_fix(tmp_path, whom):
    path, blobs = tmp_path / "ledger.db", Blobs(tmp_path / "blobs")
    fill_ledger(tmp_path).close()
    with start_holder(path, whom) as process:
        names = rf"ledger\.db: database is locked; process {process.pid} .*run again"
        with pytest.raises(LedgerUnavailable, match=names):
            Ledger(path, blobs, patience_s=0.1)
        process.kill()
    assert_kept(tmp_path)


def test_a_ledger_that_is_locked_between_two_effects_sends_nothing(tmp_path):
    ledger = Ledger(tmp_path / "ledger.db", Blobs(tmp_path / "blobs"), patience_s=0.1)
    with start_holder(ledger.path, "writers") as process:
        with pytest.raises(LedgerUnavailable, match="locked"):
            ledger.once("llm", "k", lambda: pytest.fail("was sent"), reserve_usd=0.1)
        process.kill()
    assert ledger.once("llm", "k", lambda: EffectOutcome(b"x")) == b"x"


def test_what_was_put_last_is_read_next_and_a_file_that_is_no_memo_put_aside(tmp_path):
    first = CrawlMemo(tmp_path / "state" / "memo.db")
    first.put("validators", "a", {"etag": '"1"'})
    first.put("validators", "a", {"etag": '"2"'})
    first.put("checkpoint", "a", [1, None])
    first.close()
    second = CrawlMemo(tmp_path / "state" / "memo.db")
    assert second.get("validators", "a") == {"etag": '"2"'}
    assert second.get("checkpoint", "a") == [1, None]
    assert second.get("checkpoint", "b") is None
    path = tmp_path / "memo.db"
    path.write_bytes(b"not a database, but long enough to look like a page of one" * 40)
    memo = CrawlMemo(path)
    memo.put("a", "b", 1)
    assert memo.get("a", "b") == 1
    assert path.with_name("memo.db.unreadable").read_bytes().startswith(b"not a database")
