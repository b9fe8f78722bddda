"""Tools as functions: what a model's API would refuse a whole request for is not among them."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from serving.discovery import functions
from serving.discovery.functions import bound_parameters, list_refused, write_functions
from tests.support.cases import cases
from tests.support.examples import examples

ID = {"type": "string"}
ONE_OF = [{"properties": {"url": ID}, "required": ["url"]}, {"$ref": "#/$defs/b"}, 7]


def contract(schema: Any) -> dict[str, Any]:
    return {"name": "x", "inputSchema": schema}


@cases("keyword", "anyOf", "oneOf", "allOf")
def test_what_stands_in_branches_at_the_top_is_offered_without_them(keyword):
    schema = {
        "type": "object", "required": ["id"], "properties": {"id": ID}, keyword: ONE_OF,
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
    assert list(refused) == ["npm:a::odd"]
    assert why in refused["npm:a::odd"]
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


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["properties", "type", "anyOf", "$ref", "required", "not", "a b"])
            | st.text(max_size=3),
            inner,
            max_size=3,
        )
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(["properties", "allOf", "oneOf", "required"]), JSON) | JSON)
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
