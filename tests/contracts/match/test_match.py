"""One call or calls made at once against others: equal in meaning, and each way of not being so."""

import itertools
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from assets.contracts.match import match
from tests.contracts.strategies import calls, object_schemas, values
from tests.support.cases import cases
from tests.support.examples import examples, json_values

TEXT = {"type": "string"}
LABEL = {"properties": {"kind": {"const": "label"}, "text": TEXT}, "required": ["kind"]}
BIG = {"kind": {"const": "tag"}, "text": {"enum": ["Big Tag"]}}
TAG = {"properties": BIG, "required": ["kind"]}
SCHEMA = {
    "type": "object",
    "properties": {
        "n": {"type": "number"},
        "count": {"type": "integer", "default": 10},
        "flag": {"type": "boolean"},
        "note": {"type": "string"},
        "file_path": {"type": "string"},
        "mode": {"enum": ["Fast", "slow"]},
        "when": {"type": "string", "format": "date-time"},
        "list": {"type": "array", "items": {"type": "integer"}},
        "set": {"type": "array", "items": {"type": "integer"}, "uniqueItems": True},
        "loose": {"type": "array", "x-unordered": True},
        "tuple": {"prefixItems": [{"type": "string"}, {"$ref": "#/$defs/user"}], "items": False},
        "old_tuple": {"items": [{"enum": ["A b"]}, {}], "additionalItems": {"type": "string"}},
        "nested": {"type": "object", "properties": {"deep": {"type": "integer", "default": 1}}},
        "either": {"anyOf": [{"type": "null"}, {"type": "array", "uniqueItems": True}]},
        "maybe": {"type": ["string", "null"], "default": None},
        "nullable": {"type": "string", "nullable": True, "enum": ["Up there", None]},
        "user": {"$ref": "#/$defs/user"},
        "tree": {"$ref": "#/$defs/tree"},
        "shape": {"oneOf": [LABEL, TAG]},
        "open": {"type": "object", "additionalProperties": {"type": "array", "uniqueItems": True}},
        "headers": {"type": "object", "patternProperties": {"^x-": {"format": "date-time"}}},
        "card": {
            "type": "object",
            "if": {"properties": {"exact": {"const": True}}, "required": ["exact"]},
            "then": {"properties": {"text": {"pattern": "."}}},
            "dependentSchemas": {"many": {"properties": {"list": {"uniqueItems": True}}}},
        },
        "both": {"allOf": [{"type": "array"}, {"uniqueItems": True}]},
        "cycle": {"$ref": "#/$defs/loop"},
        "lost": {"$ref": "https://example.com/x.json"},
        "named": {"$ref": "#anchor"},
        "yes": True,
    },
    "$defs": {
        "user": {"type": "object", "properties": {"about": {"type": "string"}}},
        "tree": {
            "type": "object",
            "properties": {
                "about": {"type": "string"},
                "size": {"type": "integer", "default": 0},
                "children": {"type": "array", "items": {"$ref": "#/$defs/tree"}},
            },
        },
        "loop": {"$ref": "#/$defs/loop"},
        "anchored": {"$anchor": "anchor", "uniqueItems": True},
    },
}


def _match(want: Any, have: Any, schema: Any = SCHEMA) -> Any:
    return match.match_call(
        schema, {"name": "t", "arguments": want}, {"name": "t", "arguments": have}
    )


def _leaf(text: str, depth: int = 6) -> dict[str, Any]:
    return {"about": text} if not depth else {"children": [{}, _leaf(text, depth - 1)]}


