"""Compatible means: nothing that was right became wrong. Judged by jsonschema on made-up values."""

from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from assets.contracts.schema_diff import compare
from assets.contracts.schema_shapes import equals_json
from assets.contracts.tool_diff import compare_tools
from assets.contracts.validate import find_dialect, validate_call
from tests.contracts.random_schemas import next_version, value_for, whole
from tests.support.cases import cases
from tests.support.examples import FULL, examples

Schema = dict[str, Any]


def worst(old: Schema, new: Schema, *, results: bool = False) -> str:
    result = [item.cls for item in compare(old, new, "s", results=results)]
    return max(result, key=("wording", "compatible", "breaking").index, default="same")


def right(schema: Schema, value: Any) -> bool:
    return not validate_call({"inputSchema": schema}, value)


def fits(validator: Any, value: Any) -> bool:
    try:
        return validator.is_valid(value)
    except RecursionError:  # definitions that only refer to each other
        return False


def check_calls(old: Schema, new: Schema, rng: Random, tries: int) -> str:
    """The class, after asking the oracle; fails on a call that was right and is wrong."""
    if find_dialect(old)[1] or find_dialect(new)[1]:
        return "no schema"
    result = compare(old, new, "s")
    if any(item.cls == "breaking" for item in result):
        assert all(item.path.startswith("s") and item.why for item in result)
        return "breaking"
    for _ in range(tries):
        value = value_for(rng.choice((old, new)), old, rng)
        if isinstance(value, dict) and right(old, value):
            flaws = validate_call({"inputSchema": new}, value)
            assert not flaws, (old, new, value, result, flaws)
    return "kept"


def test_no_right_call_turns_wrong_over_many_made_up_versions():
    observed = {"kept": 0, "breaking": 0, "no schema": 0}
    count = 1200 if FULL else 200
    for seed in range(count):
        rng = Random(seed)
        old = whole(rng)
        observed[check_calls(old, next_version(old, rng), rng, 15)] += 1
    # Neither answer is given by habit.
    assert min(observed["kept"], observed["breaking"]) > count / 6


def test_no_new_result_surprises_an_old_reader_where_the_diff_says_compatible():
    """Whatever the new tool may return, a reader of the old schema accepts."""
    for seed in range(800 if FULL else 200):
        rng = Random(seed)
        old = whole(rng)
        new = next_version(old, rng)
        before, after = find_dialect(old), find_dialect(new)
        if before[1] or after[1] or worst(old, new, results=True) == "breaking":
            continue
        for value in (value_for(new, new, rng) for _ in range(15)):
            if isinstance(value, dict) and fits(after[0](new), value):
                assert fits(before[0](old), value), (old, new, value)


def inside(about: Any, **more: Any) -> Schema:
    return {"type": "object", "properties": {"a": about}, **more}


INT, TEXT, NULL = {"type": "integer"}, {"type": "string"}, {"type": "null"}
OBJ = {"type": "object", "properties": {"x": INT}}
CAT = {"type": "object", "properties": {"kind": {"const": "cat"}}, "required": ["kind"]}
DOG = {"type": "object", "properties": {"kind": {"const": "dog"}}, "required": ["kind"]}


def array(**keywords: Any) -> Schema:
    return {"type": "array", **keywords}


NUMBER, MAYBE = {"type": "number"}, {"type": ["string", "null"]}
# The classes of a change and of the way back.
WIDER, NARROWER = ("compatible", "breaking"), ("breaking", "compatible")
SAME, OTHER = ("compatible", "compatible"), ("breaking", "breaking")


