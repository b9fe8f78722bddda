"""Explored searches, read back from the log of calls."""

from pathlib import Path
from typing import Any

import pytest

from assets.servers.calls.log import Outcomes
from extensions.recommender.policy_value.decisions import read_decisions


def make_search(search_id: str, **more: Any) -> dict[str, Any]:
    shown = {"shown": ["s::b", "s::a"], "candidates": ["s::a", "s::b"], "propensity": 0.25}
    return {
        "status": "searched",
        "search_id": search_id,
        "query": f"q1:{search_id}",
        **shown,
        **more,
    }


def call(search_id: str, status: str, call_id: str = "c1", **more: Any) -> dict[str, Any]:
    return {"status": status, "search_id": search_id, "call_id": call_id, "tool_id": "s::b", **more}


@pytest.mark.parametrize(
    ("calls", "reward"),
    [
        ([], 0.0),
        ([call("1", "ok")], 1.0),
        ([call("1", "tool_error")], 0.0),
        ([call("1", "tool_error"), call("1", "ok", "c2")], 1.0),
        ([call("1", "ok"), call("1", "reported", reported="wrong_tool")], 0.0),
        ([call("1", "failed"), call("1", "reported", reported="worked")], 1.0),
        ([call("2", "ok")], 0.0),
    ],
)
def test_a_report_replaces_what_its_call_said(
    tmp_path: Path, calls: list[dict[str, Any]], reward: float
) -> None:
    log = Outcomes(tmp_path)
    for facts in (make_search("1"), *calls):
        log.record(facts)
    (decision,) = read_decisions(log.read())
    assert (decision.candidates, decision.chosen) == (("s::a", "s::b"), 1)
    assert (decision.propensity, decision.reward) == (0.25, reward)


@pytest.mark.parametrize(
    "more",
    [
        {"propensity": None},
        {"propensity": 0},
        {"propensity": "high"},
        {"propensity": float("nan")},
        {"candidates": None},
        {"candidates": ["s::c"]},
        {"shown": []},
        {"shown": "s::b"},
        {"search_id": 7},
    ],
)
def test_what_was_not_explored_or_is_not_whole_is_no_decision(more: dict[str, Any]) -> None:
    lines = [{"at": 1.0, **make_search("1"), **more}, {"at": 1.0, **make_search("2")}]
    assert [decision.search_id for decision in read_decisions(lines)] == ["2"]
