"""What a tool's earlier versions count for it, by the class of each change."""

import pytest

from assets.outcomes.reliability.estimate import Evidence
from assets.outcomes.reliability.versions import (
    CARRIED,
    MOST_CARRIED,
    Change,
    carry_evidence,
    read_changes,
)

A, B, C = (("npm:x::t", f"c1:{name}") for name in "abc")


def row(old: str, new: str, cls: str, day: str = "2026-01-01", renamed: str | None = None) -> dict:
    named = {"server_id": "npm:x", "tool": "t", "from_digest": old, "to_digest": new}
    return {**named, "run_date": day, "cls": cls, "renamed_from": renamed}


@pytest.mark.parametrize("cls", CARRIED)
def test_the_graver_the_change_the_less_is_carried(cls: str) -> None:
    carried = carry_evidence(B, {A: Evidence(8, 2)}, {B: Change(A, cls)})
    assert carried.n == pytest.approx(10 * CARRIED[cls])
    assert sorted(CARRIED.values(), reverse=True) == list(CARRIED.values())


def test_a_chain_of_changes_multiplies_and_a_contract_that_came_back_ends_it() -> None:
    seen = {A: Evidence(0, 10), B: Evidence(10, 0), C: Evidence(1, 0)}
    changes = {C: Change(B, "compatible"), B: Change(A, "compatible"), A: Change(C, "wording")}
    assert carry_evidence(C, seen, changes) == Evidence(5, 2.5)


def test_however_much_was_seen_little_is_believed_of_a_new_version() -> None:
    carried = carry_evidence(B, {A: Evidence(9e5, 1e5)}, {B: Change(A, "wording")})
    assert carried.n == pytest.approx(MOST_CARRIED)
    assert carried.worked == pytest.approx(0.9 * MOST_CARRIED)


def test_changes_are_read_by_date_and_over_renames() -> None:
    rows = [
        row("c1:b", "c1:c", "breaking", "2026-02-02"),
        row("c1:a", "c1:c", "wording", "2026-01-01"),
        row("", "c1:a", "compatible"),
        row("c1:c", "", "breaking"),
        row("c1:a", "c1:b", "compatible", renamed="old"),
    ]
    assert read_changes(rows) == {
        C: Change(B, "breaking"),
        B: Change(("npm:x::old", "c1:a"), "compatible"),
    }
