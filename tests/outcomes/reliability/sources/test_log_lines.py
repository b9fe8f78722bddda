"""Lines of a log that is cut short, or that somebody wrote by hand, cost no other line."""

import json
from pathlib import Path

import pytest

from assets.outcomes.reliability.sources.log_lines import read_lines
from tests.outcomes.reliability.observing import call, write_log

BAD = [
    '{"at": 2, "id": "b", "sta',
    "null",
    "[1]",
    '"x"',
    "",
    "{" * 3000,
    '{"at": "noon", "status": "ok"}',
    '{"at": 1e999, "status": "ok"}',
    '{"at": 3}',
]


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_line_costs_no_other(tmp_path: Path, bad: str) -> None:
    write_log(tmp_path, [call("1"), bad, call("2")])
    assert read_lines(tmp_path)["call_id"].to_list() == ["1", "2"]


def test_values_of_another_kind_are_none(tmp_path: Path) -> None:
    odd = {"rank": "first", "seconds": 10**400, "client": ["a"], "words": "\ud800"}
    write_log(tmp_path, [call("1", **odd), "null"])
    [row] = read_lines(tmp_path).to_dicts()
    assert (row["rank"], row["client"], row["words"]) == (None, None, "?")
    assert row["seconds"] == 1e300


def test_a_line_that_is_being_written_is_left_for_the_next_time(tmp_path: Path) -> None:
    write_log(tmp_path, [call("1")])
    path = tmp_path / "outcomes" / "2026-03-01.jsonl"
    path.write_text(path.read_text() + json.dumps(call("2")))
    assert read_lines(tmp_path)["call_id"].to_list() == ["1"]