@cases(
    "want, have",
    ({"n": 5}, {"n": 5.0}),
    ({"n": 10**400}, {"n": 10**400}),
    ({"n": float("nan")}, {"n": float("nan")}),
    ({"count": 10}, {}),
    ({}, {"count": 10.0}),
    ({"note": "Buy milk and bread."}, {"note": "buy  milk and bread"}),
    ({"note": "He said ‘yes’ twice"}, {"note": "he said 'yes' twice"}),
    ({"when": "2026-01-01T12:00:00Z"}, {"when": "2026-01-01T13:00:00+01:00"}),
    ({"set": [1, 2, 3]}, {"set": [3, 1, 2.0]}),
    ({"loose": ["b", "a"]}, {"loose": ["a", "b"]}),
    ({"tuple": ["a b", {"about": "Likes tea"}]}, {"tuple": ["A b", {"about": "likes tea"}]}),
    ({"either": [1, "a"]}, {"either": ["a", 1]}),
    ({"either": None}, {"either": None}),
    ({"maybe": None}, {}),
    ({"nested": {"deep": 1}}, {"nested": {}}),
    ({"user": {"about": "Likes long walks"}}, {"user": {"about": "likes long walks"}}),
    ({"tree": _leaf("Deep down here")}, {"tree": _leaf("deep down here")}),
    ({"tree": {"children": [{"size": 0}]}}, {"tree": {"children": [{}]}}),
    ({"shape": {"kind": "label", "text": "Big Tag"}},
     {"shape": {"text": "big tag", "kind": "label"}}),
    ({"open": {"any": [1, 2]}}, {"open": {"any": [2, 1]}}),
    ({"headers": {"x-at": "2026-01-01T12:00:00Z"}},
     {"headers": {"x-at": "2026-01-01T12:00:00+00:00"}}),
    ({"card": {"exact": False, "text": "One two"}},
     {"card": {"exact": False, "text": "one two"}}),
    ({"card": {"many": 1, "list": [1, 2]}}, {"card": {"list": [2, 1], "many": 1}}),
    ({"cycle": {"a": 1}, "lost": "x"}, {"lost": "x", "cycle": {"a": 1}}),
    ({"named": [1, 2]}, {"named": [2, 1]}),
    ({"yes": [{"a": 1, "b": 2}]}, {"yes": [{"b": 2, "a": 1}]}),
    (None, {}),
)  # fmt: skip
def test_equal_calls_match(want, have):
    for item, other in ((want, have), (have, want)):
        assert _match(item, other).match, _match(item, other)
        assert _match(item, other).value_f1 == 1.0


@cases(
    "want, have, kind",
    ({"n": 1.5}, {"n": 15}, "wrong_value"),
    ({"n": 10**400}, {"n": 10**400 + 1}, "wrong_value"),
    ({"n": 2**53 + 1}, {"n": float(2**53)}, "wrong_value"),
    ({"n": 1}, {"n": True}, "wrong_type"),
    ({"n": 5}, {"n": "5"}, "wrong_type"),
    ({"yes": [True]}, {"yes": [1]}, "wrong_value"),
    ({"file_path": "/etc/passwd"}, {"file_path": "etcpasswd"}, "wrong_value"),
    ({"file_path": "/Data/A b"}, {"file_path": "/data/a b"}, "wrong_value"),
    ({"mode": "Fast"}, {"mode": "fast"}, "wrong_value"),
    ({"nullable": "Up there"}, {"nullable": "up there"}, "wrong_value"),
    ({"nullable": None}, {"nullable": "Up there"}, "wrong_type"),
    ({"note": "at 1.5 percent"}, {"note": "at 15 percent"}, "wrong_value"),
    ({"when": "2026-01-01T12:00:00Z"}, {"when": "2026-01-01T12:00:00"}, "wrong_value"),
    ({"list": [1, 2]}, {"list": [2, 1]}, "wrong_value"),
    ({"set": [1, 1, 2]}, {"set": [1, 2, 2]}, "wrong_value"),
    ({"tuple": ["a", {}]}, {"tuple": [{}, "a"]}, "wrong_value"),
    ({"old_tuple": ["A b"]}, {"old_tuple": ["a b"]}, "wrong_value"),
    ({"shape": {"kind": "tag", "text": "Big Tag"}},
     {"shape": {"kind": "tag", "text": "big tag"}}, "wrong_value"),
    ({"card": {"exact": True, "text": "One two"}},
     {"card": {"exact": True, "text": "one two"}}, "wrong_value"),
    ({"tree": _leaf("one thing")}, {"tree": _leaf("another thing")}, "wrong_value"),
    ({"either": None}, {}, "missing_parameter"),
    ({"n": 1}, {}, "missing_parameter"),
    ({}, {"n": 1}, "extra_parameter"),
    ({"count": 5}, {}, "missing_parameter"),
    ({"nested": {"deep": 2}}, {"nested": {}}, "wrong_value"),
    ({"n": 1}, [1], "not_an_object"),
    ({"n": 1}, "{\"n\": 1}", "not_an_object"),
)  # fmt: skip
def test_different_calls_say_how(want, have, kind):
    result = _match(want, have)
    assert not result.match
    assert result.error_kind == kind
    assert not _match(have, want).match


