"""Problems say what to do; golden calls that were broken in one way come back."""

import json
import random
import re
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assets.contracts.canonical import ContractError, canonicalize_contract
from assets.contracts.repair.problems import (
    find_choices,
    find_output_problems,
    find_problems,
    is_required,
)
from assets.contracts.repair.repair import repair_call
from assets.contracts.schema_shapes import collect_properties
from assets.contracts.validate import validate_call
from tests.contracts.repair.test_repair import TOOL
from tests.contracts.strategies import calls, values
from tests.support.cases import cases
from tests.support.paths import SHARED
from training.sets.split import split_of


def one(arguments):
    (problem,) = find_problems(TOOL, arguments)
    return problem


def test_a_wrong_type_names_both_types():
    assert one({"userId": "five"}) == {
        "path": "$.userId", "kind": "wrong_type", "found": 'string "five"', "expected": "integer",
        "fix": "give integer, not as text",
    }  # fmt: skip


@cases(
    "arguments, path, expected, fix",
    ({}, "$.userId", "'userId': integer", "give 'userId'"),
    ({"userId": 5, "units": "K"}, "$.units", 'one of "metric", "imperial"', "give one of"),
    ({"userId": 5, "colour": 1}, "$.colour", "only ", "leave 'colour' out"),
    ({"userId": 5, "unit": 1}, "$.unit", "only ", "call it 'units'"),
    ({"userId": 5, "live": None}, "$.live", "boolean", "leave 'live' out, or give boolean"),
    ({"userId": 5, "tags": ["a", 2]}, "$.tags[1]", "string", "give string"),
    ({"userId": 5, "where": {}}, "$.where.lat", "'lat': number", "give 'lat'"),
    ([], "$", "an object of arguments", "give the arguments by name"),
    (None, "$", "an object of arguments", "give the arguments by name"),
)
def test_each_problem_has_its_place_what_was_expected_and_the_mend(arguments, path, expected, fix):
    problem = one(arguments)
    assert problem["path"] == path
    assert problem["expected"].startswith(expected)
    assert problem["fix"].startswith(fix)


def test_a_missing_name_and_the_one_that_was_meant_are_told_together():
    missing, unknown = find_problems(TOOL, {"user_id": 5})
    assert missing["fix"] == "give 'userId'; 'user_id' may have been meant for it"
    assert unknown["fix"] == "call it 'userId'"


def test_a_name_with_a_dot_is_one_name():
    schema = {"type": "object", "properties": {"a.b": {"type": "object", "properties": {"c d": {
        "type": "integer", "minimum": 3}}}}}  # fmt: skip
    (problem,) = find_problems({"inputSchema": schema}, {"a.b": {"c d": 1}})
    assert problem["path"] == '$["a.b"]["c d"]'
    assert problem["expected"] == "integer, at least 3"


def test_long_values_are_cut():
    problem = one({"userId": "x" * 100_000})
    assert len(json.dumps(problem)) < 500


def test_what_an_output_adds_is_no_problem():
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    tool = {"outputSchema": schema}
    assert find_output_problems(tool, {"n": 1, "m": 2}) == []
    assert find_output_problems({}, None) == []
    assert find_output_problems(tool, {"n": "1"})[0]["path"] == "structuredContent.n"
    assert find_output_problems(tool, None)[0]["found"] == "nothing"


@given(st.one_of(calls().map(lambda call: call[0]), values), values)
def test_problems_are_json_whatever_was_sent(schema, arguments):
    for problem in find_problems({"inputSchema": schema}, arguments):
        assert set(problem) == {"path", "kind", "found", "expected", "fix"}
        json.dumps(problem)
        assert problem["path"].startswith("$")


DATA = SHARED
pytestmark = pytest.mark.shared


@pytest.fixture(scope="module")
def golden():
    """(contract, arguments) of good rows of servers that no rule was fitted on."""
    listing = DATA / "smithery" / "servers.jsonl"
    if not listing.exists():
        pytest.skip(f"the development data is not at {DATA}")
    expected = [
        row
        for path in sorted((DATA / "corpus").glob("pairs_A*.jsonl"))
        for row in map(json.loads, path.read_text().splitlines())
        if row["kind"] != "flawed" and split_of(row["tool_id"].partition("::")[0]) == "test"
    ]
    ids = {row["tool_id"] for row in expected}
    tools = {}
    for server in map(json.loads, listing.open()):
        for tool in server["tools"]:
            tool_id = f"{server['qualified_name']}::{tool['name']}"
            if tool_id in ids:
                try:
                    tools[tool_id] = canonicalize_contract(tool)
                except ContractError:
                    continue
    return [
        (tools[row["tool_id"]], row["arguments"]) for row in expected if row["tool_id"] in tools
    ]


def _other_case(name):
    words = [word for word in re.split(r"[^A-Za-z0-9]+|(?<=[a-z0-9])(?=[A-Z])", name) if word]
    snake = "_".join(word.lower() for word in words)
    return snake if snake != name else name.upper()


def _at(test, make):
    """Breaks one argument that the test holds for."""

    def broken(draw, _, arguments):
        names = [name for name in arguments if test(arguments[name])]
        if not names:
            return None
        name = draw.choice(names)
        return {**arguments, name: make(arguments[name])}

    return broken


def _renamed(make):
    def broken(draw, tool, arguments):
        if not arguments:
            return None
        name = draw.choice(list(arguments))
        properties = collect_properties(tool["inputSchema"], tool["inputSchema"])
        if make(name) in properties:
            return None
        return {make(name) if key == name else key: item for key, item in arguments.items()}

    return broken


def _shouted(draw, tool, arguments):
    root = tool["inputSchema"]
    properties = collect_properties(root, root)
    names = [
        name
        for name, item in arguments.items()
        if isinstance(item, str) and find_choices(properties.get(name, {}), root)
    ]
    return {**arguments, (name := draw.choice(names)): arguments[name].upper()} if names else None


def _nulled(draw, tool, arguments):
    root = tool["inputSchema"]
    names = [
        name
        for name in collect_properties(root, root)
        if name not in arguments and not is_required(root, (name,))
    ]
    return {**arguments, draw.choice(names): None} if names else None


BROKEN = {
    "JSON text": lambda _, __, arguments: json.dumps(arguments),
    "wrapped": lambda _, tool, arguments: {"name": tool["name"], "arguments": arguments},
    "a number as text": _at(lambda item: type(item) in (int, float), str),
    "a boolean as text": _at(lambda item: isinstance(item, bool), str),
    "a list as text": _at(lambda item: isinstance(item, list), json.dumps),
    "an object as text": _at(lambda item: isinstance(item, dict), json.dumps),
    "a value in a list": _at(lambda item: isinstance(item, str), lambda item: [item]),
    "a name in another case": _renamed(_other_case),
    "a choice in capitals": _shouted,
    "null for what is absent": _nulled,
}


@pytest.mark.parametrize("way", BROKEN)
def test_a_call_that_was_broken_in_one_way_comes_back(golden, way):
    draw, actual = random.Random(7), Counter()
    for tool, arguments in golden:
        broken = BROKEN[way](draw, tool, arguments)
        if broken is None or not validate_call(tool, broken):
            continue
        result = repair_call(tool, broken)
        exact = json.dumps(result.arguments, sort_keys=True) == json.dumps(
            arguments, sort_keys=True
        )
        actual["exact" if exact else "left" if result.problems_left else "harm"] += 1
    assert actual["exact"] >= 0.97 * actual.total(), actual
    assert actual["harm"] <= 0.005 * actual.total(), actual
    assert actual.total() >= 10
