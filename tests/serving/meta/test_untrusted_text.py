"""Third-party text: bounded, visible, and never out of their marks."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from serving.meta.schemas import is_deeper_than
from serving.untrusted_text import (
    bound_value,
    limit_result,
    mark_text,
    show_line,
    show_prose,
    write_parameters,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
    max_leaves=30,
)
HIDDEN = "\u200b\u202e\u2066\ufeff\x00\x1b\x7f\U000e0041\ufe0f\u00ad"


@given(st.text(), st.integers(1, 200))
def test_prose_is_bounded_and_shows_everything_it_holds(text, most):
    visible = show_prose(text + HIDDEN, most)
    assert len(visible) <= most
    assert not set(visible) & set(HIDDEN)
    assert "\n" not in show_line(text, most)


def test_a_marked_text_cannot_know_its_mark():
    one, other = mark_text("x", "a::b"), mark_text("x", "a::b")
    assert one != other
    forged = one.splitlines()[-1]
    assert mark_text(forged, "a::b").splitlines()[-1] != forged


@given(JSON)
def test_a_bounded_value_is_json_of_bounded_size(value):
    copy, _ = bound_value(value, 300)
    assert len(json.dumps(copy, ensure_ascii=False)) < 2_500


@given(st.dictionaries(st.sampled_from("abcdef"), st.integers(-9, 9) | st.sampled_from("xyz")))
def test_a_small_plain_value_is_copied_as_it_is(value):
    assert bound_value(value, 10_000) == (value, False)


def test_a_value_ten_thousand_deep_is_cut_without_recursion():
    deep: Any = "end"
    for _ in range(10_000):
        deep = [deep]
    copy, cut = bound_value(deep, 1_000)
    assert cut
    assert not is_deeper_than(copy, 30)
    assert is_deeper_than(deep, 40)


def test_an_object_of_a_million_members_is_cut():
    copy, cut = bound_value({str(i): i for i in range(100_000)}, 10**9)
    assert cut
    assert len(copy) == 401


def test_parameters_are_one_line_whatever_the_schema_is():
    schema = {
        "properties": {"b": {"type": ["string", "null"]}, "a": {"enum": ["x", "y"]}, "c": True},
        "required": ["b"],
    }
    assert write_parameters({"inputSchema": schema}) == "b: string|null, a?: x|y, c?: any"
    for odd in (None, [], {"properties": []}, {"properties": {"a": {"type": [1]}}, "required": 1}):
        assert isinstance(write_parameters({"inputSchema": odd}), str)
    many = {"properties": {f"p{i}": {} for i in range(40)}}
    assert "… 28 more" in write_parameters({"inputSchema": many})


@given(
    st.lists(st.dictionaries(st.sampled_from(["type", "text", "data", "mimeType", "uri"]), JSON))
)
def test_any_content_passes_as_text_or_media(content):
    blocks, text, _, _ = limit_result(content, None, "a::b", 500)
    assert {block["type"] for block in blocks} <= {"text", "image", "audio"}
    assert len(text) < 500 + 2 * 64


def test_indentation_and_line_breaks_of_a_result_are_kept():
    code = "    if x:\n\treturn 1\n"
    blocks, text, _, cut = limit_result([{"type": "text", "text": code}], None, "a::b", 500)
    assert (text, cut) == (code, False)
    assert code in blocks[0]["text"]
