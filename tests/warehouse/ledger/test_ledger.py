"""Effects are recorded before they are sent, read instead of redone, and paid within a budget."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from tests.support.cases import cases
from warehouse.ledger.attempts import BudgetExceeded, EffectOutcome
from warehouse.ledger.database import URL, LedgerUnavailable, find_url
from warehouse.ledger.ledger import Ledger
from warehouse.storage.blobs import Blobs


def open_ledger(folder: Path) -> Ledger:
    """In the Postgres that the environment names, else in a file there."""
    return Ledger(folder / "ledger.db", Blobs(folder / "blobs"), run_id="test", url=find_url())


@pytest.fixture(autouse=True, params=["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Every test of this module is the contract of both engines."""
    if request.param == "postgres":
        monkeypatch.setenv(URL, request.getfixturevalue("postgres_url"))
    return request.param


@pytest.fixture
def ledger(tmp_path: Path, engine: str) -> Ledger:
    return open_ledger(tmp_path)


def test_the_same_key_is_carried_out_once_and_a_run_stays_open_until_it_is_closed(ledger):
    calls = []
    for _ in range(3):
        data = ledger.once("page", "k", lambda: calls.append(1) or EffectOutcome(b"answer"))
        assert data == b"answer"
    assert calls == [1]
    assert ledger.counts() == {("page", "done"): 1}
    first = ledger.open_run("registry")
    assert ledger.open_run("registry") == first
    ledger.close_run("registry")
    ledger.close_run("registry")
    assert ledger.open_run("registry") != first
    assert ledger.open_run("mcpso").endswith(".1")


def test_threads_that_want_one_key_share_one_effect(ledger):
    calls = []

    def slow() -> EffectOutcome:
        calls.append(1)
        time.sleep(0.3)
        return EffectOutcome(b"x")

    threads = [threading.Thread(target=ledger.once, args=("s", "k", slow)) for _ in range(5)]
    [thread.start() for thread in threads]
    [thread.join(60) for thread in threads]
    assert calls == [1]


def test_an_effect_that_ends_between_the_look_and_the_claim_is_read(ledger, monkeypatch):
    database = ledger.database
    look = database.find_blob

    def and_another_process_finishes(key: str) -> str | None:
        result = look(key)
        open_ledger(ledger.path.parent).once("s", key, lambda: EffectOutcome(b"theirs"))
        return result

    monkeypatch.setattr(database, "find_blob", and_another_process_finishes)
    assert ledger.once("s", "k", lambda: pytest.fail("was redone")) == b"theirs"


async def test_tasks_that_want_one_key_share_one_effect(ledger):
    calls = []

    async def slow() -> EffectOutcome:
        calls.append(1)
        await asyncio.sleep(0.2)
        return EffectOutcome(b"x")

    answers = await asyncio.gather(*(ledger.once_async("s", "k", slow) for _ in range(5)))
    assert answers == [b"x"] * 5
    assert calls == [1]


def test_a_budget_stops_before_the_effect_and_what_is_done_stays(ledger):
    ledger.set_budget("usd", 0.0)
    assert ledger.once("probe", "free", lambda: EffectOutcome(b"x")) == b"x"
    with pytest.raises(BudgetExceeded):
        ledger.once("llm", "paid", lambda: EffectOutcome(b"x"), reserve_usd=1e-6)
    ledger.set_budget("usd", 0.10)

    def nested() -> EffectOutcome:
        with pytest.raises(BudgetExceeded):  # reservations of calls under way count
            ledger.once("llm", "inner", lambda: pytest.fail("was sent"), reserve_usd=0.06)
        return EffectOutcome(b"x", usd=0.04)

    ledger.once("llm", "k0", nested, reserve_usd=0.06)
    ledger.once("llm", "k1", lambda: EffectOutcome(b"x", usd=0.04), reserve_usd=0.05)
    with pytest.raises(BudgetExceeded, match=r"0\.080000 of 0\.100000 USD"):
        ledger.once("llm", "k2", lambda: pytest.fail("was sent"), reserve_usd=0.05)
    assert ledger.once("llm", "k0", lambda: pytest.fail("was redone"), reserve_usd=0.05) == b"x"
    assert ledger.spent() == pytest.approx(0.08)


KILLED = """
import sys, time
from pathlib import Path
sys.path.insert(0, {root!r})
from tests.warehouse.ledger.test_ledger import open_ledger
from warehouse.ledger.attempts import EffectOutcome
ledger = open_ledger(Path({folder!r}))
ledger.once("llm", "before", lambda: EffectOutcome(b"kept", usd=0.01), reserve_usd=0.02)
def hang():
    print("sent", flush=True)
    time.sleep(60)
ledger.once("llm", "in flight", hang, reserve_usd=0.02)
"""


