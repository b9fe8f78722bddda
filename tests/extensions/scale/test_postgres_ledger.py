"""The ledger in Postgres beyond the contract of `test_ledger.py`: many machines, and a server that
goes away."""

import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from extensions.batch.batch_ledger import BatchLedger
from extensions.scale import postgres_ledger
from extensions.upkeep.collect import find_oldest_start
from extensions.upkeep.ledger_inspection import measure_health
from tests.support.cases import cases
from tests.support.paths import ROOT
from tests.support.postgres import find_free_port
from warehouse import errors, postgres, store
from warehouse.ledger.attempts import BudgetExceeded, EffectAttempt, EffectOutcome
from warehouse.ledger.batch_records import BatchRecord
from warehouse.ledger.database import URL, LedgerUnavailable
from warehouse.ledger.ledger import Ledger
from warehouse.storage.blobs import Blobs

ELSEWHERE = "7@boot:1@another-machine"  # a process whose pid says nothing here


def open_machine(state: Path, url: str | None, blobs: Path | None = None) -> Ledger:
    """The ledger as the machine of that state has it; machines share the blobs."""
    return Ledger(state / "ledger.db", Blobs(blobs or state.parent / "blobs"), url=url)


def pay(ledger: Ledger, key: str, usd: float = 0.01) -> bytes:
    return ledger.once("llm", key, lambda: EffectOutcome(key.encode(), usd=usd), reserve_usd=0.02)


WORKER = """
import os, sys, time
from pathlib import Path
from types import SimpleNamespace
sys.path.insert(0, {root!r})
from tests.extensions.scale.test_postgres_ledger import open_machine
from warehouse.ledger.attempts import EffectOutcome
name = sys.argv[1]
ledger = open_machine(Path({folder!r}) / name, {url!r}, Path({folder!r}) / "blobs")
def send(key):
    with open({log!r}, "a") as log:
        log.write(f"{{name}} {{key}}\\n")
    if name == "0" and key == "k7":
        print("sent", flush=True)
        time.sleep(600)
    return EffectOutcome(key.encode(), "m", 1, 1, 0.01)
print("ready", flush=True)
sys.stdin.readline()
for n in range(24):
    key = f"k{{n}}"
    assert ledger.once("llm", key, lambda: send(key), reserve_usd=0.02) == key.encode()
"""


@pytest.mark.slow
def test_four_processes_pay_once_and_a_kill_repeats_what_was_in_flight(tmp_path, postgres_url):
    log = tmp_path / "sent.log"
    script = WORKER.format(root=str(ROOT), folder=str(tmp_path), url=postgres_url, log=str(log))
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "bufsize": 0}
    commands = [[sys.executable, "-c", script, str(n)] for n in range(4)]
    workers: list[Any] = [subprocess.Popen(command, **pipes) for command in commands]
    first, *others = workers
    for worker in workers:
        assert worker.stdout.readline() == b"ready\n"
    first.stdin.write(b"\n")
    assert first.stdout.readline() == b"sent\n"  # alone, it holds k7 now
    for worker in others:
        worker.stdin.write(b"\n")
    first.kill()
    assert [worker.wait(180) for worker in others] == [0, 0, 0]
    first.wait(60)
    sent = Counter(line.split()[1] for line in log.read_text().splitlines())
    assert sent == {**{f"k{n}": 1 for n in range(24)}, "k7": 2}
    ledger = open_machine(tmp_path / "1", postgres_url, tmp_path / "blobs")
    assert [one.key for one in ledger.list_unknown()] == ["k7"]
    assert ledger.spent() == pytest.approx(24 * 0.01 + 0.02)
    assert {ledger.seen(f"k{n}") for n in range(24)} == {f"k{n}".encode() for n in range(24)}


