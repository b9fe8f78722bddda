"""Intervals that hold known values and respect groups and pairing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.evaluation.metrics import bootstrap_mean, measure_share


def test_wilson_agrees_with_published_values() -> None:
    figure = measure_share(15, 20)
    assert (figure.value, figure.low, figure.high) == (0.75, 0.5313, 0.8881)
    assert measure_share(0, 10).low == 0.0
    assert measure_share(10, 10).high == 1.0
    assert (measure_share(0, 0).low, measure_share(0, 0).high) == (0.0, 1.0)


@given(st.lists(st.tuples(st.floats(0, 1), st.sampled_from("abcde")), min_size=1, max_size=40))
def test_an_interval_holds_within_the_range_of_values(items: list[tuple[float, str]]) -> None:
    values, groups = [value for value, _ in items], [group for _, group in items]
    figure = bootstrap_mean(values, groups)
    assert min(values) - 1e-3 <= figure.low <= figure.high <= max(values) + 1e-3
    assert figure.n == len(items)


def test_items_of_one_group_are_drawn_together() -> None:
    values = [1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0] * 5
    apart = bootstrap_mean(values, [str(i) for i in range(40)])
    together = bootstrap_mean(values, [str(v) for v in values])
    assert together.high - together.low > apart.high - apart.low


def test_nothing_measured_is_n_zero() -> None:
    assert bootstrap_mean([], []).n == 0


def test_a_group_for_each_value_is_required() -> None:
    with pytest.raises(ValueError, match="1 values but 2 groups"):
        bootstrap_mean([1.0], ["a", "b"])
