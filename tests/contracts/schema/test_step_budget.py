"""Third-party schemas may cause so much work and no more; those that run away are refused."""

from collections.abc import Callable
from typing import Any

import pytest
import regex

from assets.contracts import schema_shapes, tool_diff, tool_renames
from assets.contracts import tool_renames as renaming
from assets.contracts.validate import find_schema_problem, validate_call
from tests.contracts.history.test_diff import BASE
from tests.support.cases import cases

X = {"$ref": "#/$defs/x"}


def call_deeper(levels: int, act: Callable[[], Any]) -> Any:
    return call_deeper(levels - 1, act) if levels else act()


@cases(
    "endless",
    X, {"not": X}, {"if": X, "then": {}}, {"allOf": [X]}, {"anyOf": [X, {"type": "null"}]},
    {"oneOf": [X, X]}, {"$dynamicRef": "#/$defs/x"}, {"contains": X, "allOf": [X]},
)  # fmt: skip
def test_definitions_without_end_are_refused_wherever_the_caller_stands(endless):
    """At one depth in five, `not` and `if` ended the process with a panic of the Rust map."""
    contract = {"inputSchema": {"type": "object", "properties": {"a": X}, "$defs": {"x": endless}}}
    for levels in range(5):
        flaws = call_deeper(levels, lambda: validate_call(contract, {"a": "b"}))
        assert [flaw.kind for flaw in flaws] == ["bad_schema"]


@cases("name", "https://json-schema.org/draft/2020-12/schema", "odd")
def test_a_nested_dialect_is_under_the_same_limits(name):
    slow = {"$schema": name, "type": "string", "pattern": "^(a+)+$"}
    contract = {"inputSchema": {"type": "object", "properties": {"a": slow}}}
    (flaw,) = validate_call(contract, {"a": "a" * 60 + "!"})
    assert "takes longer than" in flaw.message or "does not match" in flaw.message
    many = {"$schema": name, "allOf": [{"type": "integer"}] * 50}
    with schema_shapes.limit_steps(20):
        contract = {"inputSchema": {"type": "object", "properties": {"a": many}}}
        (flaw,) = validate_call(contract, {"a": 1})
    assert flaw.kind == "bad_schema"
    assert "steps" in flaw.message


@cases("wrap", lambda s: {"properties": {"p": s}}, lambda s: {"not": s})
@cases("dialect", {}, {"$schema": "https://json-schema.org/draft/2020-12/schema"})
def test_a_schema_is_read_to_thirty_levels_and_refused_far_below(wrap, dialect):
    def nest(levels: int) -> dict[str, Any]:
        schema: dict[str, Any] = {"type": "string"}
        for _ in range(levels):
            schema = wrap(schema)
        return {"type": "object", **schema, **dialect}

    assert find_schema_problem(nest(25)) is None
    assert find_schema_problem(nest(150)) == "the schema is nested too deep"


@cases("value", 5, "x", [1])
@cases("step", 0, -2, "x", [1], None, True)
@cases("by_reference", False, True)
def test_a_step_that_no_meta_schema_checked_forbids_nothing(value, step, by_reference):
    odd = {"multipleOf": step}
    schema = {"type": "object", "properties": {"a": odd}}
    if by_reference:
        schema |= {"examples": [odd], "properties": {"a": {"$ref": "#/examples/0"}}}
    else:
        schema["$schema"] = "http://json-schema.org/draft-03/schema#"
    assert validate_call({"inputSchema": schema}, {"a": value}) == []


@cases("power, more, flaws", (5000, 0, 0), (5000, 1, 1), (3, 1, 1))
def test_a_whole_number_of_any_size_is_a_multiple_or_not(power, more, flaws):
    schema = {"type": "object", "properties": {"a": {"multipleOf": 10}}}
    assert len(validate_call({"inputSchema": schema}, {"a": 10**power + more})) == flaws


Schema = dict[str, Any]


def doubling(levels: int, leaf: Schema) -> Schema:
    pieces = {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(levels)}
    values = {"enum": [1, 2], "$ref": "#/$defs/d0"}
    return {"type": "object", "properties": {"a": values}, "$defs": {**pieces, f"d{levels}": leaf}}


def tool(schema: Schema, name: str = "t") -> dict[str, Any]:
    return {"name": name, "inputSchema": schema}


