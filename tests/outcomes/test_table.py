"""What executions say of a pair, and which pairs are kept by it."""

import json
from typing import Any

import pytest

from assets.outcomes.table import ANY, EXECUTIONS, PROVED, VALID, Tried, group_by_pair, may_keep

Row = dict[str, Any]


def row(pair: str, outcome: str = "useful", **facts: Any) -> Row:
    empty = dict.fromkeys(EXECUTIONS.columns)
    return {**empty, "pair_ids": json.dumps([pair]), "outcome": outcome, **facts}


def tried(*rows: Row) -> Tried:
    [found] = group_by_pair(rows).values()
    return found


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


def test_what_a_look_alike_did_says_nothing_of_the_pair() -> None:
    assert group_by_pair([row("a", "tool_error", blame="tool", twin_of="npm:b::do")]) == {}


@pytest.mark.parametrize(
    ("found", "kept"),
    [
        (None, {ANY, VALID}),
        (Tried(True, False, "proved"), {ANY, VALID, PROVED}),
        (Tried(True, False, "unproved"), {ANY, VALID}),
        (Tried(False, True, "refuted"), {ANY}),
    ],
)
def test_a_rule_keeps_what_it_names(found: Tried | None, kept: set[str]) -> None:
    assert {rule for rule in (ANY, VALID, PROVED) if may_keep(found, rule)} == kept
