"""Whatever becomes of the database, what was paid is not paid again and not forgotten."""

import json
import os
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.command import invoke_toolmill
from tests.warehouse.ledger.test_ledger import open_ledger
from warehouse.home import claim_home
from warehouse.ledger.attempts import BudgetExceeded, Outcome
from warehouse.ledger.files import LedgerUnavailable, find_journal
from warehouse.ledger.ledger import Ledger
from warehouse.ledger.recovery import check, rebuild_ledger
from warehouse.storage.blobs import Blobs


class Silence(Exception):
    """An effect that may have been answered and billed."""

    maybe_paid = True


def fail(error: Exception) -> Outcome:
    raise error


def lived_in(folder: Path) -> Ledger:
    """A ledger with everything in it that a rebuild must keep."""
    ledger = open_ledger(folder)
    ledger.set_budget("usd", 0.5)
    for n in range(3):
        ledger.once("llm", f"k{n}", lambda: Outcome(b"paid", "m", 5, 7, 0.04), reserve_usd=0.1)
    ledger.once("page", "free", lambda: Outcome(b"page"))
    ledger.once("train", "lost", lambda: Outcome(b"folder", usd=0.02), reserve_usd=0.02)
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


def garbage(folder: Path) -> None:
    for suffix in ("-wal", "-shm"):
        (folder / f"ledger.db{suffix}").unlink(missing_ok=True)
    (folder / "ledger.db").write_bytes(b"SQLite format 3\0" + os.urandom(8192))


def test_nothing_is_lost_when_the_database_is_garbage(tmp_path: Path) -> None:
    lived_in(tmp_path).close()
    garbage(tmp_path)
    with pytest.raises(LedgerUnavailable, match=r"ledger\.db: .*toolmill ledger rebuild"):
        open_ledger(tmp_path)
    assert not check(tmp_path / "ledger.db", Blobs(tmp_path / "blobs")).healthy
    found = rebuild_ledger(tmp_path / "ledger.db", Blobs(tmp_path / "blobs"))
    assert (found.healthy, found.database, found.effects, found.unknown) == (True, "ok", 4, 1)
    assert_kept(tmp_path)
    assert list(tmp_path.glob("ledger.db.before-*")), "the old file is kept"


def test_nothing_is_lost_when_the_journal_is_gone(tmp_path: Path) -> None:
    lived_in(tmp_path).close()
    find_journal(tmp_path / "ledger.db").unlink()
    open_ledger(tmp_path).close()  # as on the first open of a ledger older than journals
    garbage(tmp_path)
    rebuild_ledger(tmp_path / "ledger.db", Blobs(tmp_path / "blobs"))
    assert_kept(tmp_path)


def test_a_rebuild_keeps_the_union_when_each_side_lacks_something(tmp_path: Path) -> None:
    ledger = lived_in(tmp_path)
    ledger.close()
    journal = find_journal(ledger.path)
    lines = journal.read_text().splitlines()
    journal.write_text("\n".join(line for line in lines if '"key":"k1"' not in line))
    found = check(ledger.path, ledger.blobs)
    assert (found.healthy, found.only_in_database) == (False, 1)
    assert "toolmill ledger rebuild" in found.fix
    assert rebuild_ledger(ledger.path, ledger.blobs).healthy
    garbage(tmp_path)
    rebuild_ledger(ledger.path, ledger.blobs)
    assert_kept(tmp_path)


def test_a_torn_line_spoils_itself_only(tmp_path: Path) -> None:
    lived_in(tmp_path).close()
    journal = find_journal(tmp_path / "ledger.db")
    with journal.open("ab") as file:
        file.write(b'\n{"is":"done","id":99,"key":"to')
    ledger = open_ledger(tmp_path)
    ledger.once("page", "after", lambda: Outcome(b"the next line"))
    ledger.close()
    garbage(tmp_path)
    assert check(ledger.path, ledger.blobs).torn_lines == 1
    rebuild_ledger(ledger.path, ledger.blobs)
    assert_kept(tmp_path)
    assert open_ledger(tmp_path).seen("after") == b"the next line"


HALF = {"is": "done", "id": 99, "key": {}, "stage": 1, "partition": "_", "run_id": "-",
        "started_at": 1, "finished_at": "x", "scope": "usd", "reserved_usd": 1, "model": "",
        "prompt_tokens": 0, "completion_tokens": 0, "usd": 1, "blob": "../x"}  # fmt: skip


