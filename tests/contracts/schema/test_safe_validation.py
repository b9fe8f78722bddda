"""Schemas that would run away with the validator that reads them."""

from collections.abc import Callable
from typing import Any

import pytest

from assets.contracts.schema_shapes import limit_steps
from assets.contracts.validate import find_schema_problem, validate_call

X = {"$ref": "#/$defs/x"}


def call_deeper(levels: int, act: Callable[[], Any]) -> Any:
    return call_deeper(levels - 1, act) if levels else act()


@pytest.mark.parametrize(
    "endless",
    [
        X, {"not": X}, {"if": X, "then": {}}, {"allOf": [X]}, {"anyOf": [X, {"type": "null"}]},
        {"oneOf": [X, X]}, {"$dynamicRef": "#/$defs/x"}, {"contains": X, "allOf": [X]},
    ],
)  # fmt: skip
def test_definitions_without_end_are_refused_wherever_the_caller_stands(endless):
    """At one depth in five, `not` and `if` ended the process with a panic of the Rust map."""
    contract = {"inputSchema": {"type": "object", "properties": {"a": X}, "$defs": {"x": endless}}}
    for levels in range(5):
        flaws = call_deeper(levels, lambda: validate_call(contract, {"a": "b"}))
        assert [flaw.kind for flaw in flaws] == ["bad_schema"]


@pytest.mark.parametrize("name", ["https://json-schema.org/draft/2020-12/schema", "odd"])
def test_a_nested_dialect_is_under_the_same_limits(name):
    slow = {"$schema": name, "type": "string", "pattern": "^(a+)+$"}
    contract = {"inputSchema": {"type": "object", "properties": {"a": slow}}}
    (flaw,) = validate_call(contract, {"a": "a" * 60 + "!"})
    assert "takes longer than" in flaw.message or "does not match" in flaw.message
    many = {"$schema": name, "allOf": [{"type": "integer"}] * 50}
    with limit_steps(20):
        contract = {"inputSchema": {"type": "object", "properties": {"a": many}}}
        (flaw,) = validate_call(contract, {"a": 1})
    assert flaw.kind == "bad_schema"
    assert "steps" in flaw.message


@pytest.mark.parametrize("wrap", [lambda s: {"properties": {"p": s}}, lambda s: {"not": s}])
@pytest.mark.parametrize(
    "dialect", [{}, {"$schema": "https://json-schema.org/draft/2020-12/schema"}]
)
def test_a_schema_is_read_to_thirty_levels_and_refused_far_below(wrap, dialect):
    def nest(levels: int) -> dict[str, Any]:
        schema: dict[str, Any] = {"type": "string"}
        for _ in range(levels):
            schema = wrap(schema)
        return {"type": "object", **schema, **dialect}

    assert find_schema_problem(nest(25)) is None
    assert find_schema_problem(nest(150)) == "the schema is nested too deep"


@pytest.mark.parametrize("value", [5, "x", [1]])
@pytest.mark.parametrize("step", [0, -2, "x", [1], None, True])
@pytest.mark.parametrize("by_reference", [False, True])
def test_a_step_that_no_meta_schema_checked_forbids_nothing(value, step, by_reference):
    odd = {"multipleOf": step}
    schema = {"type": "object", "properties": {"a": odd}}
    if by_reference:
        schema |= {"examples": [odd], "properties": {"a": {"$ref": "#/examples/0"}}}
    else:
        schema["$schema"] = "http://json-schema.org/draft-03/schema#"
    assert validate_call({"inputSchema": schema}, {"a": value}) == []


@pytest.mark.parametrize(("power", "more", "flaws"), [(5000, 0, 0), (5000, 1, 1), (3, 1, 1)])
def test_a_whole_number_of_any_size_is_a_multiple_or_not(power, more, flaws):
    schema = {"type": "object", "properties": {"a": {"multipleOf": 10}}}
    assert len(validate_call({"inputSchema": schema}, {"a": 10**power + more})) == flaws