@pytest.mark.slow
def test_without_postgres_an_answer_is_kept(tmp_path, postgres_server, postgres_url, monkeypatch):
    monkeypatch.setattr(postgres_ledger.PostgresStore._connect, "__defaults__", ((0.05,),))
    ledger = open_machine(tmp_path / "a", postgres_url)
    pay(ledger, "before")

    def die() -> EffectOutcome:
        postgres_server.kill()
        return EffectOutcome(b"received", usd=0.01)

    gone = rf"Postgres: it does not answer.*{URL}.*nothing is lost"
    try:
        with pytest.raises(LedgerUnavailable, match=gone) as caught:
            ledger.once("llm", "k", die, reserve_usd=0.02)
        assert "mill:x" not in str(caught.value)
        with pytest.raises(LedgerUnavailable, match=gone):
            ledger.once("llm", "next", lambda: pytest.fail("was sent"), reserve_usd=0.02)
    finally:
        postgres_server.start()
    assert ledger.once("llm", "k", lambda: pytest.fail("paid twice"), reserve_usd=0.02)
    assert pay(ledger, "next") == b"next"
    assert ledger.spent() == pytest.approx(0.03)
    health = measure_health(ledger.path, postgres_url, ledger.blobs.has)
    assert health is not None
    assert (health.effects, health.blobs_missing, health.unknown) == (3, 0, 0)


@pytest.mark.slow
def test_a_server_that_is_gone_costs_one_wait(tmp_path, postgres_server, postgres_url, monkeypatch):
    """A run has 64 workers on one ledger: each waited four seconds, one after the other."""
    slept: list[float] = []
    monkeypatch.setattr(postgres, "time", SimpleNamespace(sleep=slept.append))
    ledger = open_machine(tmp_path / "a", postgres_url)
    pay(ledger, "before")
    postgres_server.kill()
    try:
        for _ in range(64):
            with pytest.raises(LedgerUnavailable, match="does not answer"):
                ledger.seen("k")
    finally:
        postgres_server.start()
    assert slept == list(postgres.PAUSES_S)
    assert pay(ledger, "next") == b"next"


@pytest.mark.slow
def test_a_server_that_dies_forgets_no_claim_and_no_answer(tmp_path, postgres_server, postgres_url):
    """What was sent is on the server's disk before, and an answer before it is returned."""
    ledger = open_machine(tmp_path / "a", postgres_url)
    keys = [f"k{n}" for n in range(20)]
    for key in keys:
        pay(ledger, key)
    held = ledger.attempts.claim("llm", "flight", "_", 0.02, "usd")
    assert isinstance(held, EffectAttempt)
    postgres_server.kill()  # the answer to `flight` is still to come
    postgres_server.start()
    other = open_machine(tmp_path / "b", postgres_url)
    assert other.database.select("SELECT COUNT(*) FROM effects") == [(20,)]
    flight = other.database.select("SELECT status FROM attempts WHERE key = 'flight'")
    assert flight == [("started",)]
    assert other.spent() == pytest.approx(0.22)
    assert ledger.attempts.finish(held, EffectOutcome(b"flight", usd=0.01)) == b"flight"
    postgres_server.kill()
    postgres_server.start()
    for key in (*keys, "flight"):
        assert ledger.once("llm", key, lambda: pytest.fail("paid twice")) == key.encode()
    assert ledger.spent() == pytest.approx(0.21)


@pytest.mark.slow
def test_a_session_that_the_server_ends_is_opened_again(tmp_path, postgres_url):
    ledger, other = (open_machine(tmp_path / name, postgres_url) for name in "ab")
    other.database.select(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE pid <> pg_backend_pid() AND datname = current_database()"
    )
    assert pay(ledger, "k") == b"k"
    assert other.once("llm", "k", lambda: pytest.fail("paid twice")) == b"k"


