"""Tools as vendors take them: drafts, arrays, roots, names, long texts, strict mode, Gemini."""

import json
from typing import Any

import jsonschema

from assets.contracts.schema_shapes import limit_steps
from assets.contracts.vendor_rules import (
    MODERN,
    RULES,
    find_list_refusals,
    find_refusals,
    shorten_texts,
    write_schema,
)
from assets.contracts.vendor_subsets import write_gemini_schema, write_strict_schema
from tests.support.cases import cases

TEXT, COUNT = {"type": "string"}, {"type": "integer"}


def root(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


@cases(
    "given, sent",
    ({"type": "number", "minimum": 1, "exclusiveMinimum": True}, {"exclusiveMinimum": 1}),
    ({"type": "number", "maximum": 9, "exclusiveMaximum": True}, {"exclusiveMaximum": 9}),
    ({"type": "number", "maximum": 9, "exclusiveMaximum": False}, {"maximum": 9}),
    ({"type": "number", "exclusiveMinimum": True}, {}),
    ({"type": "array"}, {"items": {}}),
    ({"type": ["array", "null"]}, {"items": {}}),
    ({"type": "array", "items": [TEXT]}, {"prefixItems": [TEXT], "items": {}}),
    ({"type": "array", "items": []}, {"items": {}}),
    ({"type": "array", "items": [TEXT, COUNT], "additionalItems": False},
     {"prefixItems": [TEXT, COUNT], "items": {}, "maxItems": 2}),
    ({"type": "array", "items": [TEXT], "additionalItems": COUNT},
     {"prefixItems": [TEXT], "items": COUNT}),
    ({"type": "string", "format": None, "enum": None}, {}),
    ({"type": "object", "properties": [], "required": []}, {"properties": {}, "required": []}),
    ({"type": "string", "enum": ["a", "a", "b"]}, {"enum": ["a", "b"]}),
    ({"type": "string", "enum": []}, {}),
)  # fmt: skip
@cases("inside", "property", "items", "branch", "definition")
def test_older_drafts_are_sent_as_2020_12_at_any_depth(given, sent, inside):
    sent = {"type": given["type"], **sent}
    places: dict[str, Any] = {
        "property": lambda one: root(a=one),
        "items": lambda one: root(a={"type": "array", "items": one}),
        "branch": lambda one: root(a={"anyOf": [one, {"type": "null"}]}),
        "definition": lambda one: {**root(a={"$ref": "#/$defs/x"}), "$defs": {"x": one}},
    }
    written = write_schema(places[inside](given))
    assert written == places[inside](sent)
    jsonschema.Draft202012Validator.check_schema(written)
    assert write_schema(written) == written


@cases(
    "given, properties, required",
    ({"anyOf": [{**root(a=TEXT), "required": ["a"]}, {**root(b=TEXT), "required": ["b"]}]},
     {"a": TEXT, "b": TEXT}, None),
    ({"allOf": [{**root(a=TEXT), "required": ["a"]}, {**root(b=TEXT), "required": ["b"]}]},
     {"a": TEXT, "b": TEXT}, ["a", "b"]),
    ({"$ref": "#/$defs/r", "$defs": {"r": {**root(a=TEXT), "required": ["a"]}}},
     {"a": TEXT}, ["a"]),
    ({"oneOf": [root(do={"const": "x"}, n=COUNT), root(do={"const": "y"}, n=TEXT)]},
     {"do": {"enum": ["x", "y"]}, "n": {"anyOf": [COUNT, TEXT]}}, None),
    ({**root(do=TEXT), "oneOf": [root(do={"const": "x"})]}, {"do": TEXT}, None),
    ({**root(a={**TEXT, "required": True}, b=TEXT)}, {"a": TEXT, "b": TEXT}, ["a"]),
    ({"type": ["object", "null"]}, {}, None), (True, {}, None), ([], {}, None),
)  # fmt: skip
def test_any_root_becomes_a_plain_object_that_loses_nothing(given, properties, required):
    written = write_schema(given)
    assert (written["type"], written["properties"]) == ("object", properties)
    assert written.get("required") == required
    assert not written.keys() & {"anyOf", "oneOf", "allOf", "not", "enum", "$ref"}


def test_a_reference_to_nowhere_takes_any_value_and_branches_to_themselves_cost_bounded_work():
    written = write_schema(root(a={"$ref": "#/$defs/gone", "description": "x"}, b=TEXT))
    assert written == root(a={"description": "x"}, b=TEXT)
    again = [{"$ref": "#/$defs/a"}] * 64
    given = {**root(own=TEXT), "$defs": {"a": {"anyOf": again}}, "anyOf": again}
    with limit_steps(50_000):
        written = write_schema(given)
    assert written["properties"] == {"own": TEXT}
    assert "anyOf" not in written


def test_long_texts_are_cut_from_the_longest_and_nothing_else_is():
    named = root(
        description={"type": "string", "description": "s" * 40, "enum": ["on", "off"]},
        long={"type": "number", "maximum": 9, "description": "l" * 3_000},
        deep=root(x={"type": "array", "items": {**TEXT, "title": "t" * 500}}),
    )
    written = shorten_texts(named, 900, 1_000)
    assert len(json.dumps(written, ensure_ascii=False)) <= 900
    assert written["properties"]["description"] == named["properties"]["description"]
    assert written["properties"]["long"].pop("description").endswith("l…")
    assert written["properties"]["long"] == {"type": "number", "maximum": 9}
    assert written["properties"]["deep"]["properties"]["x"]["items"]["type"] == "string"
    assert shorten_texts(named, 90_000, 9_000) == named
    bare = shorten_texts(named, 10, 1_000)["properties"]
    assert bare["description"] == named["properties"]["description"]
    assert len(bare["long"]["description"]) == 80
    many = root(**{f"p{n}": {**TEXT, "description": "d" * 90} for n in range(300)})
    assert shorten_texts(many, 10, 1_000) == root(**{f"p{n}": TEXT for n in range(300)})


@cases(
    "given, rules",
    (root(a={"type": "integer", "minimum": 0, "exclusiveMinimum": True}), {"draft"}),
    (root(a={"type": "array", "items": [TEXT]}), {"draft"}),
    (root(a={"type": "array"}), {"array_items"}),
    (root(**{"due date": TEXT}), {"property_key"}),
    ({**root(a=TEXT), "oneOf": [{}]}, {"root"}),
    ({"anyOf": [root(a=TEXT)]}, {"root", "list_shape"}),
    ({"type": "object", "properties": []}, {"list_shape"}),
    (None, {"list_shape"}), ({}, {"list_shape"}), (root(required=["a"]), {"list_shape"}),
    (root(a=TEXT), set()), ({"type": "object"}, set()),
)  # fmt: skip
def test_what_is_refused_as_it_is_listed_is_named_with_its_rule(given, rules):
    refusals = find_refusals({"name": "x", "inputSchema": given})
    assert {refusal.rule for refusal in refusals} == rules
    assert all(RULES[one.rule].source and "refused by" in one.describe() for one in refusals)


def test_names_and_outputs_that_are_refused():
    long = {"name": "x" * 65, "inputSchema": root()}
    assert [one.rule for one in find_refusals(long)] == ["name"]
    tool = {"name": "x", "inputSchema": root(), "outputSchema": {"anyOf": [{"type": "object"}]}}
    assert [one.path for one in find_list_refusals(tool)] == [("outputSchema", "type")]
    assert [*find_list_refusals(tool, MODERN)] == []


def test_strict_mode_closes_objects_and_makes_what_is_optional_nullable():
    given = {**root(
        a=TEXT, b={"type": "integer", "minimum": 1, "format": "int64"}, c={"enum": ["x", "y"]},
        d={"type": "array", "items": root(e={"type": "string", "maxLength": 3})},
    ), "required": ["a"]}  # fmt: skip
    inner = {**root(e={"type": ["string", "null"]}), "required": ["e"]}
    assert write_strict_schema(given) == {
        **root(a=TEXT, b={"type": ["integer", "null"], "minimum": 1},
               c={"type": ["string", "null"], "enum": ["x", "y", None]},
               d={"type": ["array", "null"], "items": {**inner, "additionalProperties": False}}),
        "required": ["a", "b", "c", "d"], "additionalProperties": False,
    }  # fmt: skip


@cases(
    "given",
    root(a={"type": "object"}), root(a={}), root(a={"type": "array"}),
    {**root(a=TEXT), "additionalProperties": True},
    root(a={"type": "string", "enum": [str(n) for n in range(1_001)]}),
)  # fmt: skip
def test_what_strict_mode_cannot_say_is_not_sent_as_strict(given):
    assert write_strict_schema(given) is None


def test_gemini_gets_its_own_fields_and_the_other_limits_in_words():
    given = {**root(
        a={"type": ["string", "null"], "format": "uri"},
        b={"type": "integer", "exclusiveMinimum": 0},
        c={"type": "integer", "enum": [1, 2], "description": "Side"}, d={"$ref": "#/$defs/d"},
        e={"type": ["string", "integer"]}, f={"type": "array"}, g={"const": "only"},
        h={"anyOf": [TEXT, {"type": "null"}], "default": "x", "description": "H"},
    ), "$defs": {"d": root(again={"$ref": "#/$defs/d"}, x=TEXT)}, "required": ["a", "gone"],
        "additionalProperties": False}  # fmt: skip
    written = write_gemini_schema(given)
    parts = written["properties"]
    assert parts["a"] == {"type": "string", "nullable": True, "description": "(format uri)"}
    assert parts["b"] == {"type": "integer", "minimum": 1}
    assert parts["c"] == {"type": "integer", "description": "Side (one of 1, 2)"}
    assert parts["e"] == {"anyOf": [{"type": "string"}, {"type": "integer"}]}
    assert parts["f"] == {"type": "array", "items": {"type": "string"}}
    assert parts["g"] == {"type": "string", "enum": ["only"]}
    assert parts["h"] == {"type": "string", "nullable": True, "description": "H"}
    assert parts["d"]["properties"]["x"] == {"type": "string"}
    assert written["required"] == ["a"]
    assert "$ref" not in json.dumps(written)
    assert "additionalProperties" not in json.dumps(written)
    assert write_gemini_schema({"type": "object"}) is None