def start_process(folder: Path, **replaced: str) -> subprocess.Popen[bytes]:
    """A process that has sent the effect `in flight`, with changes of its script."""
    script = KILLED.format(root=str(Path.cwd()), folder=str(folder))
    for old, new in replaced.items():
        script = script.replace({"hang": "def hang():", "sleep": "time.sleep(60)"}[old], new)
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"sent\n"
    return process


def test_what_a_killed_process_had_sent_is_unknown_and_only_that_is_redone(tmp_path):
    process = start_process(tmp_path)
    os.kill(process.pid, signal.SIGKILL)
    process.wait(60)
    ledger = open_ledger(tmp_path)
    assert [attempt.key for attempt in ledger.list_unknown()] == ["in flight"]
    assert ledger.once("llm", "before", lambda: pytest.fail("paid twice")) == b"kept"
    assert ledger.once("llm", "in flight", lambda: EffectOutcome(b"again")) == b"again"
    assert ledger.spent() == pytest.approx(0.03)  # the unknown one may have been paid


@cases("case", "live", "clock", "fork")
def test_an_effect_of_a_live_process_is_waited_for_not_repeated(tmp_path, monkeypatch, case):
    """A step of the clock moves `btime` and with it the start of every process in wall time. Of a
    ledger that was made before a fork the child's own identity is written."""
    forks = {"hang": "import os\nif os.fork(): os.wait(); sys.exit()\ndef hang():"}
    process = start_process(
        tmp_path,
        sleep="time.sleep(1); return EffectOutcome(b'theirs')",
        **(forks if case == "fork" else {}),
    )
    if case == "clock":
        start = psutil.Process.create_time
        monkeypatch.setattr(psutil.Process, "create_time", lambda self: start(self) + 3600)
    ledger = open_ledger(tmp_path)
    assert ledger.list_unknown() == []
    assert ledger.once("llm", "in flight", lambda: pytest.fail("sent twice")) == b"theirs"
    process.wait(60)


def test_nothing_is_paid_for_that_a_full_disk_could_not_keep(ledger, monkeypatch):
    usage = shutil.disk_usage("/")._replace(free=1_000_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(LedgerUnavailable, match=r"1,000,000 bytes are free.*nothing was sent"):
        ledger.once("llm", "k", lambda: pytest.fail("was sent"), reserve_usd=0.01)
    assert ledger.once("page", "free", lambda: EffectOutcome(b"page")) == b"page"
    assert ledger.spent() == 0


@cases("damage", b"", b"rot")
def test_a_damaged_blob_counts_as_not_done_is_paid_for_once_more_and_heals(ledger, damage):
    calls = []

    def pay() -> EffectOutcome:
        calls.append(1)
        return EffectOutcome(b"answer", usd=0.01)

    ledger.once("llm", "k", pay, reserve_usd=0.02)
    next(path for path in ledger.blobs.root.rglob("*") if path.is_file()).write_bytes(damage)
    assert ledger.seen("k") is None
    for _ in range(4):
        assert ledger.once("llm", "k", pay, reserve_usd=0.02) == b"answer"
    assert len(calls) == 2


def test_costs_add_up_per_stage_and_model_and_the_last_runs_attempts_are_counted(ledger):
    paid = EffectOutcome(b"x", "m", 10, 5, 0.5)
    for n in range(3):
        ledger.once("llm", f"k{n}", lambda: paid, partition="registry")
    [row] = ledger.costs()
    assert (row["stage"], row["partition"], row["model"]) == ("llm", "registry", "m")
    assert (row["effects"], row["prompt_tokens"], row["completion_tokens"]) == (3, 30, 15)
    assert row["usd"] == pytest.approx(1.5)
    assert ledger.count_last_run("registry", ["llm"]) == {"llm": 3}


def test_a_failed_effect_is_tried_again_and_what_its_error_quotes_is_kept(ledger):
    def fail() -> EffectOutcome:
        raise ValueError("nul \0, half \ud800, 100% of ? marks")

    with pytest.raises(ValueError, match="marks"):
        ledger.once("page", "k", fail)
    assert ledger.counts() == {("page", "failed"): 1}
    assert ledger.once("page", "k", lambda: EffectOutcome(b"x")) == b"x"
    assert ledger.counts() == {("page", "failed"): 1, ("page", "done"): 1}
    ledger.forget("k")
    assert ledger.seen("k") is None


def test_a_file_that_is_no_ledger_is_named(tmp_path):
    (tmp_path / "ledger.db").write_bytes(b"this is not a database, it is a note" * 100)
    with pytest.raises(LedgerUnavailable, match=r"ledger\.db: file is not a database"):
        open_ledger(tmp_path)
