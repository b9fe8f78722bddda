"""Lines of a log that is cut short, or that somebody wrote by hand, cost no other line."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from assets.outcomes.policy import ReliabilityPolicy
from assets.outcomes.reliability.observations import (
    KNOWN_CONTRACTS,
    ObservedCalls,
    read_log_lines,
    read_logged,
    weigh_observations,
)
from assets.servers.calls.log import CallLog, query_digest
from tests.outcomes.reliability.observing import (
    DAY,
    DIGEST,
    NOW,
    TOOL,
    Observation,
    call,
    list_observations,
    make_frame,
    observe,
    report,
    write_log,
)
from tests.support.cases import cases


@cases(
    "bad",
    '{"at": 2, "id": "b", "sta', "null", "[1]", '"x"', "", "{" * 3000,
    '{"at": "noon", "status": "ok"}', '{"at": 1e999, "status": "ok"}', '{"at": 3}',
)  # fmt: skip
def test_a_bad_line_costs_no_other(tmp_path, bad):
    write_log(tmp_path, [call("1"), bad, call("2")])
    assert read_log_lines(tmp_path)["call_id"].to_list() == ["1", "2"]


def test_values_of_another_kind_are_none(tmp_path):
    odd = {"rank": "first", "seconds": 10**400, "client": ["a"], "words": "\ud800"}
    write_log(tmp_path, [call("1", **odd), "null"])
    [row] = read_log_lines(tmp_path).to_dicts()
    assert (row["rank"], row["client"], row["words"]) == (None, None, "?")
    assert row["seconds"] == 1e300
    path = tmp_path / "outcomes" / "2026-03-01.jsonl"  # a line that is being written
    path.write_text(path.read_text() + json.dumps(call("2")))
    assert read_log_lines(tmp_path)["call_id"].to_list() == ["1"]


def read(place: Path, lines: list[dict[str, Any] | str]) -> list[Observation]:
    write_log(place, lines)
    return list_observations(read_logged(place).frame)


@cases(
    "line, success",
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
)
def test_only_answers_and_the_tools_own_faults_are_observed(tmp_path, line, success):
    expected = [] if success is None else [success]
    assert [item.success for item in read(tmp_path, [line])] == expected


@cases(
    "lines, success, kind",
    ([call("1"), report("1", "worked")], True, "ok"),
    ([call("1"), report("1", "failed")], False, "reported_failed"),
    ([call("1"), report("1", "wrong_tool")], False, "wrong_tool"),
    ([call("1"), report("1", "failed"), report("1", "failed")], False, "reported_failed"),
    ([call("1"), report("1", "failed"), report("1", "worked", at=NOW)], True, "ok"),
    ([report("1", "failed"), call("1")], False, "reported_failed"),
    ([call("1", "failed", blame="tool"), report("1", "worked")], False, "failed"),
    ([call("1"), report("1", "failed", token="other")], True, "ok"),
)
def test_a_report_says_of_an_answered_call_whether_it_worked(tmp_path, lines, success, kind):
    observed = [item for item in read(tmp_path, lines) if item.source == "token:ci"]
    assert [(item.success, item.kind) for item in observed] == [(success, kind)]
    assert observed[0].weight == 1


def test_contradicting_and_repeated_reports_are_told(tmp_path):
    lines: list[dict[str, Any] | str] = [call("1"), call("2")]
    spoken = [report("1", "worked"), report("1", "failed", at=NOW), *[report("2", "worked")] * 3]
    read(tmp_path, [*lines, *spoken])
    left_out = read_logged(tmp_path).left_out
    assert (left_out["contradicting reports"], left_out["repeated reports"]) == (1, 2)
    # A report of a call that was the caller's fault says nothing of the tool.
    theirs = [call("1", "tool_error", blame="caller"), report("1", "failed")]
    assert read(tmp_path, [*theirs]) == []
    left_out = read_logged(tmp_path).left_out
    assert (left_out["reports of calls that failed"], left_out["not the tool's fault"]) == (1, 1)


def test_a_report_without_a_call_is_a_claim_that_counts_little_and_once(tmp_path):
    claims = [{**report("", "failed"), "id": f"r{i}", "call_id": None} for i in range(50)]
    unseen = report("gone", "failed", id="u", query="q1:other")
    result = read(tmp_path, [*claims, unseen])
    assert [(item.success, item.weight) for item in result] == [(False, 0.25), (False, 0.25)]
    assert read_logged(tmp_path, claims=0.0).frame["weight"].to_list() == [0.0, 0.0]


def test_a_call_knows_the_words_of_its_search_where_they_are_kept(tmp_path):
    words, key = "read a file", query_digest("read a file")
    stored = {"token": "ci", "search_id": "s1", "query": key}
    search = {"at": NOW - 90, "id": "s", "status": "searched", "words": words, "shown": [TOOL]}
    theirs = {**search, "token": "spy", "words": "something else", "search_id": "s1"}
    result = read(tmp_path, [{**search, **stored}, theirs, call("1", rank=2, **stored), call("2")])
    facts = [(item.query, item.query_key, item.rank) for item in result]
    assert facts == [(words, key, 2), ("", "", None)]


def test_lines_as_the_server_writes_them_are_read(tmp_path):
    assert read_logged(tmp_path).frame.height == 0
    outcomes = CallLog(tmp_path)
    facts = {"token": "ci", "tool_id": TOOL, "contract_digest": "c1:x", "call_id": "9"}
    line = outcomes.record({**facts, "status": "ok", "seconds": 0.5, "client": "cli 1.0"})
    [observed] = list_observations(read_logged(tmp_path).frame)
    assert (observed.at, observed.seconds, observed.client) == (line["at"], 0.5, "cli 1.0")
    assert (observed.source, observed.call_id) == ("token:ci", "9")


FIRST = NOW - 10 * DAY
VERSIONS = pl.DataFrame([(TOOL, DIGEST, FIRST)], schema=KNOWN_CONTRACTS, orient="row")


def weigh(observations: list[Observation], **policy: Any) -> ObservedCalls:
    frame = make_frame(observations)
    return weigh_observations(frame, VERSIONS, ReliabilityPolicy(**policy), NOW)


@cases(
    "strange, why",
    ({"contract_digest": "c1:" + "f" * 64}, "of an unknown contract"),
    ({"tool_id": "npm:gone::x"}, "of an unknown contract"),
    ({"contract_digest": ""}, "of an unknown contract"),
    ({"at": NOW + 2 * DAY}, "from the future"),
)
def test_what_cannot_be_placed_counts_nothing_and_is_told(strange, why):
    result = weigh([observe(), observe(success=False, **strange)])
    assert [observation.success for observation in list_observations(result.frame)] == [True]
    assert result.left_out[why] == 1
    result = weigh([observe(at=0.0), observe()])  # one from before its contract was seen
    assert (result.frame["at"].min(), result.frame.height) == (FIRST, 2)
    assert result.left_out["from before their contract"] == 1
    result = weigh([])
    assert result.frame.height == 0
    assert not any(result.left_out.values())


def test_a_call_told_of_twice_counts_once_and_a_source_by_its_weight():
    output = observe(call_id="1", source="token:a")
    later = replace(output, at=output.at + 1, success=False)
    result = weigh([later, output, output, replace(output, source="token:b")])
    observed = {each.source: each.success for each in list_observations(result.frame)}
    assert (observed, result.frame.height) == ({"token:b": True, "token:a": False}, 2)
    assert result.left_out["told of twice"] == 2
    weights = {"token:a": 0.5, "token:b": 0.0}
    result = weigh([observe(source=source) for source in (*weights, "execution")], weights=weights)
    counted = dict(result.frame.select("source", "weight").iter_rows())
    assert counted == {"token:a": 0.5, "execution": 1.0}
    assert result.left_out["of sources without weight"] == 1


def test_a_flood_counts_as_its_daily_limit_and_claims_of_a_token_as_one_call():
    flood = [observe(success=False, source="token:flood") for _ in range(500)]
    result = weigh([*flood, observe(source="token:ada"), observe()], per_day=20)
    total = dict(result.frame.group_by("source").agg(pl.col("weight").sum()).iter_rows())
    assert total["token:flood"] == pytest.approx(20)
    assert (total["token:ada"], total["execution"]) == (1, 1)
    assert result.left_out["of a flood"] == 500
    claim = {"weight": 0.25, "claimed": True}
    lie = {"success": False, "source": "token:liar", **claim}
    claims = [observe(at=NOW - at % 9 * DAY, **lie) for at in range(80)]
    observed = [observe(source="token:liar"), observe(source="token:ada", **claim)]
    result = weigh([*claims, *observed])
    by = ["source", "claimed"]
    total = {
        tuple(key): n for *key, n in result.frame.group_by(by).agg(pl.sum("weight")).iter_rows()
    }
    assert total["token:liar", True] == pytest.approx(1)
    assert (total["token:liar", False], total["token:ada", True]) == (1, 0.25)
    assert result.left_out["of a flood"] == 80
