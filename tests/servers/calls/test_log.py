"""What is written of each call, and what never is."""

import base64
import json
import os
import threading
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assets.servers.calls import log
from assets.servers.calls.log import CallLog, DeletionSubject, count_lines, remove_lines
from tests.support.cases import cases


def test_a_line_says_which_tool_and_how_it_ended(tmp_path):
    outcomes = CallLog(tmp_path)
    facts = {"token": "alice", "tool_id": "npm:a::b", "status": "ok", "seconds": 0.12345}
    line = outcomes.record(facts)
    today = datetime.fromtimestamp(line["at"], UTC).date()
    written = (tmp_path / "outcomes" / f"{today}.jsonl").read_text().splitlines()
    assert ([json.loads(text) for text in written], line["seconds"]) == ([line], 0.123)
    assert (list(outcomes.read()), list(outcomes.read(since=line["at"] + 1))) == ([line], [])


@cases(
    "facts, named",
    ({"status": "ok", "arguments": {"password": "x"}}, "arguments"),
    ({"status": "splendid"}, "splendid"),
    ({"status": "reported", "reported": "fine"}, "fine"),
)
def test_a_field_nobody_declared_and_an_unknown_status_are_refused(facts, named, tmp_path):
    with pytest.raises(log.BadOutcome, match=named):
        CallLog(tmp_path).record(facts)
    assert list(CallLog(tmp_path).read()) == []


@given(st.text())
def test_a_query_has_one_digest_whatever_its_case_and_spacing(query):
    assert log.query_digest(query) == log.query_digest(f"  {query}\n\t")
    assert log.query_digest(query).startswith("q1:")


def test_what_is_kept_stays_within_bounds_and_words_lose_their_secrets(tmp_path):
    outcomes = CallLog(tmp_path)
    line = outcomes.record({"status": "searched", "words": "w" * 9000, "shown": ["a::b"] * 200})
    assert (len(line["words"]), line["shown"]) == (4000, ["a::b"] * 100)
    outcomes.record({"status": "reported", "reported": "failed", "note": 'a\n{"at": 1}\n' * 200})
    searched, reported = outcomes.read()
    assert (searched, len(reported["note"])) == (line, 500)
    assert "ghp_" not in log.clean_words("list issues with ghp_" + "a1B2" * 9)
    assert "qT7wer8T" not in log.clean_words("log me in, my password is qT7wer8Tyu9")
    packed = log.pack_vector(np.array([0.5, -1.0], np.float32))
    assert np.frombuffer(base64.b64decode(packed), "<f2").tolist() == [0.5, -1.0]


def test_what_is_older_than_its_days_goes_with_the_first_line_of_a_day(tmp_path):
    today = datetime.now(UTC).date()
    kept = CallLog(tmp_path, days=3)
    kept.folder.mkdir()
    for back in (0, 1, 2, 3, 40):
        (kept.folder / f"{today - timedelta(days=back)}.jsonl").write_text('{"at": 1}\n')
    (kept.folder / "notes.jsonl").write_text("mine")
    CallLog(tmp_path).record({"status": "ok"})
    assert len(kept.list_files()) == 5  # 0 days: until they are deleted
    kept.record({"status": "ok"})
    days = [path.stem for path in kept.list_files()]
    assert days == [str(today - timedelta(days=back)) for back in (2, 1, 0)]
    assert (kept.folder / "notes.jsonl").exists()


@pytest.fixture
def outcomes(tmp_path: Path) -> CallLog:
    """Two days of two tokens."""
    made = CallLog(tmp_path)
    made.folder.mkdir()
    for day in ("2026-11-20", "2026-11-21"):
        lines = [
            {"at": 1.0, "id": f"{day}{token}{n}", "token": token, "client": f"editor {n}",
             "status": "searched", "words": f"words of {token}", "query": log.query_digest(token)}
            for n in range(3)
            for token in ("ann", "bo")
        ]  # fmt: skip
        path = made.folder / f"{day}.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        path.chmod(0o600)
    return made


def texts(outcomes: CallLog) -> dict[str, str]:
    return {path.stem: path.read_text() for path in outcomes.list_files()}