@pytest.mark.parametrize(
    "line",
    [b"[]", b"7", b"{}", b'{"is":"done","id":1}', b"\xff\xfe", b'{"is":"x"}', b"[" * 100_000,
     b'{"is":["x"]}', b'{"is":"run","scope":[],"number":1}', b'{"is":"unknown","id":{}}',
     b'{"is":"unknown","id":7777}', b'{"is":"budget","scope":"usd","usd":null}',
     b'{"is":"budget","scope":"usd","usd":1e400}',
     b'{"is":"budget","scope":"usd","usd":-1}', b'{"is":"forgotten","key":null}',
     b'{"is":"failed","id":' + b"9" * 30 + b"}", json.dumps(HALF).encode()],
)  # fmt: skip
def test_a_line_that_is_no_event_is_counted_and_passed_over(tmp_path: Path, line: bytes) -> None:
    lived_in(tmp_path).close()
    path, blobs = tmp_path / "ledger.db", Blobs(tmp_path / "blobs")
    with find_journal(path).open("ab") as file:
        file.write(b"\n" + line)
    assert check(path, blobs).torn_lines == 1
    assert_kept(tmp_path)
    garbage(tmp_path)
    rebuild_ledger(path, blobs)
    assert_kept(tmp_path)


@pytest.mark.parametrize("kind", ["unknown", "failed"])
def test_what_was_received_stays_received_whatever_is_said_later(tmp_path: Path, kind: str) -> None:
    lived_in(tmp_path).close()
    path, blobs = tmp_path / "ledger.db", Blobs(tmp_path / "blobs")
    done = [json.loads(line) for line in find_journal(path).read_bytes().split(b"\n") if line]
    with find_journal(path).open("ab") as file:
        for row in done:
            if row["is"] == "done":
                file.write(b"\n" + json.dumps({"is": kind, "id": row["id"]}).encode())
    garbage(tmp_path)
    rebuild_ledger(path, blobs)
    assert_kept(tmp_path)
    assert check(path, blobs).healthy


def test_one_id_for_two_keys_is_two_attempts_after_a_rebuild(tmp_path: Path) -> None:
    lived_in(tmp_path).close()
    path, blobs = tmp_path / "ledger.db", Blobs(tmp_path / "blobs")
    lines = [json.loads(line) for line in find_journal(path).read_bytes().split(b"\n") if line]
    first = next(row for row in lines if row["is"] == "done" and row["usd"])
    twin = {**first, "key": "twin", "finished_at": first["finished_at"] + 1}
    silent = next(row for row in lines if row["is"] == "started" and row["key"] == "silent")
    waits = {**silent, "key": "waits", "id": twin["id"], "reserved_usd": 0.01}
    with find_journal(path).open("ab") as file:
        for row in (twin, waits, {"is": "unknown", "id": waits["id"]}):
            file.write(b"\n" + json.dumps(row).encode())
    before = check(path, blobs)
    assert (before.healthy, before.only_in_journal) == (False, 1)
    assert rebuild_ledger(path, blobs).healthy
    garbage(tmp_path)
    found = rebuild_ledger(path, blobs)
    assert (found.healthy, found.effects, found.unknown) == (True, 5, 2)
    assert found.paid_usd == before.paid_usd == pytest.approx(4 * 0.04 + 0.02)
    ledger = open_ledger(tmp_path)
    assert ledger.seen("twin") == ledger.seen(first["key"]) == b"paid"
    assert sorted(attempt.key for attempt in ledger.list_unknown()) == ["silent", "waits"]
    ledger.close()


def test_one_id_for_one_key_twice_is_paid_twice_after_a_rebuild(tmp_path: Path) -> None:
    """A database from a backup: the same run asks again under the same number."""
    lived_in(tmp_path).close()
    path, blobs = tmp_path / "ledger.db", Blobs(tmp_path / "blobs")
    lines = [json.loads(line) for line in find_journal(path).read_bytes().split(b"\n") if line]
    first = next(row for row in lines if row["is"] == "done" and row["usd"])
    later = {name: first[name] + 100 for name in ("started_at", "finished_at")}
    with find_journal(path).open("ab") as file:
        file.write(b"\n" + json.dumps({**first, **later}).encode())
    before = check(path, blobs).paid_usd
    assert rebuild_ledger(path, blobs).paid_usd == rebuild_ledger(path, blobs).paid_usd == before
    assert before == pytest.approx(4 * 0.04 + 0.02)


