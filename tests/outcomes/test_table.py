"""What executions say of a pair, and which pairs are kept by it."""

import json
from typing import Any

import pytest

from assets.outcomes.table import (
    ANY,
    EXECUTIONS,
    PROVED,
    VALID,
    PairEvidence,
    group_by_pair,
    may_keep,
    read_tried,
)
from warehouse.store import Warehouse

Row = dict[str, Any]


def row(pair: str, outcome: str = "useful", proof: str | None = None, **facts: Any) -> Row:
    empty = dict.fromkeys(EXECUTIONS.columns)
    names = {"pair_ids": json.dumps([pair])}
    return {**empty, **names, "outcome": outcome, "proof": proof, **facts}


def tried(*rows: Row) -> PairEvidence:
    [result] = group_by_pair(rows).values()
    return result


def test_a_pair_is_what_all_of_its_calls_are() -> None:
    assert tried(row("a"), row("a")).useful
    assert not tried(row("a"), row("a", "empty")).useful
    assert tried(row("a", proof="proved"), row("a", proof="proved")).proof == "proved"
    assert tried(row("a", proof="proved"), row("a", proof="refuted")).proof == "refuted"
    assert tried(row("a", proof="proved"), row("a")).proof == "unproved"


def test_the_fault_of_others_makes_no_pair_invalid() -> None:
    for blame, invalid in (("caller", True), ("tool", True), ("server", True), ("policy", False),
                           ("credentials", False), ("upstream", False), ("us", False)):  # fmt: skip
        assert tried(row("a", "tool_error", blame=blame)).invalid is invalid
    assert not tried(row("a", "empty")).invalid


def test_a_call_that_was_not_sent_is_no_execution() -> None:
    assert group_by_pair([row("a", "refused", status="failed", blame="credentials")]) == {}
    assert group_by_pair([{**row("a"), "outcome": None, "status": "failed"}]) == {}
    assert tried(row("a", "refused", status="ok", blame="tool")).invalid  # it gave orders


def test_what_kept_a_call_from_being_sent_in_passing_is_no_execution() -> None:
    for kind in ("timeout_start", "remote_down", "internal"):
        passing = row("a", "timeout", status="failed", blame="server", error_kind=kind)
        assert group_by_pair([passing]) == {}
    assert tried(row("a", "timeout", blame="tool", error_kind="timeout_call")).invalid


def test_a_call_of_two_marketplaces_counts_for_the_pairs_of_both(tmp_path) -> None:
    tables = Warehouse(home=tmp_path, state=tmp_path / "state").tables
    for market, pair in (("one", "a"), ("two", "b")):
        built = row(pair, proof="proved", execution_id="e1:0", marketplace=market)
        tables.promote(tables.stage(EXECUTIONS, EXECUTIONS.frame([built]), market), "run", [])
    assert {name: item.proof for name, item in read_tried(tables).items()} == {
        "a": "proved",
        "b": "proved",
    }


def test_what_a_look_alike_did_says_nothing_of_the_pair() -> None:
    assert group_by_pair([row("a", "tool_error", blame="tool", twin_of="npm:b::do")]) == {}


@pytest.mark.parametrize(
    ("result", "stored"),
    [
        (None, {ANY, VALID}),
        (PairEvidence(True, False, "proved"), {ANY, VALID, PROVED}),
        (PairEvidence(True, False, "unproved"), {ANY, VALID}),
        (PairEvidence(False, True, "refuted"), {ANY}),
    ],
)
def test_a_rule_keeps_what_it_names(result: PairEvidence | None, stored: set[str]) -> None:
    assert {rule for rule in (ANY, VALID, PROVED) if may_keep(result, rule)} == stored
