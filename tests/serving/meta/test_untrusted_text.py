"""Third-party text and tools as functions: bounded, visible, and in their marks."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from serving import untrusted_text
from serving.discovery import functions
from serving.discovery.functions import bound_parameters, list_refused, write_functions
from serving.meta.schemas import is_deeper_than
from tests.support.cases import cases
from tests.support.examples import examples, json_values

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
JSON = json_values(SCALARS, leaves=30)
MEMBERS = st.sampled_from(["type", "text", "data", "mimeType", "uri"])
HIDDEN = "\u200b\u202e\u2066\ufeff\x00\x1b\x7f\U000e0041\ufe0f\u00ad"


@given(st.text(), st.integers(1, 200))
def test_prose_is_bounded_and_shows_everything_it_holds(text, most):
    visible = untrusted_text.show_prose(text + HIDDEN, most)
    assert len(visible) <= most
    assert not set(visible) & set(HIDDEN)
    assert "\n" not in untrusted_text.show_line(text, most)


def test_a_marked_text_keeps_its_line_breaks_and_cannot_know_its_mark():
    one, other = untrusted_text.mark_text("x", "a::b"), untrusted_text.mark_text("x", "a::b")
    assert one != other
    forged = one.splitlines()[-1]
    assert untrusted_text.mark_text(forged, "a::b").splitlines()[-1] != forged
    code = "    if x:\n\treturn 1\n"
    blocks, text, _, cut = untrusted_text.limit_result(
        [{"type": "text", "text": code}], None, "a::b", 500
    )
    assert (text, cut, code in blocks[0]["text"]) == (code, False, True)


@given(JSON)
def test_a_bounded_value_is_json_of_bounded_size(value):
    copy, _ = untrusted_text.bound_value(value, 300)
    assert len(json.dumps(copy, ensure_ascii=False)) < 2_500


@given(st.dictionaries(st.sampled_from("abcdef"), st.integers(-9, 9) | st.sampled_from("xyz")))
def test_a_small_plain_value_is_copied_as_it_is(value):
    assert untrusted_text.bound_value(value, 10_000) == (value, False)


def test_a_value_ten_thousand_deep_or_a_million_wide_is_cut_without_recursion():
    deep: Any = "end"
    for _ in range(10_000):
        deep = [deep]
    copy, cut = untrusted_text.bound_value(deep, 1_000)
    assert cut
    assert not is_deeper_than(copy, 30)
    assert is_deeper_than(deep, 40)
    copy, cut = untrusted_text.bound_value({str(i): i for i in range(100_000)}, 10**9)
    assert cut
    assert len(copy) == 401


def test_parameters_are_one_line_whatever_the_schema_is():
    schema = {
        "properties": {"b": {"type": ["string", "null"]}, "a": {"enum": ["x", "y"]}, "c": True},
        "required": ["b"],
    }
    assert (
        untrusted_text.write_parameters({"inputSchema": schema})
        == "b: string|null, a?: x|y, c?: any"
    )
    for odd in (None, [], {"properties": []}, {"properties": {"a": {"type": [1]}}, "required": 1}):
        assert isinstance(untrusted_text.write_parameters({"inputSchema": odd}), str)
    many = {"properties": {f"p{i}": {} for i in range(40)}}
    assert "… 28 more" in untrusted_text.write_parameters({"inputSchema": many})


@given(st.lists(st.dictionaries(MEMBERS, JSON)))
def test_any_content_passes_as_text_or_media(content):
    blocks, text, _, _ = untrusted_text.limit_result(content, None, "a::b", 500)
    assert {block["type"] for block in blocks} <= {"text", "image", "audio"}
    assert len(text) < 500 + 2 * 64


ID = {"type": "string"}


def contract(schema: Any) -> dict[str, Any]:
    return {"name": "x", "inputSchema": schema}


@cases("keyword", "anyOf", "oneOf", "allOf")
def test_what_stands_in_branches_at_the_top_is_offered_without_them(keyword):
    schema = {
        "type": "object", "required": ["id"], "properties": {"id": ID},
        keyword: [{"properties": {"url": ID}, "required": ["url"]}, {"$ref": "#/$defs/b"}, 7],
        "not": {"required": ["a"]}, "enum": [{}], "$defs": {"b": {"properties": {"path": ID}}},
    }  # fmt: skip
    result = bound_parameters(contract(schema))
    assert set(result["properties"]) == {"id", "url", "path"}
    assert result["required"] == (["id", "url"] if keyword == "allOf" else ["id"])
    assert not {"anyOf", "oneOf", "allOf", "not", "enum"} & result.keys()
    deep = {"type": "object", "properties": {"id": {"anyOf": [ID, {"type": "null"}]}}}
    assert bound_parameters(contract(deep)) == deep


@cases(
    "schema, why",
    ({"properties": {"due date": ID}}, "«due date»"),
    ({"properties": {"": ID}}, "«»"),
    ({"properties": {"x" * 65: ID}}, "x" * 60),
    ({"properties": {"天気": ID}}, "«天気»"),
    ({"properties": {"a\u200b»": ID}}, "«a"),
    ({"properties": {"a": "text"}}, "no JSON Schema"),
    ({"properties": {"a": {"type": "word"}}}, "no JSON Schema"),
    ({"required": "a"}, "no JSON Schema"),
    ({"properties": {f"{'a b' * 30}{n}": {"description": "x" * 900} for n in range(30)}}, "«"),
    ({"properties": {"a": {"enum": [f"choice {n}" for n in range(3_000)]}}}, "32,000"),
)
def test_what_an_api_refuses_is_left_out_with_a_reason(schema, why):
    good = contract({"type": "object", "properties": {"a.b-c_1": ID}})
    held = {"npm:a::good": good, "npm:a::odd": contract({"type": "object", **schema})}
    assert [item.tool_id for item in write_functions(held.items()).values()] == ["npm:a::good"]
    refused = list_refused(held.items())
    assert (list(refused), why in refused["npm:a::odd"]) == (["npm:a::odd"], True)
    assert len(refused["npm:a::odd"]) < 300


def test_a_long_text_is_cut_and_parameters_keep_types_choices_and_limits():
    schema = {
        "type": "object", "required": ["where"],
        "properties": {
            "where": {"type": "string", "description": "w" * 2_900},
            "zoom": {"type": "number", "minimum": 0, "maximum": 22, "description": "How near"},
            "zone": {"type": "string", "enum": [f"Area/Place {n}" for n in range(420)]},
        },
    }  # fmt: skip
    sent = bound_parameters(contract(schema))
    assert sent["properties"]["where"].pop("description").endswith("w…")
    del schema["properties"]["where"]["description"]
    assert sent == schema


def test_of_two_ids_with_one_name_for_apis_the_first_keeps_it(monkeypatch):
    monkeypatch.setattr(functions, "write_wire_name", lambda name: f"same_{name[-1]}")
    names = ("npm:a::bad_1", "npm:a::read_1", "npm:a::erase_1", "npm:a::other_2")
    held = {name: contract({"type": "object"}) for name in names}
    held[names[0]] = contract({"required": "a"})  # is not offered, and keeps no name from others
    result = write_functions(held.items())
    assert {wire: one.tool_id for wire, one in result.items()} == {
        "same_1": "npm:a::read_1", "same_2": "npm:a::other_2",
    }  # fmt: skip
    refused = list_refused(held.items())
    assert list(refused) == ["npm:a::bad_1", "npm:a::erase_1"]
    assert refused["npm:a::erase_1"] == "its name for APIs, same_1, is that of npm:a::read_1"


KEYS = st.sampled_from(["properties", "type", "anyOf", "$ref", "required", "not", "a b"])
NAMES = KEYS | st.text(max_size=3)
ANY_JSON = json_values(names=NAMES)
SCHEMAS = st.dictionaries(st.sampled_from(["properties", "allOf", "oneOf", "required"]), ANY_JSON)


@given(SCHEMAS | ANY_JSON)
@examples(60)
def test_whatever_a_server_says_is_a_function_or_a_reason(schema):
    held = {"npm:a::x": contract(schema)}
    offered, refused = write_functions(held.items()), list_refused(held.items())
    assert len(offered) + len(refused) == 1
    for item in offered.values():
        result = json.loads(json.dumps(item.function["function"]["parameters"]))
        assert result["type"] == "object"
        assert isinstance(result["properties"], dict)
        assert not {"anyOf", "oneOf", "allOf", "not", "enum"} & result.keys()