def test_a_damaged_page_of_a_ledger_without_journal_costs_only_itself(tmp_path: Path) -> None:
    ledger = open_ledger(tmp_path)
    for n in range(400):
        ledger.once("llm", f"{n:04}", lambda: Outcome(b"x", usd=0.001), reserve_usd=0.01)
    ledger.close()
    find_journal(ledger.path).unlink()
    data = bytearray(ledger.path.read_bytes())
    middle = len(data) // 2 // 4096 * 4096
    data[middle : middle + 4096] = os.urandom(4096)
    ledger.path.write_bytes(data)
    rebuild_ledger(ledger.path, ledger.blobs)
    fixed = open_ledger(tmp_path)
    kept = sum(fixed.seen(f"{n:04}") is not None for n in range(400))
    assert kept > 250
    assert check(ledger.path, ledger.blobs).healthy


def test_an_empty_database_beside_a_journal_is_not_taken_for_a_new_ledger(tmp_path: Path) -> None:
    lived_in(tmp_path).close()
    for file in tmp_path.glob("ledger.db*"):
        file.unlink()
    with pytest.raises(LedgerUnavailable, match=r"empty database beside.*toolmill ledger rebuild"):
        open_ledger(tmp_path)
    rebuild_ledger(tmp_path / "ledger.db", Blobs(tmp_path / "blobs"))
    assert_kept(tmp_path)


@pytest.mark.parametrize(
    "statement", ["UPDATE attempts SET status = 'done'", "INSERT INTO effects"]
)
def test_an_answer_whose_commit_found_no_room_is_not_paid_for_again(
    tmp_path: Path, statement: str
) -> None:
    """Its line is in the journal, its blob is whole: only the database lost it."""
    ledger = open_ledger(tmp_path)

    class Full:
        """The connection, on a disk that is full when the answer is written."""

        def __init__(self, inner: sqlite3.Connection) -> None:
            self.inner, self.full = inner, True

        def execute(self, sql: str, *values: object) -> sqlite3.Cursor:
            if self.full and sql.startswith(statement):
                self.full = False
                raise sqlite3.OperationalError("database or disk is full")
            return self.inner.execute(sql, *values)

    real = ledger._database.store._db
    ledger._database.store._db = Full(real)  # type: ignore[assignment]
    with pytest.raises(LedgerUnavailable, match="disk is full"):
        ledger.once("llm", "k", lambda: Outcome(b"paid", "m", 1, 2, 0.04), reserve_usd=0.1)
    ledger._database.store._db = real
    assert ledger.once("llm", "k", lambda: pytest.fail("paid twice"), reserve_usd=0.1) == b"paid"
    assert ledger.spent() == pytest.approx(0.04)
    assert check(ledger.path, ledger.blobs).healthy


def test_a_kill_between_journal_and_commit_pays_nothing_twice(tmp_path: Path) -> None:
    ledger = lived_in(tmp_path)
    ledger.close()
    saved = ledger.path.read_bytes()
    again = open_ledger(tmp_path)
    again.set_budget("other", 2.0)
    again.forget("k2")
    again.close()
    for name in ("-wal", "-shm"):
        (tmp_path / f"ledger.db{name}").unlink(missing_ok=True)
    ledger.path.write_bytes(saved)  # the database as before these commits, the journal as after
    last = open_ledger(tmp_path)
    assert last.once("llm", "k2", lambda: Outcome(b"anew")) == b"anew", "it was forgotten"
    last.close()
    assert check(ledger.path, ledger.blobs).healthy


HOLDER = """
import sqlite3, sys, time
db = sqlite3.connect(sys.argv[1], isolation_level=None)
if sys.argv[2] == "readers too":
    db.execute("PRAGMA locking_mode=EXCLUSIVE")
db.execute("BEGIN EXCLUSIVE")
print("held", flush=True); time.sleep(60)
"""


