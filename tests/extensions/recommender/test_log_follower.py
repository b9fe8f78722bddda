"""Following the log: each line once, whoever writes it, and what was deleted is told of."""

import json
from datetime import UTC, date, datetime
from pathlib import Path

import pytest

from assets.servers.calls.log import CallLog, DeletionSubject, remove_lines
from extensions.recommender.online_learner import LogFollower, LogRewritten

CALL = {"status": "ok", "tool_id": "npm:a::b"}


def read_all(follower: LogFollower) -> list[dict]:
    found = []
    while lines := follower.read_lines():
        found += lines
    return found


def test_each_line_comes_once_in_order_and_half_a_line_when_it_is_whole(tmp_path: Path) -> None:
    log = CallLog(tmp_path)
    follower = LogFollower(log, 0.0)
    assert read_all(follower) == []
    for token in ("ann", "bo"):
        log.record({**CALL, "token": token})
    assert [line["token"] for line in read_all(follower)] == ["ann", "bo"]
    [path] = log.list_files()
    with path.open("ab") as file:
        file.write(b'no line\n{"at": 1.0, "token"')
        file.flush()
        assert read_all(follower) == []
        file.write(b': "cy"}\n')
    assert [line["token"] for line in read_all(follower)] == ["cy"]


def test_days_before_the_first_are_not_opened_and_later_ones_follow(tmp_path: Path) -> None:
    log = CallLog(tmp_path)
    log.folder.mkdir()
    for day in ("2026-01-01", "2026-01-02", "2026-01-03"):
        line = json.dumps({"at": 1, "token": day})
        (log.folder / f"{day}.jsonl").write_text(line + "\n")
    since = datetime(2026, 1, 2, 12, tzinfo=UTC).timestamp()
    found = read_all(LogFollower(log, since))
    assert [line["token"] for line in found] == ["2026-01-02", "2026-01-03"]


@pytest.mark.parametrize(
    "subject", [DeletionSubject("ann"), DeletionSubject(before=date(2100, 1, 1))]
)
def test_deleted_lines_are_told_of(tmp_path: Path, subject: DeletionSubject) -> None:
    log = CallLog(tmp_path)
    for token in ("ann", "bo"):
        log.record({**CALL, "token": token})
    follower = LogFollower(log, 0.0)
    read_all(follower)
    remove_lines(log, subject)
    with pytest.raises(LogRewritten):
        follower.read_lines()


def test_a_file_without_any_line_ends_is_passed_over(tmp_path: Path) -> None:
    log = CallLog(tmp_path)
    log.folder.mkdir()
    path = log.folder / "2026-01-01.jsonl"
    path.write_bytes(b"x" * (3 << 20) + b'\n{"at": 1, "token": "ann"}\n')
    follower = LogFollower(log, 0.0)
    found = [line for _ in range(6) for line in follower.read_lines()]
    assert [line["token"] for line in found] == ["ann"]
