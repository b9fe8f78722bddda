"""BFCL's verdicts, as a table of our own: what it lets pass, what it refuses, where it raises."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assets.contracts.match.match import ERROR_KINDS, match_call
from extensions.bench.bfcl_command import match_bfcl
from tests.contracts.strategies import values
from tests.support.examples import examples


def verdict(word: Any, allowed: Any, *given: Any, **more: Any) -> Any:
    """(match, BFCL's word or the exception) of f(a=given), or of f() where nothing is given."""
    about = {"type": word, **more}
    doc = {"name": "f", "parameters": {"properties": {"a": about}, "required": []}}
    calls = [{"name": "f", "arguments": {"a": given[0]} if given else {}}]
    result = match_bfcl([doc], [{"f": {"a": allowed}}], calls)
    return (
        result.match or (result.checker_error or "").partition(": ")[0].rpartition(":")[2] or result
    )


INTEGERS, FLOATS = {"items": {"type": "integer"}}, {"items": {"type": "float"}}
DICTS = {"items": {"type": "dict"}}


TABLE: list[tuple[Any, Any, Any, dict[str, Any], Any]] = [
    ("string", ["/etc/passwd"], "etcpasswd", {}, True),
    ("string", ["-5"], "5", {}, True),
    ("string", ["1.5"], "15", {}, True),
    ("string", ["April 1, 2024"], "april 1 2024", {}, True),
    ("string", ["it's"], 'it"s', {}, True),
    ("string", ["a;b"], "ab", {}, "string"),
    ("string", ["x"], 5, {}, "simple"),
    ("string", [5], 5, {}, True),
    ("integer", [5], 5, {}, True),
    ("integer", [5], 5.0, {}, "simple"),
    ("integer", [1], True, {}, "simple"),
    ("float", [5.0], 5, {}, True),
    ("float", [5], 5, {}, True),
    ("float", [5.5], 5, {}, "others"),
    ("float", [5.0], 10**400, {}, "OverflowError"),
    ("integer", ["n"], "n", {}, True),
    ("integer", ["n"], "N", {}, "others"),
    ("boolean", [True], 1, {}, "simple"),
    ("any", ["x"], "X", {}, True),
    ("array", [[1, 2]], [1, 2], INTEGERS, True),
    ("array", [[1, 2]], [2, 1], INTEGERS, "list/tuple"),
    ("array", [[1.0, 2.0]], [1, 2.0], FLOATS, "nested"),
    ("tuple", [[1.0]], [1.0], FLOATS, True),
    ("array", [["a b"]], ["A_B"], {"items": {"type": "string"}}, True),
    ("array", [[1], ""], [1], {}, "KeyError"),
    ("array", [[{"k": ["V", ""]}]], [{"k": "v"}], DICTS, True),
    ("array", [[{"k": ["v"]}]], [{"k": "v"}, {"k": "v"}], DICTS, "list_dict_count"),
    ("dict", [{"k": ["V"], "o": ["x", ""]}], {"k": "v"}, {}, True),
    ("dict", [{"k": ["v"]}], {"k": "w"}, {}, "dict_value"),
    ("dict", [{"k": ["v"]}], {}, {}, "dict_key"),
    ("dict", [{"k": ["v"]}], {"k": "v", "z": 1}, {}, "dict_key"),
    ("dict", [{"k": {"z": 1}}], {"k": {"z": 1}}, {}, "KeyError"),
    ("dict", [{"k": 1}], {"k": 1}, {}, "TypeError"),
    ("number", [1.5], 1.5, {}, "KeyError"),
    ("object", [{}], {}, {}, "KeyError"),
    ("null", [None], None, {}, "KeyError"),
    (["string", "null"], ["x"], "x", {}, "TypeError"),
]


@pytest.mark.parametrize(("word", "allowed", "given", "more", "wanted"), TABLE)
def test_a_value_gets_bfcls_verdict(word, allowed, given, more, wanted):
    assert verdict(word, allowed, given, **more) == wanted


def test_left_out_is_right_only_where_the_truth_lists_an_empty_text():
    assert verdict("string", ["x", ""]) is True
    assert verdict("string", ["x"]) == "missing_optional"


DOCS = [
    {"name": name, "parameters": {"properties": {"a": {"type": "integer"}}, "required": ["a"]}}
    for name in ("f", "g")
]


def made(*calls: tuple[str, Any]) -> list[dict[str, Any]]:
    return [{"name": name, "arguments": {"a": value}} for name, value in calls]


TWO = [{"f": {"a": [1, 2]}}, {"f": {"a": [1]}}]


@pytest.mark.parametrize(
    ("truth", "calls", "category", "kind"),
    [
        (TWO, made(("f", 2), ("f", 1)), None, None),
        # Greedy: the first expected call takes the only call that would fulfil the second.
        (TWO, made(("f", 1), ("f", 2)), None, "wrong_value"),
        (TWO, made(("f", 1)), None, "too_few_calls"),
        (TWO, made(("f", 1), ("f", 2), ("f", 1)), None, "too_many_calls"),
        (TWO, [], None, "no_call"),
        (TWO[:1], made(("f", 1)), None, None),
        (TWO[:1], made(("g", 1)), None, "wrong_tool"),
        (TWO[:1], [{"name": "f"}], None, "missing_parameter"),
        (TWO[:1], [{"name": "f", "arguments": {"a": 1, "b": 2}}], None, "extra_parameter"),
        (TWO[:1], [{"name": "f", "arguments": [1]}], None, "not_an_object"),
        ([{"h": {"a": [1]}}], made(("h", 1)), None, "no_function_doc"),
        ([{"g": {"a": [1]}}], made(("g", 1)), None, None),
        # What "simple" asks about is the first function, whatever the truth names.
        ([{"g": {"a": [1]}}], made(("g", 1)), "simple_python", "wrong_tool"),
        ([], [], "irrelevance", None),
        ([], made(("f", 1)), "live_irrelevance", "unwanted_call"),
        ([], [{"name": "f", "arguments": "x"}], "irrelevance", None),
        ([], made(("f", 1)), "live_relevance", None),
        ([], [], "live_relevance", "no_call"),
    ],
)
def test_calls_get_bfcls_verdict(truth, calls, category, kind):
    result = match_bfcl(DOCS, truth, calls, category=category)
    assert (result.match, result.error_kind) == (kind is None, kind)


def test_bfcl_stops_at_the_first_error_and_the_rest_is_unchecked():
    doc = {"name": "f", "parameters": {"properties": {k: {"type": "integer"} for k in "abc"}}}
    doc["parameters"]["required"] = []
    call = {"name": "f", "arguments": {"a": 1, "b": "x", "c": 3}}
    result = match_bfcl([doc], [{"f": {"a": [1], "b": [2], "c": [3]}}], [call])
    assert result.per_parameter == {"a": "match", "b": "wrong_type", "c": "unchecked"}


def test_a_real_contract_crashes_bfcl_and_not_us():
    """No `required`, and `number`: two in three real MCP tools have what the checker has not."""
    schema = {"type": "object", "properties": {"price": {"type": "number"}}}
    call = {"name": "buy", "arguments": {"price": 1.5}}
    assert match_call(schema, call, call).match
    truth = [{"buy": {"price": [1.5]}}]
    result = match_bfcl([{"name": "buy", "parameters": schema}], truth, [call])
    assert (result.error_kind, result.checker_error) == ("checker_crash", "KeyError: 'required'")
    doc = {"name": "buy", "parameters": {**schema, "required": []}}
    result = match_bfcl([doc], truth, [call])
    assert (result.error_kind, result.checker_error) == ("checker_crash", "KeyError: 'number'")


words = st.sampled_from(["string", "integer", "float", "boolean", "any", "dict", "number", None])


@examples(50)
@given(words, values, values)
def test_no_json_makes_it_raise(word, allowed, given):
    doc = {"name": "f", "parameters": {"properties": {"a": {"type": word}}, "required": []}}
    calls = [{"name": "f", "arguments": {"a": given}}]
    result = match_bfcl([doc], [{"f": {"a": allowed}}], calls)
    assert result.error_kind in (None, *ERROR_KINDS)
    assert result.match is (result.error_kind is None)


@examples(50)
@given(values, values, values)
def test_no_shape_makes_it_raise(functions, truth, calls):
    as_lists = [one if isinstance(one, list) else [one] for one in (functions, truth, calls)]
    for category in ("simple", "multiple", "parallel", "irrelevance", None):
        result = match_bfcl(*as_lists, category=category)
        assert result.match is (result.error_kind is None)


@given(st.text(max_size=40))
def test_texts_are_the_same_without_blanks_and_signs(text):
    bare = re.sub(r"[ ,./\-_*^]", "", text)
    assert verdict("string", [text], bare) is True
    assert verdict("string", [text], text + "!") == "string"