@pytest.mark.slow
def test_a_sqlite_ledger_moves_to_postgres_once_with_all_it_holds(tmp_path, postgres_url):
    home = tmp_path / "a"
    before = open_machine(home, None)
    before.set_budget("usd", 0.05)
    pay(before, "old")
    assert isinstance(before.attempts.claim("llm", "flight", "_", 0.005, "usd"), EffectAttempt)
    run = before.open_run("registry")
    before.close()
    copy = before.path.read_bytes()
    moved, elsewhere = open_machine(home, postgres_url), open_machine(tmp_path / "b", postgres_url)
    before.path.write_bytes(copy)  # as a kill before the rename leaves it
    open_machine(home, postgres_url).close()
    for ledger in (moved, elsewhere):
        assert ledger.once("llm", "old", lambda: pytest.fail("paid twice")) == b"old"
        assert ledger.open_run("registry") == run
        assert [attempt.key for attempt in ledger.list_unknown()] == ["flight"]
        assert ledger.spent() == pytest.approx(0.015)
    pay(elsewhere, "new")
    with pytest.raises(BudgetExceeded, match=r"0\.025000 of 0\.050000"):
        moved.once("llm", "dear", lambda: pytest.fail("was sent"), reserve_usd=0.04)
    with pytest.raises(LedgerUnavailable, match=rf"moved to the database of {URL}"):
        open_machine(home, None)


@pytest.mark.slow
def test_what_another_machine_has_at_work_is_left_to_it(tmp_path, postgres_url, monkeypatch):
    here = open_machine(tmp_path / "a", postgres_url)
    monkeypatch.setattr(postgres_ledger, "describe_owner", lambda: ELSEWHERE)
    there = open_machine(tmp_path / "b", postgres_url)
    facts = dict.fromkeys(("stage", "partition", "role", "model", "base_url", "window"), "x")
    batch = BatchLedger(there).open("theirs", usd_in=1.0, usd_out=1.0, **facts)
    assert there.attempts.claim("llm", "flight", "_", 0.02, "usd") is not None
    monkeypatch.undo()
    monkeypatch.setattr(postgres_ledger, "_GRACE_S", 0.0)  # its session alone tells that it lives
    assert [one.name for one in BatchLedger(here).find("gathering")] == ["theirs"]
    assert here.list_unknown() == []
    with BatchLedger(there).hold(batch.name) as ours, BatchLedger(here).hold(batch.name) as other:
        assert isinstance(ours, BatchRecord)
        assert other is None
    there.close()
    deadline = time.monotonic() + 120
    while not here.list_unknown() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert [one.key for one in here.list_unknown()] == ["flight"]
    assert BatchLedger(here).find("gathering") == []


@pytest.mark.slow
def test_upkeep_sees_what_is_under_way(tmp_path, postgres_url, monkeypatch):
    monkeypatch.setenv(URL, postgres_url)
    ledger = open_machine(tmp_path / "a", postgres_url)
    assert find_oldest_start(ledger.path.parent, None) is None

    def look() -> EffectOutcome:
        assert find_oldest_start(ledger.path.parent, None) is not None
        return EffectOutcome(b"x")

    assert ledger.once("page", "k", look) == b"x"


def test_a_closed_port_is_refused_at_once(tmp_path):
    pytest.importorskip("psycopg2", reason="uv pip install 'toolmill[postgres]'")
    began, url = time.monotonic(), f"postgresql://u:secret@127.0.0.1:{find_free_port()}/d"
    with pytest.raises(LedgerUnavailable, match=rf"refused.*correct or unset {URL}") as caught:
        open_machine(tmp_path, url)
    assert "secret" not in str(caught.value)
    assert sum(postgres.FIRST_PAUSES_S) < 1.0  # a clock is no measure on a busy machine
    assert time.monotonic() - began < 60


@cases("url", "mysql://u:secret@h/d", "secret", "postgresqlx://secret")
def test_an_address_of_something_else_is_refused_without_being_told(tmp_path, url, monkeypatch):
    with pytest.raises(errors.UnusableInput, match=URL) as caught:
        open_machine(tmp_path, url)
    assert "secret" not in str(caught.value)
    assert "secret" not in repr(store.Warehouse(tmp_path, tmp_path, ledger_url=url))
    monkeypatch.setattr(postgres_ledger, "find_spec", lambda _: None)
    with pytest.raises(errors.UnusableInput, match=r"toolmill\[postgres\]"):
        postgres_ledger.PostgresStore("postgresql://127.0.0.1/x", 1.0)
    assert postgres_ledger._write_marks("a LIKE '5%' AND b = ?") == "a LIKE '5%%' AND b = %s"
