"""Deleting from the log by subject: all of it, nothing else, and never half of a file."""

import json
import os
import threading
from datetime import date
from pathlib import Path

import pytest

from assets.servers.calls.log import (
    CallLog,
    DeletionSubject,
    NoSubject,
    count_lines,
    query_digest,
    remove_lines,
)
from warehouse.storage import files


@pytest.fixture
def outcomes(tmp_path: Path) -> CallLog:
    """Two days of two tokens."""
    made = CallLog(tmp_path)
    made.folder.mkdir()
    for day in ("2026-11-20", "2026-11-21"):
        lines = [
            {"at": 1.0, "id": f"{day}{token}{n}", "token": token, "status": "searched",
             "client": f"editor {n}", "words": f"words of {token}", "query": query_digest(token)}
            for n in range(3)
            for token in ("ann", "bo")
        ]  # fmt: skip
        path = made.folder / f"{day}.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        path.chmod(0o600)
    return made


def texts(outcomes: CallLog) -> dict[str, str]:
    return {path.stem: path.read_text() for path in outcomes.list_files()}


def test_a_subject_goes_from_the_middle_of_every_file_and_the_rest_stays_as_it_was(
    outcomes: CallLog,
) -> None:
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


@pytest.mark.parametrize(
    ("subject", "deleted"),
    [
        (DeletionSubject(client="editor 1"), 4),
        (DeletionSubject(query="BO "), 6),
        (DeletionSubject(before=date(2026, 11, 21)), 6),
        (DeletionSubject(token="ann", client="editor 1", before=date(2026, 11, 21)), 1),
        (DeletionSubject(token="an"), 0),
    ],
)
def test_all_that_is_named_must_hold(
    outcomes: CallLog, subject: DeletionSubject, deleted: int
) -> None:
    assert remove_lines(outcomes, subject)["deleted"] == deleted
    assert sum(row["lines"] for row in count_lines(outcomes)) == 12 - deleted


def test_what_a_kill_left_of_a_line_goes_too(outcomes: CallLog) -> None:
    path = outcomes.list_files()[0]
    with path.open("a") as file:
        file.write('{"at": 1.0, "token": "ann", "words": "words of an')
    told = remove_lines(outcomes, DeletionSubject(token="ann"))
    assert (told["deleted"], told["unreadable"]) == (6, 1)
    assert "words of an" not in "".join(texts(outcomes).values())


def test_nothing_named_deletes_nothing(outcomes: CallLog) -> None:
    with pytest.raises(NoSubject, match="expected a token"):
        DeletionSubject()
    with pytest.raises(NoSubject):
        DeletionSubject(token="")
    assert sum(row["lines"] for row in count_lines(outcomes)) == 12


def test_a_full_disk_or_a_kill_leaves_a_file_as_it_was(
    outcomes: CallLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = texts(outcomes)

    def fail(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", fail)
    with pytest.raises(OSError, match="No space"):
        remove_lines(outcomes, DeletionSubject(token="ann"))
    assert texts(outcomes) == before
    assert len(os.listdir(outcomes.folder)) == 2


def test_a_copy_that_a_killed_deletion_left_goes_with_the_next_and_with_its_day(
    outcomes: CallLog,
) -> None:
    for path in outcomes.list_files():
        path.with_name(f".{path.name}.123.abcd").write_text(path.read_text())
    remove_lines(outcomes, DeletionSubject(token="ann", before=date(2026, 11, 21)))
    assert outcomes.delete_before(date(2026, 11, 21)) == 1
    assert "words of ann" not in "".join(
        path.read_text() for path in outcomes.folder.iterdir() if "2026-11-20" in path.name
    )
    remove_lines(outcomes, DeletionSubject(client="nobody"))
    assert [path.name for path in outcomes.folder.iterdir()] == ["2026-11-21.jsonl"]


def test_what_is_written_meanwhile_is_not_lost(tmp_path: Path) -> None:
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


def test_what_is_remembered_is_counted_by_token(outcomes: CallLog) -> None:
    (ann, bo) = count_lines(outcomes)
    assert ann == {
        "token": "ann",
        "lines": 6,
        "searches": 6,
        "queries": 6,
        "first": "2026-11-20",
        "last": "2026-11-21",
    }
    assert bo["token"] == "bo"
