"""Repair on golden calls that were broken in one way: what comes back exactly, and what does harm.

The calls were written by a language model. The rule for commas was chosen on the servers of the
training part; these are the others.
"""

import json
import random
import re
from collections import Counter

import pytest

from assets.contracts.canonical import ContractError, canonicalize_contract
from assets.contracts.repair.problems import find_choices, is_required
from assets.contracts.repair.repair import repair_call
from assets.contracts.schema_shapes import collect_properties
from assets.contracts.validate import validate_call
from tests.support.paths import SHARED
from training.sets.split import split_of

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