@cases(
    "old, new, field, classes",
    # type, nullability
    (TEXT, MAYBE, "type", WIDER),
    (TEXT, {"anyOf": [TEXT, NULL]}, "", WIDER),
    (TEXT, {"oneOf": [TEXT, NULL]}, "", OTHER),
    (MAYBE, {"anyOf": [NULL, TEXT]}, "", SAME),
    (INT, NUMBER, "type", WIDER),
    (TEXT, {**TEXT, "nullable": True}, "nullable", WIDER),
    (TEXT, {}, "type", WIDER),
    # values
    ({"enum": ["x", "y"]}, {"enum": ["y", "x", "z"]}, "enum", WIDER),
    ({"enum": ["x"]}, {"const": "x"}, "", SAME),
    ({"enum": ["x", "y"]}, TEXT, "", WIDER),
    ({"const": 1}, {"const": True}, "const", OTHER),
    ({"type": "boolean"}, {"enum": [True, False]}, "", SAME),
    # bounds
    ({**INT, "minimum": 1}, {**INT, "minimum": 0}, "minimum", WIDER),
    ({**INT, "exclusiveMinimum": 0}, {**INT, "minimum": 1}, "", SAME),
    ({**TEXT, "maxLength": 5}, {**TEXT, "maxLength": 9}, "maxLength", WIDER),
    ({**INT, "multipleOf": 4}, {**INT, "multipleOf": 2}, "multipleOf", WIDER),
    (TEXT, {**TEXT, "minLength": 0}, "minLength", SAME),
    (INT, {**INT, "maxLength": 3}, "maxLength", SAME),
    # form of texts
    ({**TEXT, "pattern": "^a"}, TEXT, "pattern", WIDER),
    ({**TEXT, "format": "date"}, TEXT, "format", WIDER),
    # objects below
    (OBJ, {**OBJ, "additionalProperties": True}, "additionalProperties", WIDER),
    ({**OBJ, "additionalProperties": False}, OBJ, "additionalProperties", WIDER),
    ({**OBJ, "additionalProperties": INT}, {**OBJ, "additionalProperties": True},
     "additionalProperties", WIDER),
    (OBJ, {**OBJ, "required": ["x"]}, "properties.x.required", NARROWER),
    (OBJ, {"type": "object", "properties": {"x": INT, "y": TEXT}}, "properties.y", WIDER),
    ({"type": "object"}, OBJ, "properties.x", NARROWER),
    # arrays
    (array(items=INT), array(items=NUMBER), "[].type", WIDER),
    (array(items=INT), array(), "items", WIDER),
    (array(prefixItems=[INT]), array(prefixItems=[INT, INT]), "prefixItems", OTHER),
    (array(uniqueItems=True), array(), "uniqueItems", WIDER),
    # combinations
    ({"anyOf": [INT]}, {"anyOf": [INT, TEXT]}, "anyOf", WIDER),
    ({"anyOf": [INT, TEXT]}, {"anyOf": [TEXT, NUMBER]}, "", WIDER),
    ({"oneOf": [CAT]}, {"oneOf": [CAT, DOG]}, "oneOf", OTHER),
    ({"oneOf": [OBJ]}, {"oneOf": [OBJ, {"type": "object"}]}, "oneOf", OTHER),
    ({"oneOf": [CAT, DOG]}, {"anyOf": [DOG, CAT]}, "", WIDER),
    ({"allOf": [TEXT]}, {"allOf": [TEXT, {"minLength": 2}]}, "allOf", NARROWER),
    ({"allOf": [{**OBJ, "required": ["x"]}]}, {"allOf": [OBJ]}, "", WIDER),
    (TEXT, {**TEXT, "not": NULL}, "not", NARROWER),
    (TEXT, {**TEXT, "not": {"const": "x"}}, "not", NARROWER),
)  # fmt: skip
def test_each_keyword_in_both_directions(old, new, field, classes):
    for (before, after), cls in zip(((old, new), (new, old)), classes, strict=True):
        result = compare(inside(before), inside(after), "s")
        assert worst(inside(before), inside(after)) == cls, result
        assert any(item.path.startswith("s.properties.a") and field in item.path for item in result)
        deep = [{"type": "object", "properties": {"l": array(items=inside(schema))}}
                for schema in (before, after)]  # fmt: skip
        assert worst(*deep) == cls
        assert all("s.properties.l[].properties.a" in item.path for item in compare(*deep, "s"))


