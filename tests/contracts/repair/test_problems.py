"""Problems of a call say what to do; the first JSON value of a text is read without its lines."""

import json
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from assets.contracts.repair import json_text, problems
from tests.contracts.repair.test_repair import TOOL
from tests.contracts.strategies import calls, values
from tests.support.cases import cases


def one(arguments):
    (problem,) = problems.find_problems(TOOL, arguments)
    return problem


def test_a_wrong_type_names_both_types_and_a_missing_name_the_one_that_was_meant():
    assert one({"userId": "five"}) == {
        "path": "$.userId", "kind": "wrong_type", "found": 'string "five"', "expected": "integer",
        "fix": "give integer, not as text",
    }  # fmt: skip
    missing, unknown = problems.find_problems(TOOL, {"user_id": 5})
    assert missing["fix"] == "give 'userId'; 'user_id' may have been meant for it"
    assert unknown["fix"] == "call it 'userId'"


@cases(
    "arguments, path, expected, fix",
    ({}, "$.userId", "'userId': integer", "give 'userId'"),
    ({"userId": 5, "units": "K"}, "$.units", 'one of "metric", "imperial"', "give one of"),
    ({"userId": 5, "colour": 1}, "$.colour", "only ", "leave 'colour' out"),
    ({"userId": 5, "unit": 1}, "$.unit", "only ", "call it 'units'"),
    ({"userId": 5, "live": None}, "$.live", "boolean", "leave 'live' out, or give boolean"),
    ({"userId": 5, "tags": ["a", 2]}, "$.tags[1]", "string", "give string"),
    ({"userId": 5, "where": {}}, "$.where.lat", "'lat': number", "give 'lat'"),
    ([], "$", "an object of arguments", "give the arguments by name"),
    (None, "$", "an object of arguments", "give the arguments by name"),
)
def test_each_problem_has_its_place_what_was_expected_and_the_mend(arguments, path, expected, fix):
    problem = one(arguments)
    assert problem["path"] == path
    assert problem["expected"].startswith(expected)
    assert problem["fix"].startswith(fix)


def test_a_name_with_a_dot_is_one_name_and_long_values_are_cut():
    schema = {"type": "object", "properties": {"a.b": {"type": "object", "properties": {"c d": {
        "type": "integer", "minimum": 3}}}}}  # fmt: skip
    (problem,) = problems.find_problems({"inputSchema": schema}, {"a.b": {"c d": 1}})
    assert (problem["path"], problem["expected"]) == ('$["a.b"]["c d"]', "integer, at least 3")
    problem = one({"userId": "x" * 100_000})
    assert len(json.dumps(problem)) < 500


def test_what_an_output_adds_is_no_problem():
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    tool = {"outputSchema": schema}
    assert problems.find_output_problems(tool, {"n": 1, "m": 2}) == []
    assert problems.find_output_problems({}, None) == []
    assert problems.find_output_problems(tool, {"n": "1"})[0]["path"] == "structuredContent.n"
    assert problems.find_output_problems(tool, None)[0]["found"] == "nothing"


@given(st.one_of(calls().map(lambda call: call[0]), values), values)
def test_problems_are_json_whatever_was_sent(schema, arguments):
    for problem in problems.find_problems({"inputSchema": schema}, arguments):
        assert set(problem) == {"path", "kind", "found", "expected", "fix"}
        json.dumps(problem)
        assert problem["path"].startswith("$")


# --- the first JSON value of a text, whatever stands behind it
@given(values, st.text(max_size=8), st.integers(0, 40), st.integers(20, 60))
def test_a_value_longer_than_the_first_look_is_read_all_the_same(value, behind, cut, window):
    text = json.dumps(value)
    for shown in (text + behind, text[: max(0, len(text) - cut)] + behind):
        with patch.object(json_text, "_WINDOW", 1_000_000):
            whole = json_text.load_first(f"x {shown}", 1)
        with patch.object(json_text, "_WINDOW", window):
            assert json_text.load_first(f"x {shown}", 1) == whole


def test_a_broken_value_at_each_mark_is_told_without_the_text_before_it():
    text = '<tool_call>{"name": ' * 20
    with patch.object(json_text, "_DECODER", wraps=json_text._DECODER) as decoder:
        assert json_text.load_first(text * 600, text.rindex("{")) == (None, None)
    assert max(len(call.args[0]) for call in decoder.raw_decode.call_args_list) <= json_text._WINDOW
