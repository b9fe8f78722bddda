"""Calls and reports of the log, as observations."""

from pathlib import Path
from typing import Any

import pytest

from assets.outcomes.reliability.observation import Observation
from assets.outcomes.reliability.sources.frame import list_observations
from assets.outcomes.reliability.sources.logged_calls import read_logged
from assets.servers.calls.log import CallLog, query_digest
from tests.outcomes.reliability.observing import NOW, TOOL, call, report, write_log


def read(place: Path, lines: list[dict[str, Any] | str]) -> list[Observation]:
    write_log(place, lines)
    return list_observations(read_logged(place).frame)


@pytest.mark.parametrize(
    ("line", "success"),
    [
        (call("1"), True),
        (call("1", "tool_error", blame="tool"), False),
        (call("1", "failed", blame="server", error_kind="crashed"), False),
        (call("1", "tool_error", blame="caller"), None),
        (call("1", "failed", blame="credentials"), None),
        (call("1", "failed", blame="policy"), None),
        (call("1", "tool_error", blame="upstream"), None),
        (call("1", "failed", blame="us"), None),
        (call("1", "invalid_arguments", blame="caller"), None),
        (call("1", "declined"), None),
        (call("1", "refused"), None),
        (call("1", tool_id=None), None),
    ],
)
def test_only_answers_and_the_tools_own_faults_are_observed(
    tmp_path: Path, line: dict[str, Any], success: bool | None
) -> None:
    assert [one.success for one in read(tmp_path, [line])] == ([] if success is None else [success])


@pytest.mark.parametrize(
    ("lines", "success", "kind"),
    [
        ([call("1"), report("1", "worked")], True, "ok"),
        ([call("1"), report("1", "failed")], False, "reported_failed"),
        ([call("1"), report("1", "wrong_tool")], False, "wrong_tool"),
        ([call("1"), report("1", "failed"), report("1", "failed")], False, "reported_failed"),
        ([call("1"), report("1", "failed"), report("1", "worked", at=NOW)], True, "ok"),
        ([report("1", "failed"), call("1")], False, "reported_failed"),
        ([call("1", "failed", blame="tool"), report("1", "worked")], False, "failed"),
        ([call("1"), report("1", "failed", token="other")], True, "ok"),
    ],
)
def test_a_report_says_of_an_answered_call_whether_it_worked(
    tmp_path: Path, lines: list[dict[str, Any] | str], success: bool, kind: str
) -> None:
    seen = [one for one in read(tmp_path, lines) if one.source == "token:ci"]
    assert [(one.success, one.kind) for one in seen] == [(success, kind)]
    assert seen[0].weight == 1


def test_a_report_of_a_call_that_was_the_callers_fault_says_nothing_of_the_tool(
    tmp_path: Path,
) -> None:
    lines: list[dict[str, Any] | str] = [call("1", "tool_error", blame="caller")]
    assert read(tmp_path, [*lines, report("1", "failed")]) == []
    found = read_logged(tmp_path)
    assert found.left_out["reports of calls that failed"] == 1
    assert found.left_out["not the tool's fault"] == 1


def test_contradicting_and_repeated_reports_are_told(tmp_path: Path) -> None:
    lines: list[dict[str, Any] | str] = [call("1"), call("2")]
    said = [report("1", "worked"), report("1", "failed", at=NOW), *[report("2", "worked")] * 3]
    read(tmp_path, [*lines, *said])
    left_out = read_logged(tmp_path).left_out
    assert (left_out["contradicting reports"], left_out["repeated reports"]) == (1, 2)


def test_a_report_without_a_call_is_a_claim_that_counts_little_and_once(tmp_path: Path) -> None:
    claims = [{**report("", "failed"), "id": f"r{i}", "call_id": None} for i in range(50)]
    unseen = report("gone", "failed", id="u", query="q1:other")
    found = read(tmp_path, [*claims, unseen])
    assert [(one.success, one.weight) for one in found] == [(False, 0.25), (False, 0.25)]
    assert read_logged(tmp_path, claims=0.0).frame["weight"].to_list() == [0.0, 0.0]


def test_a_call_knows_the_words_of_its_search_where_they_are_kept(tmp_path: Path) -> None:
    words, key = "read a file", query_digest("read a file")
    kept = {"token": "ci", "search_id": "s1", "query": key}
    search = {"at": NOW - 90, "id": "s", "status": "searched", "words": words, "shown": [TOOL]}
    theirs = {**search, "token": "spy", "words": "something else", "search_id": "s1"}
    found = read(tmp_path, [{**search, **kept}, theirs, call("1", rank=2, **kept), call("2")])
    assert [(one.query, one.query_key, one.rank) for one in found] == [
        (words, key, 2),
        ("", "", None),
    ]


def test_lines_as_the_server_writes_them_are_read(tmp_path: Path) -> None:
    outcomes = CallLog(tmp_path)
    facts = {"token": "ci", "tool_id": TOOL, "contract_digest": "c1:x", "call_id": "9"}
    line = outcomes.record({**facts, "status": "ok", "seconds": 0.5, "client": "cli 1.0"})
    [seen] = list_observations(read_logged(tmp_path).frame)
    assert (seen.at, seen.seconds, seen.client) == (line["at"], 0.5, "cli 1.0")
    assert (seen.source, seen.call_id) == ("token:ci", "9")


def test_no_log_is_no_observation(tmp_path: Path) -> None:
    assert read_logged(tmp_path).frame.height == 0