def test_a_limit_counts_holds_inner_ones_too_and_charges_slow_searches_alone_by_the_clock():
    with schema_shapes.limit_steps(3) as outer:
        with schema_shapes.limit_steps(2), pytest.raises(schema_shapes.TooMuchWork):
            schema_shapes.spend_steps(3)
        assert outer.left == 0
        with pytest.raises(schema_shapes.TooMuchWork):
            schema_shapes.spend_steps()
    schema_shapes.spend_steps(10**9)  # no limit holds here
    with schema_shapes.limit_steps(100) as limit:
        schema_shapes.spend_seconds(0.001)
        assert limit.left == 100
        with pytest.raises(schema_shapes.TooMuchWork):
            schema_shapes.spend_seconds(0.1)


def test_a_schema_that_doubles_or_compares_each_item_with_each_is_given_up():
    [flaw] = validate_call(tool(doubling(40, {"maximum": 3})), {"a": 1})
    assert (flaw.kind, "steps" in flaw.message) == ("bad_schema", True)
    assert validate_call(tool(doubling(4, {"maximum": 3})), {"a": 1}) == []
    schema = {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True}}}
    few, many = ([{"x": i} for i in range(n)] for n in (50, 2_000))
    assert validate_call(tool(schema), {"a": few}) == []
    [flaw] = validate_call(tool(schema), {"a": many})
    assert flaw.kind == "bad_schema"


def test_patterns_without_end_cost_what_they_may_and_no_more(monkeypatch):
    request = []

    def slow(pattern: str, text: str, timeout: float) -> None:
        request.append(pattern)
        raise TimeoutError

    clock = iter(range(10**6))
    monkeypatch.setattr(regex, "search", slow)
    monkeypatch.setattr("assets.contracts.validate.clock.perf_counter", lambda: next(clock) * 0.1)
    properties = {f"p{i}": {"pattern": "(a+)+$"} for i in range(500)}
    schema = {"type": "object", "properties": properties}
    [flaw] = validate_call(tool(schema), dict.fromkeys(properties, "aaaa"))
    assert flaw.kind == "bad_schema"
    assert len(request) <= 21


def test_a_tool_that_cannot_be_compared_whole_is_breaking_and_leaves_others_theirs():
    old, new = (tool(doubling(40, {"maximum": most})) for most in (3, 2))
    new["inputSchema"]["properties"]["b"] = {"type": "string"}
    [change] = tool_diff.compare_tools([old], [new])
    assert (change.cls, change.fields) == ("breaking", ("inputSchema",))
    assert tool_diff.NOT_WHOLE in change.why
    bad = [tool(doubling(40, {"maximum": most}), "a") for most in (3, 2)]
    good = [{**BASE, "description": text} for text in ("Old words.", "New words.")]
    result = {c.tool: c.cls for c in tool_diff.compare_tools([bad[0], good[0]], [bad[1], good[1]])}
    assert result == {"a": "breaking", "search": "wording"}


def test_a_list_of_entangled_tools_shares_one_budget(monkeypatch):
    used = []
    limit = "assets.contracts.tool_diff.StepLimit"
    monkeypatch.setattr(
        limit, lambda left: used.append(schema_shapes.StepLimit(left // 10)) or used[-1]
    )
    old, new = (
        [tool(doubling(40, {"maximum": most}), f"t{i}") for i in range(30)] for most in (3, 2)
    )
    assert {change.cls for change in tool_diff.compare_tools(old, new)} == {"breaking"}
    [limit] = used
    assert -1_000 < limit.left < 0  # spent once, not thirty times


def test_renames_are_looked_for_within_a_budget(monkeypatch):
    gone = {f"o{i}": {"description": f"word {'x ' * 40}{i}", "inputSchema": {}} for i in range(60)}
    come = {f"n{i}": {"description": f"{'x ' * 40}{i} word", "inputSchema": {}} for i in range(60)}
    twin = {"description": "The very same text as before.", "inputSchema": {}}
    assert len(tool_renames.find_renames(gone, come)) == 60
    monkeypatch.setattr(renaming, "_MAX_STEPS", 100)
    renames = tool_renames.find_renames({**gone, "old": twin}, {**come, "new": twin})
    assert renames["new"] == "old"
    assert len(renames) < 20
