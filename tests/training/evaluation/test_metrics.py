"""Intervals that hold known values and respect groups and pairing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.evaluation.metrics import bootstrap, paired, share


def test_wilson_agrees_with_published_values() -> None:
    figure = share(15, 20)
    assert (figure.value, figure.low, figure.high) == (0.75, 0.5313, 0.8881)
    assert share(0, 10).low == 0.0
    assert share(10, 10).high == 1.0
    assert (share(0, 0).low, share(0, 0).high) == (0.0, 1.0)


@given(st.lists(st.tuples(st.floats(0, 1), st.sampled_from("abcde")), min_size=1, max_size=40))
def test_an_interval_holds_within_the_range_of_values(items: list[tuple[float, str]]) -> None:
    values, groups = [value for value, _ in items], [group for _, group in items]
    figure = bootstrap(values, groups)
    assert min(values) - 1e-3 <= figure.low <= figure.high <= max(values) + 1e-3
    assert figure.n == len(items)


def test_items_of_one_group_are_drawn_together() -> None:
    values = [1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0] * 5
    apart = bootstrap(values, [str(i) for i in range(40)])
    together = bootstrap(values, [str(v) for v in values])
    assert together.high - together.low > apart.high - apart.low


def test_a_constant_gain_has_no_width() -> None:
    gain = paired([1.0, 1.0, 1.0], [0.0, 0.0, 0.0], ["a", "b", "c"])
    assert (gain.value, gain.low, gain.high, gain.n) == (1.0, 1.0, 1.0, 3)


def test_the_same_items_give_the_same_interval() -> None:
    values, groups = [0.0, 1.0, 1.0, 0.0], ["a", "b", "c", "d"]
    assert bootstrap(values, groups) == bootstrap(values, groups)


def test_nothing_measured_is_n_zero() -> None:
    assert bootstrap([], []).n == 0


def test_a_group_for_each_value_is_required() -> None:
    with pytest.raises(ValueError, match="1 values but 2 groups"):
        bootstrap([1.0], ["a", "b"])