def holder(path: Path, whom: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", HOLDER, str(path), whom]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout
    assert process.stdout.readline() == b"held\n"
    return process


@pytest.mark.parametrize("whom", ["writers", "readers too"])
def test_a_locked_ledger_names_its_file_its_holder_and_the_mend(tmp_path: Path, whom: str) -> None:
    path, blobs = tmp_path / "ledger.db", Blobs(tmp_path / "blobs")
    lived_in(tmp_path).close()
    with holder(path, whom) as process:
        names = rf"ledger\.db: database is locked; process {process.pid} .*run again"
        with pytest.raises(LedgerUnavailable, match=names):
            Ledger(path, blobs, patience_s=0.1)
        process.kill()
    assert_kept(tmp_path)


def test_a_ledger_that_is_locked_between_two_effects_sends_nothing(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.db", Blobs(tmp_path / "blobs"), patience_s=0.1)
    with holder(ledger.path, "writers") as process:
        with pytest.raises(LedgerUnavailable, match="locked"):
            ledger.once("llm", "k", lambda: pytest.fail("was sent"), reserve_usd=0.1)
        process.kill()
    assert ledger.once("llm", "k", lambda: Outcome(b"x")) == b"x"


def test_a_ledger_in_use_is_not_rebuilt(tmp_path: Path) -> None:
    ledger = lived_in(tmp_path)
    with pytest.raises(LedgerUnavailable, match="has it open; end that run first"):
        rebuild_ledger(ledger.path, ledger.blobs)
    ledger.close()
    assert rebuild_ledger(ledger.path, ledger.blobs).healthy


def test_nothing_to_rebuild_from_is_said(tmp_path: Path) -> None:
    with pytest.raises(LedgerUnavailable, match="found neither it nor"):
        rebuild_ledger(tmp_path / "ledger.db", Blobs(tmp_path / "blobs"))


STEP = st.tuples(
    st.sampled_from(["done", "done", "fail", "silence", "forget", "rot"]),
    st.integers(0, 5),
    st.sampled_from([0.0, 0.01, 0.3]),
)


@settings(max_examples=25)
@given(steps=st.lists(STEP, max_size=25))
def test_the_journal_alone_gives_the_same_ledger(steps: list[tuple[str, int, float]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ledger = open_ledger(folder)
        for number, (what, which, usd) in enumerate(steps):
            key, data = f"k{which}", f"answer {number}".encode()
            if what == "forget":
                ledger.forget(key)
            elif what == "rot":
                (folder / "blobs").mkdir(exist_ok=True)
                for blob in list((folder / "blobs").rglob("*"))[:1]:
                    blob.unlink() if blob.is_file() else None
            else:
                outcome = Outcome(data, "m", 1, 2, usd)
                errors = {"fail": ValueError("x"), "silence": Silence()}
                try:
                    ledger.once(
                        "s", key,
                        lambda what=what, outcome=outcome, errors=errors: (
                            outcome if what == "done" else fail(errors[what])
                        ),
                        reserve_usd=usd,
                    )  # fmt: skip
                except (ValueError, Silence):
                    continue
        before = picture(ledger)
        ledger.close()
        garbage(folder)
        rebuild_ledger(ledger.path, ledger.blobs)
        fixed = open_ledger(folder)
        assert picture(fixed) == before
        fixed.close()


def picture(ledger: Ledger) -> tuple:
    seen = {f"k{n}": ledger.seen(f"k{n}") for n in range(6)}
    paid_unknown = [(a.key, a.reserved_usd) for a in ledger.list_unknown() if a.reserved_usd > 0]
    done = [row for row in ledger.costs() if row["status"] == "done"]
    with sqlite3.connect(ledger.path) as db:
        (summed,) = db.execute("SELECT COALESCE(SUM(usd), 0) FROM attempts").fetchone()
    held = sum(usd for _, usd in paid_unknown)
    assert ledger.spent() == pytest.approx(summed + held)
    return seen, paid_unknown, json.dumps(done), round(ledger.spent(), 9)


def toolmill(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return invoke_toolmill("ledger", *words, home=root, TOOLMILL_STATE=str(root))


def test_the_commands_check_fix_and_check_again(tmp_path: Path) -> None:
    claim_home(tmp_path)
    lived_in(tmp_path).close()
    healthy = toolmill(tmp_path, "check")
    assert (healthy.returncode, json.loads(healthy.stdout)["effects"]) == (0, 4)
    garbage(tmp_path)
    broken = toolmill(tmp_path, "check")
    assert broken.returncode == 1
    assert "rebuild" in json.loads(broken.stdout)["fix"]
    fixed = toolmill(tmp_path, "rebuild")
    assert (fixed.returncode, json.loads(fixed.stdout)["healthy"]) == (0, True)
    assert_kept(tmp_path)
    (tmp_path / "reviews").mkdir()
    (tmp_path / "reviews" / "one.jsonl").write_text('{"pair_ids": []}\n{"torn')
    repaired = toolmill(tmp_path, "repair")
    assert (repaired.returncode, json.loads(repaired.stdout)["torn_lines"]) == (0, 1)
    assert (tmp_path / "reviews" / "one.jsonl").read_text() == '{"pair_ids": []}\n'


def test_the_command_on_no_ledger_is_one_line(tmp_path: Path) -> None:
    for words in ("check", "rebuild"):
        result = toolmill(tmp_path, words)
        assert (result.returncode, result.stdout) == (2, "")
        assert len(result.stderr.splitlines()) == 1