def test_the_gravest_error_is_told_each_parameter_has_its_verdict_and_each_call_its_scores():
    result = _match(
        {"n": 1, "flag": True, "note": "x", "count": 10}, {"n": "1", "note": "y", "z": 0}
    )
    assert result.error_kind == "missing_parameter"
    assert result.per_parameter == {
        "count": "default", "flag": "missing", "n": "wrong_type", "note": "wrong_value",
        "z": "extra",
    }  # fmt: skip
    result = match.match_call(
        SCHEMA, {"name": "a", "arguments": {}}, {"name": "b", "arguments": {}}
    )
    assert (result.error_kind, result.name_f1, result.value_f1) == ("wrong_tool", 0.0, 0.0)
    assert match.match_call(SCHEMA, {"name": "a"}, "a()").error_kind == "not_a_call"  # type: ignore[arg-type]
    half = _match({"n": 1, "flag": True}, {"n": 1, "note": "x"})
    assert (half.name_f1, half.value_f1) == (0.5, 0.5)


def test_odd_keys_many_unordered_items_and_nesting_without_end_are_compared():
    assert _match({7: "a", True: 2, 1.5: 3}, {True: 2, 1.5: 3, 7: "a"}, {}).match
    assert _match({None: 3}, {"null": 3}, {}).match
    schema = {"properties": {"s": {"type": "array", "uniqueItems": True}}}
    items = [{"k": i} for i in range(10_000)]
    assert _match({"s": items}, {"s": [*items[1:], items[0]]}, schema).match
    numbers = list(range(10_000))
    assert not _match({"s": numbers}, {"s": [-1, *numbers[:-1]]}, schema).match

    def nested(leaf: Any, depth: int = 5_000) -> Any:
        for _ in range(depth):
            leaf = [leaf]
        return {"tree": leaf}

    assert _match(nested(1), nested(1.0)).match
    assert not _match(nested(1), nested(2)).match


def _doubling(levels: int) -> dict[str, Any]:
    """A schema whose alternatives double with each level: 2^levels ways to read one value."""
    defs = {
        f"l{i}": {
            "properties": {"a": {"anyOf": [{"$ref": f"#/$defs/l{i + 1}"}] * 2}},
            "default": {"a": {}},
        }
        for i in range(levels)
    }
    return {"$defs": {**defs, f"l{levels}": {}}, "properties": {"a": {"$ref": "#/$defs/l0"}}}


@cases(
    "schema",
    _doubling(40),
    {"properties": {"a": {"$ref": "#"}}, "default": {"a": {"a": {}}}},
    {"properties": {"a": {"$ref": "#/properties/b"}, "b": {"$ref": "#/properties/a"}}},
    {"allOf": [{"$ref": "#"}, {"$ref": "#"}], "properties": {"a": {"default": {"a": {"a": 1}}}}},
    {"patternProperties": {"(a+)+$": {"type": "array", "uniqueItems": True}}},
    {"patternProperties": {"(": {}}, "properties": 7, "required": 7, "anyOf": {"a": 1}},
    {"properties": {"a": {"enum": 7, "const": [1], "type": 9, "items": 3, "prefixItems": {}}}},
    {"$ref": 7, "if": 3, "then": [], "dependentSchemas": [], "dependencies": {"a": ["b"]}},
)
def test_a_hostile_schema_takes_bounded_steps_and_still_tells_calls_apart(schema):
    value: Any = {"a" * 30 + "!": 1}
    for _ in range(40):
        value = {"a": value}
    assert _match(value, json.loads(json.dumps(value)), schema).match
    assert not _match(value, {"a": 1}, schema).match


