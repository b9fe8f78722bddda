"""BFCL's files, its verdicts as a table of our own, and files of calls."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assets.contracts.match.match import ERROR_KINDS, match_call
from extensions.bench.benchmark_models import read_rows
from extensions.bench.bfcl_files import match_bfcl, read_bfcl
from tests.contracts.strategies import values
from tests.support.cases import cases
from tests.support.examples import examples
from warehouse.errors import UnusableInput


def verdict(word: Any, allowed: Any, *given: Any, **more: Any) -> Any:
    """(match, BFCL's word or the exception) of f(a=given), or of f() where nothing is given."""
    about = {"type": word, **more}
    doc = {"name": "f", "parameters": {"properties": {"a": about}, "required": []}}
    calls = [{"name": "f", "arguments": {"a": given[0]} if given else {}}]
    result = match_bfcl([doc], [{"f": {"a": allowed}}], calls)
    word = (result.checker_error or "").partition(": ")[0].rpartition(":")[2]
    return result.match or word or result


INTEGERS, FLOATS = {"items": {"type": "integer"}}, {"items": {"type": "float"}}
DICTS = {"items": {"type": "dict"}}


@cases(
    "word, allowed, given, more, wanted",
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
)
def test_a_value_gets_bfcls_verdict(word, allowed, given, more, wanted):
    assert verdict(word, allowed, given, **more) == wanted


def test_left_out_is_right_where_an_empty_text_is_and_what_follows_an_error_is_unchecked():
    assert verdict("string", ["x", ""]) is True
    assert verdict("string", ["x"]) == "missing_optional"
    doc = {"name": "f", "parameters": {"properties": {k: {"type": "integer"} for k in "abc"}}}
    doc["parameters"]["required"] = []
    call = {"name": "f", "arguments": {"a": 1, "b": "x", "c": 3}}
    result = match_bfcl([doc], [{"f": {"a": [1], "b": [2], "c": [3]}}], [call])
    assert result.per_parameter == {"a": "match", "b": "wrong_type", "c": "unchecked"}


DOCS = [
    {"name": name, "parameters": {"properties": {"a": {"type": "integer"}}, "required": ["a"]}}
    for name in ("f", "g")
]


def made(*calls: tuple[str, Any]) -> list[dict[str, Any]]:
    return [{"name": name, "arguments": {"a": value}} for name, value in calls]


TWO = [{"f": {"a": [1, 2]}}, {"f": {"a": [1]}}]


@cases(
    "truth, calls, category, kind",
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
)
def test_calls_get_bfcls_verdict(truth, calls, category, kind):
    result = match_bfcl(DOCS, truth, calls, category=category)
    assert (result.match, result.error_kind) == (kind is None, kind)


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
    assert verdict("string", [text], re.sub(r"[ ,./\-_*^]", "", text)) is True
    assert verdict("string", [text], text + "!") == "string"


ADD = {"name": "add", "parameters": {"properties": {"a": {"type": "integer"}}, "required": ["a"]}}


def question(name: str, **more: Any) -> dict[str, Any]:
    turns = [[{"role": "user", "content": "Add five."}]]
    return {"id": name, "question": turns, "function": [ADD], **more}


def truth(name: str, value: int = 5) -> dict[str, Any]:
    return {"id": name, "ground_truth": [{"add": {"a": [value]}}]}


def write(folder: Path, name: str, rows: list[Any], truths: list[Any] | None = None) -> Path:
    places = [(folder / name, rows)]
    if truths is not None:
        places.append((folder / "possible_answer" / name, truths))
    for path, lines in places:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(x if isinstance(x, str) else json.dumps(x) for x in lines))
    return folder


def test_ast_and_relevance_categories_are_read_and_others_named(tmp_path):
    for category in ("simple_python", "live_parallel", "multiple"):
        name = f"{category}_0"
        write(tmp_path, f"BFCL_v4_{category}.json", [question(name)], [truth(name)])
    write(tmp_path, "BFCL_v4_live_irrelevance.json", [question("live_irrelevance_0-0-0")])
    for category in ("multi_turn_base", "simple_java"):
        write(tmp_path, f"BFCL_v4_{category}.json", ["not even JSON"])
    (tmp_path / "README.md").write_text("no data")
    skipped: list[str] = []
    items = {item.category: item for item in read_bfcl(tmp_path, skipped)}
    assert sorted(items) == ["live_irrelevance", "live_parallel", "multiple", "simple_python"]
    assert skipped == [
        f"BFCL_v4_{category}.json: {category} is not judged by AST match of Python calls"
        for category in ("multi_turn_base", "simple_java")
    ]
    item = items["simple_python"]
    assert item.messages == [{"role": "user", "content": "Add five."}]
    assert (item.functions, item.truth) == ([ADD], [{"add": {"a": [5]}}])
    assert items["live_irrelevance"].truth == []
    assert match_bfcl(item.functions, item.truth, [{"name": "add", "arguments": {"a": 5}}]).match


