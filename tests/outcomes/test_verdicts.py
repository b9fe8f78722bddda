"""Rules, judge and execution on the same pairs."""

import json
from typing import Any

from assets.outcomes.report import compare_verdicts, list_conflicts, render_verdicts
from assets.outcomes.table import EXECUTIONS

Row = dict[str, Any]


def pair(name: str, verdict: str = "accept", **facts: Any) -> Row:
    return {"pair_id": name, "status": "ok", "verdict": verdict, "twin_of": None, **facts}


def executed(*names: str, refused: tuple[str, ...] = (), proof: str = "", **facts: Any) -> Row:
    ids = {"pair_ids": json.dumps(names), "refused_ids": json.dumps(refused)}
    proofs = {"proofs": json.dumps(dict.fromkeys([*names, *refused], proof) if proof else {})}
    return {**dict.fromkeys(EXECUTIONS.columns), "outcome": "useful", **ids, **proofs, **facts}


def compare(pairs: list[Row], judged: dict[str, str], rows: list[Row]) -> dict[Any, Row]:
    judgements = [{"pair_id": name, "verdict": verdict} for name, verdict in judged.items()]
    result = compare_verdicts(pairs, judgements, rows)
    return {(item["rules"], item["judge"]): item for item in result}


def test_each_pair_stands_where_rules_and_judge_put_it() -> None:
    pairs = [
        pair("a"),
        pair("b", "unsure"),
        pair("c", "unsure"),
        pair("d", "reject"),
        pair("e", twin_of="a"),
        pair("f", status="failed"),
        pair("g"),  # not judged yet
    ]
    result = compare(pairs, {"a": "accept", "b": "accept", "c": "reject"}, [])
    assert {key: entry["pairs"] for key, entry in result.items()} == {
        ("accept", "accept"): 1,
        ("unsure", "accept"): 1,
        ("unsure", "reject"): 1,
        ("reject", "not asked"): 1,
    }
    assert all(item["ran"] == 0 for item in result.values())


def test_execution_contradicts_on_both_sides() -> None:
    pairs = [pair("a"), pair("b"), pair("c", "reject"), pair("d", "reject"), pair("e", "unsure")]
    rows = [
        executed("a", proof="proved"),
        executed("b", outcome="tool_error", blame="caller", proof="refuted"),
        executed(refused=("c",), proof="unproved"),
        executed(refused=("d",), outcome="tool_error", blame="caller", proof="refuted"),
        executed(refused=("e",), outcome="empty"),
    ]
    judged = {"a": "accept", "b": "accept", "e": "reject"}
    result = compare(pairs, judged, rows)
    accepted = result["accept", "accept"]
    assert (accepted["ran"], accepted["useful"], accepted["proved"], accepted["refuted"]) == (
        *(2, 1, 1, 1),
    )
    assert [(hits, n) for _, hits, n in list_conflicts(result.values())] == [(1, 2), (0, 1), (1, 2)]
    text = render_verdicts([*result.values()])
    assert "| reject | not asked | 2 | 2 | 1 | 1 | 0 | 1 |" in text
    assert "| accepted by the judge, refuted by execution | 1 | 2 | 0.500 [" in text


def test_each_pair_of_one_call_has_the_proof_of_its_own_request() -> None:
    rows = [{**executed("a", refused=("b",)), "proofs": '{"a": "refuted", "b": "proved"}'}]
    result = compare([pair("a"), pair("b", "reject")], {"a": "accept"}, rows)
    accepted, refused = result["accept", "accept"], result["reject", "not asked"]
    assert (accepted["refuted"], accepted["proved"]) == (1, 0)
    assert (refused["refuted"], refused["proved"], refused["useful"]) == (0, 1, 1)


def test_rows_from_before_refused_pairs_were_executed_are_read() -> None:
    result = compare([pair("a")], {"a": "accept"}, [{**executed("a"), "refused_ids": None}])
    assert result["accept", "accept"]["ran"] == 1