@cases(
    "old, new, cls",
    (inside(TEXT, required=["a"]), inside(TEXT), "breaking"),
    (inside(TEXT), inside(TEXT, required=["a"]), "compatible"),
    (inside({"enum": ["x"]}), inside({"enum": ["x", "y"]}), "breaking"),
    (inside({"enum": ["x", "y"]}), inside({"enum": ["x"]}), "compatible"),
    (inside(INT), inside({"type": "number"}), "breaking"),
    (inside(TEXT), {"type": "object", "properties": {}}, "breaking"),
    (inside(TEXT), {"type": "object", "properties": {"a": TEXT, "b": INT}}, "compatible"),
    (inside(TEXT, additionalProperties=False),
     {**inside(TEXT, additionalProperties=False), "properties": {"a": TEXT, "b": INT}},
     "breaking"),
    (inside(TEXT), inside({**TEXT, "description": "other"}), "wording"),
)  # fmt: skip
def test_results_are_judged_from_the_reader_s_side(old, new, cls):
    assert worst(old, new, results=True) == cls


def test_definitions_are_followed_where_they_are_used_and_a_moved_one_is_the_same_schema():
    def schema(size: int, **more: Any) -> Schema:
        node = {"type": "object", "properties": {"v": {**INT, "maximum": size},
                                                 "next": {"$ref": "#/$defs/node"}}}  # fmt: skip
        return {**inside({"$ref": "#/$defs/node"}), "$defs": {"node": node, **more}}

    (item,) = compare(schema(9), schema(5), "s")
    assert (item.path, item.cls) == ("s.properties.a.properties.v.maximum", "breaking")
    assert worst(schema(5), schema(9)) == "compatible"
    assert worst(schema(5), schema(5, unused=TEXT)) == "wording"
    old = {**inside({"$ref": "#/definitions/t"}), "definitions": {"t": TEXT}}
    assert worst(old, {**inside({"$ref": "#/$defs/u"}), "$defs": {"u": TEXT}}) == "wording"
    assert worst(old, inside(TEXT)) == "wording"


def test_names_stand_in_brackets_and_schemas_that_nobody_can_follow_count_as_breaking():
    (item,) = compare({"properties": {"a.b": INT}}, {"properties": {"a.b": TEXT}}, "s")
    assert item.path == 's.properties["a.b"].type'

    def bush(depth: int, leaf: Any) -> Any:
        pieces = [bush(depth - 1, leaf), bush(depth - 1, leaf)] if depth else [leaf, NULL]
        return {"anyOf": pieces}

    assert worst(inside(bush(9, INT)), inside(bush(9, TEXT))) == "breaking"
    loop = {"allOf": [{"$ref": "#/properties/a"}, TEXT]}
    assert worst(inside(TEXT), inside(loop)) == "breaking"


@examples(60)
@given(st.integers(0, 2**32))
def test_schemas_with_anything_anywhere_are_compared_without_a_crash(seed):
    rng = Random(seed)

    def spoiled(schema: Any) -> Any:
        if rng.random() < 0.12:
            return rng.choice((None, True, 1, "x", [], [{}], [[1]], {}, {"a": [{}]}, -1.5))
        if isinstance(schema, dict):
            return {key: spoiled(value) for key, value in schema.items()}
        return [spoiled(part) for part in schema] if isinstance(schema, list) else schema

    old, new = ({"type": "object", "properties": spoiled(whole(rng))} for _ in range(2))
    for results in (False, True):
        assert compare(old, new, "s", results=results) or equals_json(old, new)
        before, after = ([{"name": "t", "inputSchema": schema}] for schema in (old, new))
        changes = compare_tools(before, after)
        assert changes or equals_json(old, new)  # both may be spoiled into the same


@cases("results", False, True)
def test_a_reference_to_an_anchor_is_followed_to_what_it_names(results):
    def pick(kind: str) -> Schema:
        part = {"$anchor": "part", "type": "object", "properties": {"size": {"type": kind}}}
        return {"type": "object", "properties": {"of": {"$ref": "#part"}}, "$defs": {"p": part}}

    assert worst(pick("string"), pick("integer"), results=results) == "breaking"
    assert right(pick("string"), {"of": {"size": "xl"}})
    assert not right(pick("string"), {"of": {"colour": "red"}})