anything = json_values(values | st.floats() | st.integers(), leaves=8)
WORDS = ("properties", "anyOf", "oneOf", "allOf", "items", "$ref", "default", "enum", "type")
odd_texts = st.sampled_from(["#", "#/properties/a", "#x", "object", "array"])
odd_schemas = json_values(anything | odd_texts, st.sampled_from(WORDS))


@examples(60)
@given(odd_schemas, anything, anything)
def test_no_json_makes_it_raise(schema, want, have):
    for item, other in ((want, have), (have, want), (want, want)):
        built = {"name": "t", "arguments": other}
        result = match.match_call(schema, {"name": "t", "arguments": item}, built)
        assert (result.error_kind is None) is result.match
        assert result.error_kind in (None, *match.SINGLE)
    assert match.match_call(schema, {"name": want}, have).match in (True, False)


@examples(60)
@given(object_schemas(), st.dictionaries(st.text(max_size=3), anything, max_size=4))
def test_a_call_matches_itself_whatever_its_keys_order(schema, arguments):
    assert _match(arguments, dict(reversed(arguments.items())), schema).match


@examples(50)
@given(calls(), calls())
def test_matching_is_symmetric(item, other):
    there, back = _match(item[1], other[1], item[0]), _match(other[1], item[1], item[0])
    assert (there.match, there.name_f1, there.value_f1) == (back.match, back.name_f1, back.value_f1)


@examples(60)
@given(object_schemas(), *[st.dictionaries(st.sampled_from("abc"), values, max_size=2)] * 3)
def test_calls_that_match_a_third_match_each_other(schema, a, b, c):
    if _match(a, b, schema).match and _match(b, c, schema).match:
        assert _match(a, c, schema).match


@examples(50)
@given(calls())
def test_one_changed_argument_is_the_only_one_told(call):
    schema, arguments = call
    for name in arguments:
        changed = _match(arguments, {**arguments, name: {"not": "that"}}, schema)
        assert changed.per_parameter[name] == "wrong_type"
        assert set(changed.per_parameter.values()) <= {"match", "wrong_type"}


SCHEMAS: dict[str, Any] = {
    "t": {"type": "object", "properties": {"a": {"type": "integer", "default": 1}}},
    "mail": {"properties": {"to": {"type": "string"}, "tags": {"uniqueItems": True}}},
}


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


some_names, small = st.sampled_from(["t", "mail", "other"]), st.integers(0, 2)
inputs = st.dictionaries(st.sampled_from(["a", "to"]), small | st.sampled_from("xy"), max_size=2)
some_calls = st.lists(st.fixed_dictionaries({"name": some_names, "arguments": inputs}), max_size=4)
rows = st.integers(1, 6).map(
    lambda width: st.lists(st.integers(0, 9), min_size=width, max_size=width)
)


@given(rows.flatmap(lambda row: st.lists(row, min_size=1, max_size=6)))
def test_no_other_assignment_gains_more(gains):
    result = match.assign_rows(gains)
    used = [column for column in result if column is not None]
    wide = max(len(gains), len(gains[0]))
    assert len(used) == len(set(used)) == min(len(gains), len(gains[0]))
    padded = [[*row, *[0] * (wide - len(row))] for row in gains]
    best = max(
        sum(padded[row][column] for row, column in enumerate(order[: len(gains)]))
        for order in itertools.permutations(range(wide))
    )
    assert sum(gains[row][c] for row, c in enumerate(result) if c is not None) == best


DEFAULT, TWO, THREE = call("t"), call("t", a=2), call("t", a=3)


@cases(
    "expected, called, assigned, error_kind",
    # a greedy match would give the second expected call to the first
    ([DEFAULT, TWO], [TWO, call("t", a=1)], [1, 0], None),
    ([DEFAULT, TWO], [TWO], [None, 0], "too_few_calls"),
    ([DEFAULT], [TWO, call("t", a=1)], [1], "too_many_calls"),
    ([TWO, THREE], [TWO, TWO], [0, None], "wrong_value"),
    ([DEFAULT], [], [None], "no_call"),
    ([], [], [], None),
    ([], [DEFAULT], [], "too_many_calls"),
)
def test_parallel_calls_are_assigned_in_any_order(expected, called, assigned, error_kind):
    result = match.match_parallel(SCHEMAS, expected, called)
    assert (result.assigned, result.error_kind) == (assigned, error_kind)
    assert result.match is (error_kind is None)


