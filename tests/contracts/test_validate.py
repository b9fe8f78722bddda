from hypothesis import given
from hypothesis import strategies as st

from assets.contracts.validate import find_schema_problem, validate_call
from tests.contracts.strategies import calls, values
from tests.support.cases import cases


def _kinds(schema, arguments):
    flaws = validate_call({"inputSchema": schema}, arguments)
    return [(flaw.kind, flaw.path) for flaw in flaws]


SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "minLength": 2},
        "days": {"type": "integer", "minimum": 1, "maximum": 14},
        "units": {"enum": ["metric", "imperial"]},
        "on": {"type": "string", "format": "date"},
        "zip": {"type": "string", "pattern": "^[0-9]{5}$"},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 2},
        "at": {"type": "object", "properties": {"lat": {"type": "number"}}, "required": ["lat"]},
        "extra": {"type": "object"},
    },
    "required": ["city"],
}


@cases(
    "arguments, kinds",
    ({"city": "Rome"}, []),
    ({"city": "Rome", "extra": {"free": 1}}, []),
    ({}, [("missing_required", "city")]),
    ({"city": "Rome", "town": 1}, [("unknown_argument", "town")]),
    ({"city": 5}, [("wrong_type", "city")]),
    ({"city": "Rome", "days": True}, [("wrong_type", "days")]),
    ({"city": "Rome", "days": 0}, [("range", "days")]),
    ({"city": "R"}, [("length", "city")]),
    ({"city": "Rome", "units": "kelvin"}, [("not_in_enum", "units")]),
    ({"city": "Rome", "on": "tomorrow"}, [("format", "on")]),
    ({"city": "Rome", "zip": "1234"}, [("pattern", "zip")]),
    ({"city": "Rome", "tags": ["a", 2]}, [("wrong_type", "tags[1]")]),
    ({"city": "Rome", "tags": ["a", "b", "c"]}, [("items", "tags")]),
    ({"city": "Rome", "at": {"lat": 1, "lon": 2}}, [("unknown_argument", "at.lon")]),
    ({"city": "Rome", "at": {}}, [("missing_required", "at.lat")]),
    *((value, [("not_an_object", "")]) for value in (None, [], "x", 3)),
)
def test_each_flaw_has_its_kind_and_its_path(arguments, kinds):
    assert _kinds(SCHEMA, arguments) == kinds


@given(calls())
def test_an_argument_nobody_declared_is_a_flaw(call):
    schema, arguments = call
    assert _kinds(schema, {**arguments, "zz": 1}) == [("unknown_argument", "zz")]


@given(st.dictionaries(st.text(max_size=6), values, max_size=4), values)
def test_nothing_a_third_party_sends_raises(schema, arguments):
    flaws = validate_call({"inputSchema": schema}, arguments)
    assert len(flaws) <= 50
    assert isinstance(arguments, dict) or flaws


BRANCHES = {
    "allOf": [{"$ref": "#/$defs/base"}],
    "anyOf": [{"properties": {"b": {"type": "string"}}}],
    "$defs": {"base": {"properties": {"a": {"type": "string"}}}},
}


@cases(
    "schema, arguments, kinds",
    ({"additionalProperties": True}, {"any": 1}, []),
    ({"patternProperties": {".": {}}}, {"any": 1}, []),
    (BRANCHES, {"a": "x", "b": "y"}, []),
    (BRANCHES, {"c": 1}, [("unknown_argument", "c")]),
    ({"properties": {"a": {"type": "string", "pattern": "(?<!x"}}}, {"a": "y"}, []),
    ({"properties": {"p": {"items": [{"type": "string"}]}}}, {"p": [1]}, [("wrong_type", "p[0]")]),
    ({"properties": {"a": {"pattern": "^(a+)+$"}}}, {"a": "a" * 40 + "!!!"}, [("pattern", "a")]),
    ids=["said", "by pattern", "of branches", "of none", "another dialect", "old tuple", "endless"],
)
def test_what_a_schema_declares_in_other_ways_is_known(schema, arguments, kinds):
    assert _kinds({"type": "object", **schema}, arguments) == kinds


REFERENCES = ("https://127.0.0.1:1/schema.json", "#/$defs/none", "#/properties/a", 3)


@cases(
    "schema",
    {"properties": {"a": {"type": "any"}}},
    *({"properties": {"a": {"$ref": name}}} for name in REFERENCES),
    {"required": "a"},
    {"type": "string"},
)
def test_a_schema_that_cannot_be_used_is_a_flaw_of_its_own(schema):
    assert _kinds({"type": "object", **schema}, {"a": 1}) == [("bad_schema", "")]


@cases(
    "schema",
    {"type": "object", "properties": {"p": {"type": "array", "items": [{"type": "string"}]}}},
    {"type": "object", "properties": {"n": {"minimum": 1, "exclusiveMinimum": True}}},
    {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"},
)
def test_older_drafts_are_read_as_what_they_are(schema):
    assert find_schema_problem(schema) is None


MULTIPLES = [(0.07, 0.01), (19.99, 0.01), (0.3, 0.1), (3, 1.5), (1e300, 0.01)]
OTHERS = [(19.995, 0.01), (7, 2), (10**40, 7), (float("inf"), 0.01), (float("inf"), 2)]


@cases(
    "value, step, fits",
    *((*multiple, True) for multiple in MULTIPLES),
    *((*other, False) for other in OTHERS),
)
def test_a_multiple_is_one_by_its_digits(value, step, fits):
    schema = {"type": "object", "properties": {"a": {"type": "number", "multipleOf": step}}}
    assert (validate_call({"name": "t", "inputSchema": schema}, {"a": value}) == []) is fits