def test_a_subject_goes_from_the_middle_of_every_file_and_the_rest_stays_as_it_was(outcomes):
    before = texts(outcomes)
    told = remove_lines(outcomes, DeletionSubject(token="ann"))
    assert told == {"deleted": 6, "unreadable": 0, "files": 2}
    after = texts(outcomes)
    assert "ann" not in "".join(after.values())
    for day, text in before.items():
        kept = [line for line in text.splitlines() if '"bo"' in line]
        assert after[day].splitlines() == kept
    # Nowhere under the folder is a copy left, and nobody else may read what was nobody else's.
    found = [path.read_text() for path in outcomes.folder.iterdir()]
    assert not any("words of ann" in text for text in found)
    assert {path.stat().st_mode & 0o777 for path in outcomes.list_files()} == {0o600}
    assert remove_lines(outcomes, DeletionSubject(token="ann"))["deleted"] == 0
    remove_lines(outcomes, DeletionSubject(token="bo"))
    assert os.listdir(outcomes.folder) == []


@cases(
    "subject, deleted",
    (DeletionSubject(client="editor 1"), 4),
    (DeletionSubject(query="BO "), 6),
    (DeletionSubject(before=date(2026, 11, 21)), 6),
    (DeletionSubject(token="ann", client="editor 1", before=date(2026, 11, 21)), 1),
    (DeletionSubject(token="an"), 0),
)
def test_all_that_is_named_must_hold(outcomes, subject, deleted):
    assert remove_lines(outcomes, subject)["deleted"] == deleted
    assert sum(row["lines"] for row in count_lines(outcomes)) == 12 - deleted


def test_a_copy_that_a_killed_deletion_left_goes_with_the_next_and_with_its_day(outcomes):
    for path in outcomes.list_files():
        path.with_name(f".{path.name}.123.abcd").write_text(path.read_text())
    remove_lines(outcomes, DeletionSubject(token="ann", before=date(2026, 11, 21)))
    assert outcomes.delete_before(date(2026, 11, 21)) == 1
    folder = outcomes.folder
    left = [path.read_text() for path in folder.iterdir() if "2026-11-20" in path.name]
    assert "words of ann" not in "".join(left)
    remove_lines(outcomes, DeletionSubject(client="nobody"))
    assert [path.name for path in outcomes.folder.iterdir()] == ["2026-11-21.jsonl"]


def test_what_is_written_meanwhile_is_not_lost(tmp_path):
    outcomes = CallLog(tmp_path)
    outcomes.record({"token": "ann", "status": "ok"})

    def write(name: str) -> None:
        for _ in range(100):
            CallLog(tmp_path).record({"token": name, "status": "ok"})

    writers = [threading.Thread(target=write, args=(name,)) for name in ("ann", "bo", "cy")]
    for one in writers:
        one.start()
    rounds = 0
    while any(writer.is_alive() for writer in writers) and rounds < 10_000:
        remove_lines(outcomes, DeletionSubject(token="ann"))
        rounds += 1
    for one in writers:
        one.join()
    assert rounds
    remove_lines(outcomes, DeletionSubject(token="ann"))
    assert {row["token"]: row["lines"] for row in count_lines(outcomes)} == {"bo": 100, "cy": 100}


def test_lines_are_counted_by_token_and_deleted_by_name_with_what_a_kill_left(outcomes):
    ann, bo = count_lines(outcomes)
    days = {"first": "2026-11-20", "last": "2026-11-21"}
    assert ann == {"token": "ann", "lines": 6, "searches": 6, "queries": 6, **days}
    assert bo["token"] == "bo"
    with pytest.raises(log.NoSubject, match="expected a token"):
        DeletionSubject()
    with pytest.raises(log.NoSubject):
        DeletionSubject(token="")
    assert sum(row["lines"] for row in count_lines(outcomes)) == 12
    path = outcomes.list_files()[0]
    with path.open("a") as file:
        file.write('{"at": 1.0, "token": "ann", "words": "words of an')
    told = remove_lines(outcomes, DeletionSubject(token="ann"))
    assert (told["deleted"], told["unreadable"]) == (6, 1)
    assert "words of an" not in "".join(texts(outcomes).values())
