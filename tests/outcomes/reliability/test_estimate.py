"""Estimates of reliability stay within bounds, and no token can outweigh all others."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assets.outcomes.reliability.estimate import (
    CARRIED,
    MOST_CARRIED,
    CallEvidence,
    RatePrior,
    VersionChange,
    build_priors,
    carry_evidence,
    estimate_rate,
    read_changes,
    unite_sources,
)

counts = st.floats(0, 1e6)
shares = st.floats(0, 1)
evidence = st.builds(CallEvidence, counts, counts)
priors = st.builds(RatePrior, shares, st.floats(0.5, 100))


@given(evidence, priors)
def test_an_estimate_lies_within_its_interval_and_that_within_0_and_1(
    observed: CallEvidence, prior: RatePrior
) -> None:
    result = estimate_rate(observed, prior)
    assert 0 <= result.low <= result.mean <= result.high <= 1
    assert result.n == observed.n


@given(evidence, priors, st.floats(0.01, 100))
def test_one_more_success_never_lowers_an_estimate(
    observed: CallEvidence, prior: RatePrior, more: float
) -> None:
    before = estimate_rate(observed, prior).mean
    assert estimate_rate(observed + CallEvidence(more, 0), prior).mean >= before - 1e-9
    assert estimate_rate(observed + CallEvidence(0, more), prior).mean <= before + 1e-9


def test_nothing_seen_is_the_prior_and_much_seen_is_what_was_seen() -> None:
    prior = RatePrior(0.9, 4)
    assert estimate_rate(CallEvidence(), prior).mean == 0.9
    assert estimate_rate(CallEvidence(0, 4000), prior).mean < 0.001
    wide, narrow = (
        estimate_rate(CallEvidence(), prior),
        estimate_rate(CallEvidence(900, 100), prior),
    )
    assert narrow.high - narrow.low < wide.high - wide.low


@given(evidence, st.floats(1, 1e4))
def test_a_flood_of_one_token_is_worth_no_more_than_all_others(
    others: CallEvidence, alone: float
) -> None:
    flood = {"token:flood": CallEvidence(0, 1e9), "execution": others}
    assert unite_sources(flood, alone).failed - others.failed <= max(alone, others.n) + 1e-3


@given(st.dictionaries(st.sampled_from(["token:a", "token:b", "execution"]), evidence))
def test_sources_that_are_few_calls_count_whole(stored: dict[str, CallEvidence]) -> None:
    most = sum(item.n for item in stored.values()) + 1
    assert abs(unite_sources(stored, most).n - (most - 1)) <= 1e-6 * most


def test_nothing_seen_is_a_half_for_all() -> None:
    priors, overall = build_priors({"a::x": "a", "b::y": "b"}, {})
    assert overall == 0.5
    assert [item.mean for item in priors.values()] == pytest.approx([0.5, 0.5])
    assert build_priors({}, {}) == ({}, 0.5)


def test_a_new_tool_is_expected_to_work_as_its_server_does() -> None:
    servers = {f"{server}::{tool}": server for server in ("good", "bad") for tool in ("x", "new")}
    observed = {"good::x": CallEvidence(20, 0), "bad::x": CallEvidence(0, 20)}
    priors, overall = build_priors(servers, observed)
    assert priors["good::new"].mean == pytest.approx((20 + 5 * overall) / 25)
    assert priors["bad::new"].mean < 0.2


def test_a_tools_own_calls_are_no_part_of_its_prior_but_through_all_tools() -> None:
    servers = {"a::x": "a", **{f"s{i}::y": f"s{i}" for i in range(40)}}
    observed = {tool: CallEvidence(10, 0) for tool in servers}
    alone, _ = build_priors(servers, {**observed, "a::x": CallEvidence(0, 20)})
    assert alone["a::x"].mean > 0.9


A, B, C = (("npm:x::t", f"c1:{name}") for name in "abc")


def row(old: str, new: str, cls: str, day: str = "2026-01-01", renamed: str | None = None) -> dict:
    names = {"server_id": "npm:x", "tool": "t", "from_digest": old, "to_digest": new}
    return {**names, "run_date": day, "cls": cls, "renamed_from": renamed}


@pytest.mark.parametrize("cls", CARRIED)
def test_the_graver_the_change_the_less_is_carried(cls: str) -> None:
    carried = carry_evidence(B, {A: CallEvidence(8, 2)}, {B: VersionChange(A, cls)})
    assert carried.n == pytest.approx(10 * CARRIED[cls])
    assert sorted(CARRIED.values(), reverse=True) == list(CARRIED.values())


def test_a_chain_of_changes_multiplies_and_a_contract_that_came_back_ends_it() -> None:
    observed = {A: CallEvidence(0, 10), B: CallEvidence(10, 0), C: CallEvidence(1, 0)}
    changes = {
        C: VersionChange(B, "compatible"),
        B: VersionChange(A, "compatible"),
        A: VersionChange(C, "wording"),
    }
    assert carry_evidence(C, observed, changes) == CallEvidence(5, 2.5)


def test_however_much_was_seen_little_is_believed_of_a_new_version() -> None:
    carried = carry_evidence(B, {A: CallEvidence(9e5, 1e5)}, {B: VersionChange(A, "wording")})
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
        C: VersionChange(B, "breaking"),
        B: VersionChange(("npm:x::old", "c1:a"), "compatible"),
    }
