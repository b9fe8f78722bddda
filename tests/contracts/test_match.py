import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assets.contracts.match import assign, match_call, match_calls
from tests.contracts.strategies import calls

SCHEMA = {
    "type": "object",
    "properties": {
        "n": {"type": "number"},
        "count": {"type": "integer", "default": 10},
        "flag": {"type": "boolean"},
        "note": {"type": "string"},
        "file_path": {"type": "string"},
        "mode": {"enum": ["Fast", "slow"]},
        "when": {"type": "string", "format": "date-time"},
        "list": {"type": "array", "items": {"type": "integer"}},
        "set": {"type": "array", "items": {"type": "integer"}, "uniqueItems": True},
        "nested": {"type": "object", "properties": {"deep": {"type": "integer", "default": 1}}},
        "either": {"anyOf": [{"type": "null"}, {"type": "array", "uniqueItems": True}]},
        "user": {"$ref": "#/$defs/user"},
    },
    "$defs": {"user": {"type": "object", "properties": {"about": {"type": "string"}}}},
}


def _match(want, have):
    return match_call(SCHEMA, {"name": "t", "arguments": want}, {"name": "t", "arguments": have})


@pytest.mark.parametrize(
    ("want", "have"),
    [
        ({"n": 5}, {"n": 5.0}),
        ({"count": 10}, {}),
        ({}, {"count": 10}),
        ({"note": "Buy milk and bread."}, {"note": "buy  milk and bread"}),
        ({"when": "2026-01-01T12:00:00Z"}, {"when": "2026-01-01T13:00:00+01:00"}),
        ({"set": [1, 2, 3]}, {"set": [3, 1, 2]}),
        ({"either": [1, "a"]}, {"either": ["a", 1]}),
        ({"nested": {"deep": 1}}, {"nested": {}}),
        ({"user": {"about": "Likes long walks"}}, {"user": {"about": "likes long walks"}}),
        ({"either": None}, {"either": None}),
    ],
)
def test_equal_calls_match(want, have):
    assert _match(want, have).match
    assert _match(want, have).value_f1 == 1.0


@pytest.mark.parametrize(
    ("want", "have", "kind"),
    [
        ({"n": -5}, {"n": 5}, "wrong_value"),
        ({"n": 1.5}, {"n": 15}, "wrong_value"),
        ({"n": 1}, {"n": True}, "wrong_type"),
        ({"n": 5}, {"n": "5"}, "wrong_type"),
        ({"flag": True}, {"flag": 1}, "wrong_type"),
        ({"file_path": "/etc/passwd"}, {"file_path": "etcpasswd"}, "wrong_value"),
        ({"file_path": "/Data/A b"}, {"file_path": "/data/a b"}, "wrong_value"),
        ({"mode": "Fast"}, {"mode": "fast"}, "wrong_value"),
        ({"note": "at 1.5 percent"}, {"note": "at 15 percent"}, "wrong_value"),
        ({"note": "down -5 points"}, {"note": "down 5 points"}, "wrong_value"),
        ({"list": [1, 2]}, {"list": [2, 1]}, "wrong_value"),
        ({"set": [1, 1, 2]}, {"set": [1, 2, 2]}, "wrong_value"),
        ({"either": None}, {}, "missing_parameter"),
        ({"n": 1}, {}, "missing_parameter"),
        ({}, {"n": 1}, "extra_parameter"),
        ({"count": 5}, {}, "missing_parameter"),
        ({"nested": {"deep": 2}}, {"nested": {}}, "wrong_value"),
        ({"n": 1}, [1], "not_an_object"),
    ],
)
def test_different_calls_say_how(want, have, kind):
    result = _match(want, have)
    assert not result.match
    assert result.error_kind == kind


def test_another_tool_is_the_gravest_error():
    result = match_call(SCHEMA, {"name": "a", "arguments": {}}, {"name": "b", "arguments": {}})
    assert (result.error_kind, result.name_f1, result.value_f1) == ("wrong_tool", 0.0, 0.0)


def test_scores_of_a_call_that_is_half_right():
    result = _match({"n": 1, "flag": True}, {"n": 1, "note": "x"})
    assert (result.name_f1, result.value_f1) == (0.5, 0.5)


@given(calls())
def test_a_call_matches_itself(call):
    schema, arguments = call
    made = {"name": "t", "arguments": arguments}
    assert match_call(schema, made, made).match


@given(calls(), calls())
def test_matching_is_symmetric(one, other):
    schema = one[0]
    a, b = ({"name": "t", "arguments": arguments} for _, arguments in (one, other))
    assert match_call(schema, a, b).match == match_call(schema, b, a).match


@given(st.lists(st.lists(st.integers(0, 4), unique=True, max_size=5), max_size=5))
def test_the_assignment_is_a_largest_one(fits):
    found = [position for position in assign(fits, 5) if position is not None]
    assert len(found) == len(set(found))
    best = max(
        sum(p in row for p, row in zip(order, fits, strict=False))
        for order in itertools.permutations(range(5))
    )
    assert len(found) == best


def test_parallel_calls_match_in_any_order_where_a_greedy_match_would_fail():
    schemas = {"t": {"type": "object", "properties": {"a": {"type": "integer", "default": 1}}}}
    expected = [{"name": "t", "arguments": {}}, {"name": "t", "arguments": {"a": 2}}]
    called = [{"name": "t", "arguments": {"a": 2}}, {"name": "t", "arguments": {"a": 1}}]
    assert match_calls(schemas, expected, called) == (True, [1, 0])
    assert match_calls(schemas, expected, called[:1]) == (False, [None, 0])
    assert not match_calls(schemas, expected[:1], called)[0]
