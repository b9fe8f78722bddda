"""Agreement of verdicts with labels: against figures worked out elsewhere, and bounds."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assets.synthesis.judging.trials import measure_agreement


def test_kappa_of_the_textbook_table() -> None:
    """20 yes-yes, 5 yes-no, 10 no-yes, 15 no-no: kappa 0.4, standard error 0.1268."""
    pairs = [(True, True)] * 20 + [(True, False)] * 5
    pairs += [(False, True)] * 10 + [(False, False)] * 15
    found = measure_agreement(pairs)
    assert found.kappa == pytest.approx(0.4)
    assert found.kappa_low == pytest.approx(0.4 - 1.96 * 0.1268, abs=2e-3)
    assert (found.accuracy.hits, found.accuracy.n) == (35, 50)
    assert (found.catch.hits, found.catch.n) == (15, 25)
    assert (found.false_alarms.hits, found.false_alarms.n) == (5, 25)


def test_kappa_is_not_defined_where_everything_is_the_same() -> None:
    for pairs in ([], [(True, True)] * 5, [(False, False)] * 5):
        found = measure_agreement(pairs)
        assert (found.kappa, found.kappa_low) == (None, None)
    assert measure_agreement([]).accuracy.value is None


@given(st.lists(st.tuples(st.booleans(), st.booleans()), max_size=60))
def test_agreement_is_bounded_and_counts_every_row(pairs: list[tuple[bool, bool]]) -> None:
    found = measure_agreement(pairs)
    assert found.n == len(pairs) == found.catch.n + found.false_alarms.n
    if found.kappa is not None:
        assert found.kappa_low is not None
        assert found.kappa_high is not None
        assert -1 <= found.kappa_low <= found.kappa <= found.kappa_high <= 1
    same = measure_agreement([(good, good) for good, _ in pairs])
    assert same.kappa in (None, 1.0)
