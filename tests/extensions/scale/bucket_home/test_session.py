"""One home, several machines: each works on what was committed last, and nothing is overwritten."""

import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from extensions.scale.bucket.bucket import Bucket, BucketUnavailable
from extensions.scale.bucket.pointer import StaleRead
from extensions.scale.bucket_home.root import KEY, HomeHeld, HomeLost, read_root
from extensions.scale.bucket_home.session import BucketHome, commit_stage
from extensions.scale.bucket_home.status import describe_home, refuse_superseded
from tests.extensions.scale.bucket_home.machines import (
    change_root,
    end_machine,
    kill_machine,
    list_home,
    open_machine,
    open_store,
    read_value,
    write_rows,
)
from warehouse.errors import UnusableInput
from warehouse.ledger.attempts import Outcome

obstore = pytest.importorskip("obstore", reason="uv pip install 'toolmill[bucket]'")


def test_another_machine_goes_on_where_the_last_one_committed(
    bucket: Bucket, tmp_path: Path
) -> None:
    one, two = open_machine(bucket, tmp_path / "1"), open_machine(bucket, tmp_path / "2")
    with one.hold():
        write_rows(one, 1, paid="k")
    assert read_root(bucket).lease is None
    with two.hold():
        assert read_value(two) == 1
        ledger = open_store(two).ledger
        assert ledger.once("write", "k", lambda: Outcome(b"paid twice")) == b"k"
        write_rows(two, 2)
    one.refresh()
    assert read_value(one) == 2
    assert list_home(one) == list_home(two)
    assert read_root(bucket).number == 2


def test_a_commit_that_changes_nothing_moves_nothing_and_sends_nothing(
    bucket: Bucket, tmp_path: Path
) -> None:
    one = open_machine(bucket, tmp_path / "1")
    with one.hold():
        write_rows(one, 1)
    before = bucket.list_objects("")
    with one.hold():
        assert one.commit() == 1
    assert {key for key in bucket.list_objects("") if key != KEY} == before.keys() - {KEY}
    assert read_root(bucket).number == 1


def test_a_ledger_that_was_merely_read_is_not_changed_and_is_not_sent_again(
    bucket: Bucket, tmp_path: Path
) -> None:
    one, two = open_machine(bucket, tmp_path / "1"), open_machine(bucket, tmp_path / "2")
    with one.hold():
        write_rows(one, 1, paid="k")
    assert describe_home(one)["changed_here"] == 0, "its log became part of its file since"
    two.refresh()
    [(path, file), *_] = two.copy.list_databases()
    before = file.read_bytes()
    assert open_store(two).ledger.seen("k") == b"k"
    assert file.read_bytes() != before, "SQLite counts who opened it, so that time alone says no"
    assert describe_home(two)["changed_here"] == 0
    with two.hold():
        assert open_store(two).ledger.seen("k") == b"k"
    assert read_root(bucket).number == 1
    write_rows(two, 1, paid="another")
    assert describe_home(two)["changed_here"] == 3, f"{path}, its journal, and an answer"
    with closing(sqlite3.connect(file)) as opened:
        assert opened.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_the_journal_of_a_ledger_in_postgres_stays_on_its_machine(
    bucket: Bucket, tmp_path: Path
) -> None:
    """Its lines are what that machine alone was answered: another would take them for untold."""
    one, two = open_machine(bucket, tmp_path / "1"), open_machine(bucket, tmp_path / "2")
    for machine in (one, two):
        with machine.hold():
            machine.state.mkdir(exist_ok=True)
            (machine.state / "ledger.journal").write_text(machine.home.name)
            (machine.home / f"{machine.home.name}.md").write_text("made")
    one.refresh()
    assert (one.home / "2.md").exists()
    assert [(m.state / "ledger.journal").read_text() for m in (one, two)] == ["1", "2"]


def test_the_journal_of_a_ledger_that_moved_to_postgres_goes_with_it(
    bucket: Bucket, tmp_path: Path
) -> None:
    one, two = open_machine(bucket, tmp_path / "1"), open_machine(bucket, tmp_path / "2")
    with one.hold():
        write_rows(one, 1, paid="k")
    two.refresh()
    assert (two.state / "ledger.journal").exists()
    with one.hold():
        (one.state / "ledger.db").unlink()
    two.refresh()
    assert not (two.state / "ledger.db").exists()
    assert not (two.state / "ledger.journal").exists()
    assert (one.state / "ledger.journal").exists()


