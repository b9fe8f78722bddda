"""Estimates of reliability stay within bounds, and no token can outweigh all others."""

from hypothesis import given
from hypothesis import strategies as st

from assets.outcomes.reliability.estimate import (
    Evidence,
    Prior,
    estimate_rate,
    unite_sources,
)

counts = st.floats(0, 1e6)
shares = st.floats(0, 1)
evidence = st.builds(Evidence, counts, counts)
priors = st.builds(Prior, shares, st.floats(0.5, 100))


@given(evidence, priors)
def test_an_estimate_lies_within_its_interval_and_that_within_0_and_1(
    seen: Evidence, prior: Prior
) -> None:
    found = estimate_rate(seen, prior)
    assert 0 <= found.low <= found.mean <= found.high <= 1
    assert found.n == seen.n


@given(evidence, priors, st.floats(0.01, 100))
def test_one_more_success_never_lowers_an_estimate(
    seen: Evidence, prior: Prior, more: float
) -> None:
    before = estimate_rate(seen, prior).mean
    assert estimate_rate(seen + Evidence(more, 0), prior).mean >= before - 1e-9
    assert estimate_rate(seen + Evidence(0, more), prior).mean <= before + 1e-9


def test_nothing_seen_is_the_prior_and_much_seen_is_what_was_seen() -> None:
    prior = Prior(0.9, 4)
    assert estimate_rate(Evidence(), prior).mean == 0.9
    assert estimate_rate(Evidence(0, 4000), prior).mean < 0.001
    wide, narrow = estimate_rate(Evidence(), prior), estimate_rate(Evidence(900, 100), prior)
    assert narrow.high - narrow.low < wide.high - wide.low


@given(evidence, st.floats(1, 1e4))
def test_a_flood_of_one_token_is_worth_no_more_than_all_others(
    others: Evidence, alone: float
) -> None:
    flood = {"token:flood": Evidence(0, 1e9), "execution": others}
    assert unite_sources(flood, alone).failed - others.failed <= max(alone, others.n) + 1e-3


@given(st.dictionaries(st.sampled_from(["token:a", "token:b", "execution"]), evidence))
def test_sources_that_are_few_calls_count_whole(held: dict[str, Evidence]) -> None:
    most = sum(one.n for one in held.values()) + 1
    assert abs(unite_sources(held, most).n - (most - 1)) <= 1e-6 * most
