"""What is written of each call, and what never is."""

import base64
import json
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assets.servers.calls.log import (
    BadOutcome,
    CallLog,
    clean_words,
    pack_vector,
    query_digest,
)


def test_a_line_says_which_tool_and_how_it_ended(tmp_path: Path) -> None:
    outcomes = CallLog(tmp_path)
    line = outcomes.record(
        {"token": "alice", "tool_id": "npm:a::b", "status": "ok", "seconds": 0.12345}
    )
    today = datetime.fromtimestamp(line["at"], UTC).date()
    written = (tmp_path / "outcomes" / f"{today}.jsonl").read_text().splitlines()
    assert [json.loads(text) for text in written] == [line]
    assert line["seconds"] == 0.123
    assert list(outcomes.read()) == [line]
    assert list(outcomes.read(since=line["at"] + 1)) == []


def test_a_field_nobody_declared_is_refused_so_that_no_argument_slips_in(tmp_path: Path) -> None:
    with pytest.raises(BadOutcome, match="arguments"):
        CallLog(tmp_path).record({"status": "ok", "arguments": {"password": "x"}})
    assert list(CallLog(tmp_path).read()) == []


@pytest.mark.parametrize(
    ("facts", "named"),
    [({"status": "splendid"}, "splendid"), ({"status": "reported", "reported": "fine"}, "fine")],
)
def test_an_unknown_status_is_refused(facts: dict, named: str, tmp_path: Path) -> None:
    with pytest.raises(BadOutcome, match=named):
        CallLog(tmp_path).record(facts)


def test_a_note_is_one_short_line_whatever_it_holds(tmp_path: Path) -> None:
    outcomes = CallLog(tmp_path)
    outcomes.record({"status": "reported", "reported": "failed", "note": 'a\n{"at": 1}\n' * 200})
    (line,) = outcomes.read()
    assert len(line["note"]) == 500


def test_a_line_cut_short_is_passed_over(tmp_path: Path) -> None:
    outcomes = CallLog(tmp_path)
    outcomes.record({"status": "ok"})
    (path,) = outcomes.folder.iterdir()
    with path.open("a") as file:
        file.write('{"at": 17000000')
    outcomes.record({"status": "failed"})  # on a line of its own, not glued to the torn one
    assert [line["status"] for line in outcomes.read()] == ["ok", "failed"]


def test_writers_beside_each_other_lose_nothing(tmp_path: Path) -> None:
    def write(name: str) -> None:
        for _ in range(20):
            CallLog(tmp_path).record({"status": "ok", "token": name})

    threads = [threading.Thread(target=write, args=(f"t{i}",)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = list(CallLog(tmp_path).read())
    assert len(lines) == 80
    assert len({line["id"] for line in lines}) == 80


@given(st.text())
def test_a_query_has_one_digest_whatever_its_case_and_spacing(query: str) -> None:
    assert query_digest(query) == query_digest(f"  {query}\n\t")
    assert query_digest(query).startswith("q1:")


def test_a_search_keeps_what_it_showed_by_rank_and_within_bounds(tmp_path: Path) -> None:
    outcomes = CallLog(tmp_path)
    line = outcomes.record({"status": "searched", "words": "w" * 9000, "shown": ["a::b"] * 200})
    assert (len(line["words"]), line["shown"]) == (4000, ["a::b"] * 100)
    assert list(outcomes.read()) == [line]


def test_words_lose_their_secrets_and_a_vector_keeps_its_values() -> None:
    assert "ghp_" not in clean_words("list issues with ghp_" + "a1B2" * 9)
    packed = pack_vector(np.array([0.5, -1.0], np.float32))
    assert np.frombuffer(base64.b64decode(packed), "<f2").tolist() == [0.5, -1.0]


def test_what_is_older_than_its_days_goes_with_the_first_line_of_a_day(tmp_path: Path) -> None:
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