def test_a_second_machine_is_told_who_holds_the_home(bucket: Bucket, tmp_path: Path) -> None:
    one, two = open_machine(bucket, tmp_path / "1"), open_machine(bucket, tmp_path / "2")
    with one.hold(), pytest.raises(HomeHeld, match=r"held by .*, process \d+ until 2"), two.hold():
        pass
    with two.hold():
        assert read_root(bucket).lease is not None


def test_processes_of_one_working_copy_share_its_lease_and_the_last_gives_it_back(
    bucket: Bucket, tmp_path: Path
) -> None:
    one, again = open_machine(bucket, tmp_path / "1"), open_machine(bucket, tmp_path / "1")
    with one.hold():
        with again.hold():
            write_rows(one, 1)
        assert read_root(bucket).lease is not None
        assert read_root(bucket).number == 0, "the last to go commits"
    assert read_root(bucket).lease is None
    assert read_root(bucket).number == 1


def lose_home(one: BucketHome, two: BucketHome, *, committed: bool) -> None:
    """`one` works on, silent for too long, while `two` takes the home over."""
    with one.hold():
        write_rows(one, 1)
        end_machine(one.bucket)
        with two.hold():
            if committed:
                write_rows(two, 2)
                two.commit()
            with pytest.raises(HomeLost, match=r"taken over by .*nothing there was overwritten"):
                one.commit()
            assert read_root(one.bucket).number == 1 + committed


@pytest.mark.parametrize("committed", [True, False])
def test_a_machine_that_was_taken_over_overwrites_nothing_and_is_told(
    bucket: Bucket, tmp_path: Path, committed: bool
) -> None:
    one, two = open_machine(bucket, tmp_path / "1"), open_machine(bucket, tmp_path / "2")
    with one.hold():
        write_rows(one, 0)
    with pytest.raises(HomeLost, match="taken over while"):
        lose_home(one, two, committed=committed)
    with one.hold():
        assert read_value(one) == 1 + committed


@pytest.mark.slow
def test_a_holder_whose_clock_runs_ahead_is_taken_over_once_it_stands_still(
    bucket: Bucket, tmp_path: Path
) -> None:
    one, two = open_machine(bucket, tmp_path / "1"), open_machine(
        bucket, tmp_path / "2", lease_minutes=0.005, wait_minutes=10
    )  # fmt: skip
    with one.hold():
        write_rows(one, 1)
    lease = {"token": "gone", "holder": "a machine of next year", "until": 9e12}
    change_root(bucket, lease=lease)
    with two.hold():
        assert read_value(two) == 1


def test_what_a_killed_run_had_not_committed_is_gone_on_with_on_its_machine(
    bucket: Bucket, tmp_path: Path
) -> None:
    one = open_machine(bucket, tmp_path / "1")
    with one.hold():
        write_rows(one, 1)
    kill_machine(bucket, one)
    write_rows(one, 2, paid="k")
    with one.hold():
        assert read_value(one) == 2
        assert open_store(one).ledger.seen("k") == b"k"
    assert read_root(bucket).number == 2


def test_what_a_killed_run_had_not_committed_gives_way_to_what_another_committed_since(
    bucket: Bucket, tmp_path: Path
) -> None:
    told: list[str] = []
    one, two = open_machine(bucket, tmp_path / "1", told), open_machine(bucket, tmp_path / "2")
    with one.hold():
        write_rows(one, 1)
    kill_machine(bucket, one)
    write_rows(one, 2, paid="k")
    end_machine(bucket)
    with two.hold():
        write_rows(two, 3)
    one.refresh()
    assert read_value(one) == 3
    assert open_store(one).ledger.seen("k") is None, "the ledger is the one that was committed"
    answers = {name for name in list_home(one).keys() - list_home(two).keys() if "blobs" in name}
    assert len(answers) == 1, "one in Postgres would still name it"
    assert told == [
        "what was made here after commit 1 and not committed (4 files) gives way to commit 2, which"
        " another machine made"
    ]