def test_each_call_has_its_verdict_and_the_nearest_call_beside_it():
    expected = [call("mail", to="a@b.c", tags=[1, 2]), call("mail", to="d@e.f", tags=[3])]
    called = [call("mail", to="d@e.f", tags=[4]), call("mail", to="a@b.c", tags=[2, 1])]
    result = match.match_parallel(SCHEMAS, expected, called)
    assert (result.match, result.error_kind, result.tool) == (False, "wrong_value", True)
    verdicts = [(item.expected, item.called, item.match) for item in result.calls]
    assert verdicts == [(0, 1, True), (1, 0, False)]
    assert result.calls[1].per_parameter == {"tags": "wrong_value", "to": "match"}
    assert (result.name_f1, result.value_f1) == (1.0, 0.75)


def test_calls_too_few_too_many_and_of_another_tool_are_told():
    two = [call("t", a=2), call("mail", to="x")]
    few = match.match_parallel(SCHEMAS, two, [call("t", a=2)])
    assert (few.error_kind, few.calls[1].error_kind) == ("too_few_calls", "too_few_calls")
    assert few.calls[1].per_parameter == {"to": "missing"}
    assert (few.name_f1, few.tool) == (2 / 3, False)
    many = match.match_parallel(SCHEMAS, two, [*two, call("t", a=3)])
    assert (many.error_kind, many.calls[2].called) == ("too_many_calls", 2)
    assert many.calls[2].per_parameter == {"a": "extra"}
    other = match.match_parallel(SCHEMAS, two, [call("t", a=2), call("nothing", to="x")])
    assert (other.error_kind, other.calls[1].error_kind) == ("wrong_tool", "wrong_tool")
    assert (other.name_f1, other.value_f1, other.tool) == (0.5, 0.5, False)


def test_thousands_of_calls_are_assigned_and_none_without_columns():
    assert match.assign_rows([]) == []
    assert match.assign_rows([[], []]) == [None, None]
    expected = [call("t", a=i) for i in range(1_000)]
    assert match.match_parallel(SCHEMAS, expected, expected[::-1]).match
    wrong = [call("t", a=-i - 1) for i in range(1_000)]
    assert match.match_parallel(SCHEMAS, expected, wrong).assigned.count(None) == 1_000


@examples(50)
@given(some_calls, some_calls, st.randoms())
def test_the_order_of_calls_means_nothing(expected, called, random):
    there = match.match_parallel(SCHEMAS, expected, called)
    for item in (expected, called):
        random.shuffle(item)
    again = match.match_parallel(SCHEMAS, expected, called)
    verdicts = ("match", "error_kind", "tool", "name_f1")
    assert [getattr(there, name) == getattr(again, name) for name in verdicts] == [True] * 4
    assert there.assigned.count(None) == again.assigned.count(None)


@examples(50)
@given(some_calls, some_calls)
def test_as_many_are_fulfilled_as_any_assignment_could(expected, called):
    result = match.match_parallel(SCHEMAS, expected, called)
    fits = [
        [match.match_call(SCHEMAS.get(want["name"], {}), want, have).match for have in called]
        for want in expected
    ]
    width = len(called)
    best = max(
        sum(fits[row][column] for row, column in enumerate(order[: len(fits)]) if column < width)
        for order in itertools.permutations(range(max(len(fits), width)))
    )
    assert len(result.assigned) - result.assigned.count(None) == best


@given(st.lists(values, max_size=3), st.lists(values | st.builds(call, st.just("t")), max_size=3))
def test_no_json_makes_parallel_calls_raise(expected, called):
    result = match.match_parallel({"t": 7}, expected, called)  # type: ignore[dict-item]
    assert result.error_kind in (None, *match.ERROR_KINDS)
    assert len(result.calls) >= max(len(expected), len(called))
    assert 0 <= result.value_f1 <= 1
