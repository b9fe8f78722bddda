"""Calls made at once: the best assignment, and the verdict on each call."""

import itertools
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from assets.contracts.match.match import ERROR_KINDS, assign_rows, match_call, match_parallel
from tests.contracts.strategies import values
from tests.support.examples import examples

SCHEMAS: dict[str, Any] = {
    "t": {"type": "object", "properties": {"a": {"type": "integer", "default": 1}}},
    "mail": {"properties": {"to": {"type": "string"}, "tags": {"uniqueItems": True}}},
}


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


tables = st.integers(1, 6).flatmap(
    lambda width: st.lists(
        st.lists(st.integers(0, 9), min_size=width, max_size=width), min_size=1, max_size=6
    )
)
some_calls = st.lists(
    st.builds(
        lambda name, inputs: {"name": name, "arguments": inputs},
        st.sampled_from(["t", "mail", "other"]),
        st.dictionaries(
            st.sampled_from(["a", "to"]), st.integers(0, 2) | st.sampled_from("xy"), max_size=2
        ),
    ),
    max_size=4,
)


@given(tables)
def test_no_other_assignment_gains_more(gains):
    result = assign_rows(gains)
    used = [column for column in result if column is not None]
    assert len(used) == len(set(used)) == min(len(gains), len(gains[0]))
    wide = max(len(gains), len(gains[0]))
    padded = [[*row, *[0] * (wide - len(row))] for row in gains]
    best = max(
        sum(padded[row][column] for row, column in enumerate(order[: len(gains)]))
        for order in itertools.permutations(range(wide))
    )
    assert sum(gains[row][c] for row, c in enumerate(result) if c is not None) == best


def test_nothing_is_assigned_without_columns():
    assert assign_rows([]) == []
    assert assign_rows([[], []]) == [None, None]


def test_parallel_calls_match_in_any_order_where_a_greedy_match_would_fail():
    expected = [call("t"), call("t", a=2)]
    called = [call("t", a=2), call("t", a=1)]
    result = match_parallel(SCHEMAS, expected, called)
    assert (result.match, result.assigned) == (True, [1, 0])
    result = match_parallel(SCHEMAS, expected, called[:1])
    assert (result.match, result.assigned) == (False, [None, 0])
    assert not match_parallel(SCHEMAS, expected[:1], called).match


def test_each_call_has_its_verdict_and_the_nearest_call_beside_it():
    expected = [call("mail", to="a@b.c", tags=[1, 2]), call("mail", to="d@e.f", tags=[3])]
    called = [call("mail", to="d@e.f", tags=[4]), call("mail", to="a@b.c", tags=[2, 1])]
    result = match_parallel(SCHEMAS, expected, called)
    assert (result.match, result.error_kind, result.tool) == (False, "wrong_value", True)
    assert [(item.expected, item.called, item.match) for item in result.calls] == [
        (0, 1, True),
        (1, 0, False),
    ]
    assert result.calls[1].per_parameter == {"tags": "wrong_value", "to": "match"}
    assert (result.name_f1, result.value_f1) == (1.0, 0.75)


def test_the_best_assignment_gets_the_most_values_right():
    """Taken in order, the first expected call would leave the second with nothing right."""
    expected = [call("mail", to="x y z", tags=[1]), call("mail", to="other text", tags=[2])]
    called = [call("mail", to="other text", tags=[1]), call("mail", to="x y z", tags=[3])]
    result = match_parallel(SCHEMAS, expected, called)
    assert [(item.expected, item.called) for item in result.calls] == [(0, 1), (1, 0)]
    assert result.value_f1 == 0.5


def test_calls_too_few_too_many_and_of_another_tool_are_told():
    two = [call("t", a=2), call("mail", to="x")]
    few = match_parallel(SCHEMAS, two, [call("t", a=2)])
    assert (few.error_kind, few.calls[1].error_kind) == ("too_few_calls", "too_few_calls")
    assert few.calls[1].per_parameter == {"to": "missing"}
    assert (few.name_f1, few.tool) == (2 / 3, False)
    many = match_parallel(SCHEMAS, two, [*two, call("t", a=3)])
    assert (many.error_kind, many.calls[2].called) == ("too_many_calls", 2)
    assert many.calls[2].per_parameter == {"a": "extra"}
    other = match_parallel(SCHEMAS, two, [call("t", a=2), call("nothing", to="x")])
    assert (other.error_kind, other.calls[1].error_kind) == ("wrong_tool", "wrong_tool")
    assert (other.name_f1, other.value_f1, other.tool) == (0.5, 0.5, False)


def test_no_call_at_all_is_the_gravest_and_none_expected_is_a_match():
    assert match_parallel(SCHEMAS, [call("t")], []).error_kind == "no_call"
    assert match_parallel(SCHEMAS, [], []).match
    assert match_parallel(SCHEMAS, [], [call("t")]).error_kind == "too_many_calls"


def test_the_same_call_twice_is_no_answer_to_two_expected_ones():
    expected = [call("t", a=2), call("t", a=3)]
    result = match_parallel(SCHEMAS, expected, [call("t", a=2), call("t", a=2)])
    assert result.assigned == [0, None]
    assert result.error_kind == "wrong_value"


def test_thousands_of_calls_are_assigned():
    expected = [call("t", a=i) for i in range(1_000)]
    assert match_parallel(SCHEMAS, expected, expected[::-1]).match
    wrong = [call("t", a=-i - 1) for i in range(1_000)]
    assert match_parallel(SCHEMAS, expected, wrong).assigned.count(None) == 1_000


@examples(50)
@given(some_calls, some_calls, st.randoms())
def test_the_order_of_calls_means_nothing(expected, called, random):
    there = match_parallel(SCHEMAS, expected, called)
    random.shuffle(expected)
    random.shuffle(called)
    again = match_parallel(SCHEMAS, expected, called)
    results = [(item.match, item.error_kind, item.tool, item.name_f1) for item in (there, again)]
    assert results[0] == results[1]
    assert there.assigned.count(None) == again.assigned.count(None)


@examples(50)
@given(some_calls)
def test_calls_match_themselves(calls):
    result = match_parallel(SCHEMAS, calls, calls)
    assert result.match
    assert (result.name_f1, result.value_f1, result.tool) == (1.0, 1.0, True)


@examples(50)
@given(some_calls, some_calls)
def test_as_many_are_fulfilled_as_any_assignment_could(expected, called):
    result = match_parallel(SCHEMAS, expected, called)
    fits = [
        [match_call(SCHEMAS.get(want["name"], {}), want, have).match for have in called]
        for want in expected
    ]
    size = max(len(expected), len(called))
    best = max(
        sum(fits[row][column] for row, column in enumerate(order[: len(expected)])
            if column < len(called))
        for order in itertools.permutations(range(size))
    )  # fmt: skip
    assert len(result.assigned) - result.assigned.count(None) == best


@given(st.lists(values, max_size=3), st.lists(values | st.builds(call, st.just("t")), max_size=3))
def test_no_json_makes_it_raise(expected, called):
    result = match_parallel({"t": 7}, expected, called)  # type: ignore[dict-item]
    assert result.error_kind in (None, *ERROR_KINDS)
    assert len(result.calls) >= max(len(expected), len(called))
    assert 0 <= result.value_f1 <= 1
