"""Whatever a model writes is an outcome: calls, none, a broken one, or prose."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.prompts.call_text import MAX_CALLS, normalise_call, parse_calls
from training.prompts.render import NO_CALL

ONE = {"name": "find_file", "arguments": {"title": "a", "count": 2}}
TEXT = json.dumps(ONE)


@pytest.mark.parametrize(
    "text",
    [
        TEXT,
        f"Sure, here it is:\n```json\n{TEXT}\n```\nAnything else?",
        f"<tool_call>\n{TEXT}\n</tool_call>",
        json.dumps([ONE]),
        json.dumps({"name": "find_file", "parameters": ONE["arguments"]}),
        json.dumps({"name": "find_file", "arguments": json.dumps(ONE["arguments"])}),
        json.dumps({"type": "function", "function": ONE}),
        json.dumps({"tool_calls": [{"id": "1", "function": ONE}]}),
        f"<think>I could call {json.dumps({'name': 'x', 'arguments': {}})}</think>{TEXT}",
        f'a thought that the prompt had opened: {{"name": "x", "arguments": {{}}}}</think>\n{TEXT}',
        f"I use {{tool}}: {TEXT}",
        f"<|python_tag|>{TEXT}",
    ],
)
def test_a_call_is_read_in_every_form_that_models_write(text: str) -> None:
    assert parse_calls(text).calls == [ONE]


def test_several_calls_are_read_in_order() -> None:
    other = {"name": "drop_file", "arguments": {}}
    blocks = f"<tool_call>{TEXT}</tool_call>\n<tool_call>{json.dumps(other)}</tool_call>"
    for text in (blocks, json.dumps([ONE, other]), f"{TEXT}; {json.dumps(other)}"):
        assert parse_calls(text).calls == [ONE, other]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("", "no_call"),
        ("  \n", "no_call"),
        (NO_CALL, "no_call"),
        ("[]", "no_call"),
        ('{"tool_calls": []}', "no_call"),
        ("I cannot do that, sorry.", "prose"),
        ("The set {1, 2} has two members.", "prose"),
        (f"<think>{TEXT}</think> No tool is needed.", "prose"),
        (f"<think>I will call {TEXT}", "invalid_json"),
        ('{"name": "find_file", "arguments": {"title": ', "invalid_json"),
        ('<tool_call>{"name": "find_file", arguments: {}}</tool_call>', "invalid_json"),
        ('{"name": "find_file", "arguments": {"count": NaN}}', "invalid_json"),
        ('{"name": "outer", "arguments": {"of": {"name": "inner"}, "title', "invalid_json"),
        ('{"name": "a", "arguments": {"n": ' + "9" * 5000 + "}}", "invalid_json"),
        ('{"answer": 42}', "invalid_json"),
        ('{"name": "find_file", "description": "Finds.", "parameters": {}}', "invalid_json"),
        ('{"a":' * 20_000, "invalid_json"),
        ("{" * 200_000, "invalid_json"),
        ("so " * 300_000, "prose"),
    ],
)
def test_what_is_no_call_says_what_it_is(text: str, kind: str) -> None:
    read = parse_calls(text)
    assert (read.calls, read.kind) == ([], kind)


def test_arguments_that_are_no_object_stay_as_they_were_written() -> None:
    assert normalise_call("a", "not json") == {"name": "a", "arguments": "not json"}
    assert normalise_call("a", None) == normalise_call("a", "") == {"name": "a", "arguments": {}}
    assert normalise_call("", {}) is normalise_call(3, {}) is None


def test_a_flood_of_calls_is_bounded() -> None:
    assert len(parse_calls(TEXT * 5000).calls) == MAX_CALLS


PIECES = st.sampled_from(
    ["<think>", "</think>", "<tool_call>", "</tool_call>", "```json", "{", "}", "[", "]", '"name"',
     '"arguments"', ":", ",", '"a"', "NaN", "1e999", "\\ud800", TEXT, '{"name": "a"}', NO_CALL]
)  # fmt: skip


@given(st.lists(PIECES | st.text(max_size=8), max_size=24).map("".join) | st.text())
def test_no_text_raises_and_every_call_has_a_name(text: str) -> None:
    read = parse_calls(text)
    assert (read.kind == "call") == bool(read.calls)
    assert all(isinstance(call["name"], str) and call["name"] for call in read.calls)
    json.dumps(read.calls)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    )
)
def test_any_arguments_are_read_back_as_they_were_written(value: object) -> None:
    call = {"name": "tool", "arguments": {"value": value}}
    assert parse_calls(json.dumps(call)).calls == [call]