def test_older_forms_are_read_the_newest_version_taken_and_truths_go_by_id_else_by_place(tmp_path):
    for version in (4, 3):
        name = f"BFCL_v{version}_parallel.json"
        write(tmp_path, name, [question("parallel_0")], [truth("parallel_0", version)])
    skipped: list[str] = []
    (item,) = read_bfcl(tmp_path, skipped)
    assert item.truth == [{"add": {"a": [4]}}]
    assert skipped == ["BFCL_v3_parallel.json: a newer version stands beside it"]
    unknown = tmp_path / "unknown"
    write(unknown, "BFCL_v9_parallel.json", [question("parallel_0")], [truth("parallel_0")])
    with pytest.raises(UnusableInput, match=r"BFCL_v9_parallel\.json: version 9 is not read"):
        read_bfcl(unknown)
    old = question("simple_0", question="Add five.", function=ADD)
    one_truth = {"id": "simple_0", "ground_truth": {"add": {"a": [5]}}}
    write(tmp_path / "old", "BFCL_v3_simple.json", [old, ""], [one_truth])
    (item,) = read_bfcl(tmp_path / "old")
    assert (item.category, item.messages) == ("simple", [{"role": "user", "content": "Add five."}])
    assert item.truth == [{"add": {"a": [5]}}]
    rows = [question("parallel_0"), question("parallel_1")]
    write(tmp_path, "BFCL_v4_parallel.json", rows, [truth("parallel_1", 1), truth("parallel_0", 0)])
    assert [one.truth[0]["add"]["a"] for one in read_bfcl(tmp_path)] == [[0], [1]]
    write(tmp_path, "BFCL_v4_parallel.json", rows, [truth("other_0", 7), truth("other_1", 8)])
    assert [one.truth[0]["add"]["a"] for one in read_bfcl(tmp_path)] == [[7], [8]]


@cases(
    "rows, truths, message",
    ([question("a"), "{"], [truth("a")], "BFCL_v4_simple_python.json, line 2: not JSON"),
    (["[1]"], [], "line 1: list, expected a JSON object"),
    ([{"id": 7}], [truth("a")], "line 1: found no text as id; expected"),
    ([{"id": "a", "function": 7}], [truth("a")], "line 1 (a): no list of functions; expected"),
    ([question("a")], None, "no such file; each AST category needs its truth there"),
    ([question("a")], [{"id": "a"}], "line 1: found no ground_truth; expected"),
    ([question("a")], [{"id": "a", "ground_truth": [{"f": 1}]}], "found no ground_truth"),
    ([question("a"), question("b")], [truth("a")], "no truth for 'b' (1 truths, 2 questions)"),
    ([question("a"), question("a")], [truth("a")], "id 'a' stands in simple_python and"),
)
def test_a_bad_file_is_one_line_that_says_where(tmp_path, rows, truths, message):
    write(tmp_path, "BFCL_v4_simple_python.json", rows, truths)
    with pytest.raises(UnusableInput) as error:
        read_bfcl(tmp_path)
    assert message in str(error.value)
    assert str(tmp_path) in str(error.value)


def test_a_folder_that_is_none_of_bfcls_says_what_one_is(tmp_path):
    for path, found in ((tmp_path / "none", "no such folder"), (tmp_path, "no BFCL file")):
        with pytest.raises(UnusableInput, match=f"{found}.*possible_answer/.*bfcl-eval"):
            read_bfcl(path)
    (tmp_path / "data").mkdir()
    with pytest.raises(UnusableInput, match="data looks like it"):
        read_bfcl(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(UnusableInput, match=": a file;"):
        read_bfcl(tmp_path / "file")


@cases(
    "call",
    {"id": "c", "type": "function", "function": {"name": "add", "arguments": '{"a": 5}'}},
    {"type": "tool_use", "name": "add", "input": {"a": 5}},
    {"functionCall": {"name": "add", "args": {"a": 5}}},
)
def test_a_call_of_a_file_may_have_any_vendors_shape(tmp_path, call):
    path = tmp_path / "calls.jsonl"
    path.write_text(json.dumps({"id": "a", "calls": [call]}))
    assert read_rows(path) == [("a", [{"name": "add", "arguments": {"a": 5}}])]


@cases(
    "row, message",
    ("{", "calls.jsonl, line 1: not JSON"),
    ("\n", "calls.jsonl: empty; expected"),
    ({"id": "x"}, "line 1: found {'id': 'x'}; expected"),
    ({"id": 1, "calls": []}, "line 1: found {'id': 1, 'calls': []}; expected"),
    ({"id": "x", "calls": [7]}, "line 1, call 0: found 7; expected a call"),
)
def test_a_bad_row_is_one_line(tmp_path, row, message):
    path = tmp_path / "calls.jsonl"
    path.write_text(row if isinstance(row, str) else json.dumps(row))
    with pytest.raises(UnusableInput) as error:
        read_rows(path)
    assert message in str(error.value)