def test_files_of_a_copy_that_was_overtaken_are_not_given_up_by_a_commit(
    bucket: Bucket, tmp_path: Path
) -> None:
    told: list[str] = []
    one, two = open_machine(bucket, tmp_path / "1", told), open_machine(bucket, tmp_path / "2")
    with one.hold():
        write_rows(one, 1)
    with two.hold():
        write_rows(two, 2)
    refuse_superseded(one)  # behind, and nothing was written here
    (one.home / "reports").mkdir()
    (one.home / "reports" / "mine.md").write_text("mine")
    with pytest.raises(UnusableInput, match=r"1 files were written here since commit 1, and commi"):
        refuse_superseded(one)
    assert (one.home / "reports" / "mine.md").exists()
    one.refresh()
    assert told == [
        "what was made here after commit 1 and not committed (1 files) gives way to commit 2, which"
        " another machine made"
    ]


def test_a_copy_that_cannot_be_written_is_read_as_it_is(bucket: Bucket, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with open_machine(bucket, tmp_path / "0").hold():
        write_rows(open_machine(bucket, tmp_path / "0"), 1)
    told: list[str] = []
    one = open_machine(bucket, tmp_path / "file" / "home", told)
    assert one.refresh().objects == 0
    assert "cannot be written (Not a directory)" in told[0]
    with pytest.raises(UnusableInput, match="cannot be written"):
        one.refresh(strict=True)


def test_a_commit_whose_machine_died_before_it_noted_that_is_its_own(
    bucket: Bucket, tmp_path: Path
) -> None:
    told: list[str] = []
    one = open_machine(bucket, tmp_path / "1", told)
    with one.hold():
        write_rows(one, 1)
    record = one.home / ".bucket.json"
    with one.hold():
        before = record.read_bytes()
        write_rows(one, 2)
        one.commit()
        write_rows(one, 3)
        root = read_root(bucket)
    record.write_bytes(before)
    assert root.lease is not None
    found = {"token": root.lease.token, "holder": "x", "until": 0.0}
    facts = {"version": root.version, "number": root.number, "previous": root.previous}
    change_root(bucket, lease=found, **facts)
    with one.hold():
        assert read_value(one) == 3, "what it made since stays"
    assert read_root(bucket).number == 3


def test_a_cache_that_answers_with_what_was_is_found_out(bucket: Bucket, tmp_path: Path) -> None:
    one = open_machine(bucket, tmp_path / "1")
    for value in (1, 2):
        with one.hold():
            write_rows(one, value)
        if value == 1:
            old = bucket.read(KEY, 1 << 16)
    assert old is not None
    bucket.swap(KEY, old[0], bucket.read(KEY, 1 << 16)[1])  # type: ignore[index]
    with pytest.raises(StaleRead, match="says commit 1 and has said 2"), one.hold():
        pass


def test_readers_read_on_while_a_bucket_does_not_answer(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, told = open_machine(bucket, tmp_path / "1"), []
    with one.hold():
        write_rows(one, 1)
    two = open_machine(bucket, tmp_path / "2", told)
    two.refresh()

    def fail(*_: object) -> None:
        raise OSError("the line is cut")

    monkeypatch.setattr(obstore, "get", fail)
    two.refresh()
    assert read_value(two) == 1
    assert "commit 1 is read, which was fetched last" in told[0]
    with pytest.raises(BucketUnavailable):
        open_machine(bucket, tmp_path / "3").refresh()
    with pytest.raises(BucketUnavailable), two.hold():
        pass


def test_a_home_that_was_here_before_moves_into_an_empty_bucket_and_into_no_other(
    bucket: Bucket, tmp_path: Path
) -> None:
    one, two = open_machine(bucket, tmp_path / "1"), open_machine(bucket, tmp_path / "2")
    write_rows(one, 1)
    with one.hold():
        pass
    two.refresh()
    assert read_value(two) == 1
    other = open_machine(bucket, tmp_path / "3")
    write_rows(other, 9)
    for work in (other.refresh, lambda: other.hold().__enter__()):
        with pytest.raises(UnusableInput, match="name an empty home"):
            work()
    assert read_value(other) == 9
    elsewhere = Bucket(bucket._store, "s3://here/homes/other")
    with pytest.raises(UnusableInput, match="working copy of s3://here/homes/main"):
        open_machine(elsewhere, tmp_path / "1").refresh()


def test_a_database_that_is_open_while_it_is_fetched_takes_nothing_of_it(
    bucket: Bucket, tmp_path: Path
) -> None:
    one, two = open_machine(bucket, tmp_path / "1"), open_machine(bucket, tmp_path / "2")
    with one.hold():
        write_rows(one, 1, paid="k")
    two.refresh()
    with closing(sqlite3.connect(two.state / "ledger.db")) as db:
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("DELETE FROM effects")
        db.commit()
        with one.hold():
            write_rows(one, 2, paid="l")
        two.refresh()
        now = open_store(two).ledger
        assert [now.seen(key) for key in ("k", "l")] == [b"k", b"l"]
        now.once("s", "m", lambda: Outcome(b"m"))
    assert [open_store(two).ledger.seen(key) for key in ("k", "l", "m")] == [b"k", b"l", b"m"]
    (two.state / "ledger.db").write_bytes(b"no database" * 1000)
    with one.hold():
        write_rows(one, 3)
    two.refresh()
    assert open_store(two).ledger.seen("l") == b"l"


def test_a_stage_is_committed_before_others_can_learn_of_it(bucket: Bucket, tmp_path: Path) -> None:
    one = open_machine(bucket, tmp_path / "1", shared_events=True)
    commit_stage()  # of no home: nothing
    with one.hold():
        write_rows(one, 1)
        commit_stage()
        assert read_root(bucket).number == 1


def test_outcomes_of_two_machines_that_serve_are_both_kept(bucket: Bucket, tmp_path: Path) -> None:
    one, two = open_machine(bucket, tmp_path / "1"), open_machine(bucket, tmp_path / "2")

    def log(place: Path, line: str) -> None:
        (place / "outcomes").mkdir(exist_ok=True)
        with (place / "outcomes" / "2026-11-26.jsonl").open("a") as file:
            file.write(line + "\n")

    with one.hold():
        write_rows(one, 1)
        log(one.home, "first")
    two.refresh()
    log(two.home, "of two")
    with one.hold():
        log(one.home, "of one")
    two.refresh()
    with two.hold():
        pass
    one.refresh()
    found = (one.home / "outcomes" / "2026-11-26.jsonl").read_text().splitlines()
    assert found == ["first", "of one", "of two"]


def test_the_lease_is_renewed_and_work_committed_beside_the_run(
    bucket: Bucket, tmp_path: Path
) -> None:
    one = open_machine(bucket, tmp_path / "1", lease_minutes=0.05, commit_minutes=0.0005)
    committed, wait = threading.Event(), one.commit

    def commit() -> int:
        number = wait()
        committed.set() if number else None
        return number

    object.__setattr__(one, "commit", commit)
    with one.hold():
        until = read_root(bucket).lease.until  # type: ignore[union-attr]
        write_rows(one, 1)
        assert committed.wait(60)
        assert read_root(bucket).number >= 1
        for _ in range(600):
            if read_root(bucket).lease.until > until:  # type: ignore[union-attr]
                break
            committed.clear()
            committed.wait(0.1)
        assert read_root(bucket).lease.until > until  # type: ignore[union-attr]


class Unreachable(Bucket):
    """A bucket that does not answer."""

    def read(self, key: str, most: int) -> tuple[bytes, str] | None:
        raise BucketUnavailable("does not answer")


def test_a_bucket_that_does_not_answer_leaves_no_file_where_no_home_was(tmp_path: Path) -> None:
    one = open_machine(Unreachable(None, "s3://here/home"), tmp_path / "1")
    for use in (one.refresh, lambda: one.refresh(strict=True), one.hold().__enter__):
        with pytest.raises(BucketUnavailable):
            use()
    assert list(tmp_path.rglob("*")) == []


def test_a_bucket_without_a_commit_leaves_no_file_where_no_home_was(
    bucket: Bucket, tmp_path: Path
) -> None:
    open_machine(bucket, tmp_path / "1").refresh()
    assert list(tmp_path.rglob("*")) == []
