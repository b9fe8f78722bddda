import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assets.contracts.canonical import ContractError, contract, contract_digest, tool_text
from tests.contracts.strategies import tools

TOOL = {
    "name": "getUserByID",
    "title": "Get user",
    "description": "Finds one user.\r\n\tBy id.  ",
    "inputSchema": {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {
            "id": {"type": "string", "description": "the user's id "},
            "$schema": {"type": "string"},
        },
        "required": ["id", "$schema"],
    },
    "_meta": {"version": 7},
    "icons": [{"src": "x.png"}],
}


def _shuffled(value, rng):
    if isinstance(value, dict):
        items = [(k, _shuffled(v, rng)) for k, v in value.items()]
        rng.shuffle(items)
        return dict(items)
    return [_shuffled(v, rng) for v in value] if isinstance(value, list) else value


@given(tools(), st.integers())
def test_the_order_of_keys_does_not_matter(tool, seed):
    assert contract_digest(_shuffled(tool, random.Random(seed))) == contract_digest(tool)


@given(tools())
def test_a_contract_is_its_own_contract_also_after_a_trip_through_json(tool):
    body = contract(tool)
    assert contract(body) == body
    assert contract_digest(json.loads(json.dumps(body))) == contract_digest(tool)


@given(tools(), st.text(min_size=1, max_size=10).filter(str.strip))
def test_any_added_word_changes_the_digest(tool, word):
    changed = {**tool, "description": f"{tool['description']} {word} x"}
    assert contract_digest(changed) != contract_digest(tool)


def test_what_no_model_reads_does_not_matter():
    bare = {k: v for k, v in TOOL.items() if k not in ("_meta", "icons")}
    schema = {k: v for k, v in TOOL["inputSchema"].items() if k != "$schema"}
    schema["required"] = ["$schema", "id", "id"]
    plain = {**bare, "inputSchema": schema, "description": "Finds one user.\n\tBy id."}
    assert contract_digest(plain) == contract_digest(TOOL)


def test_an_argument_called_schema_is_kept():
    assert "$schema" in contract(TOOL)["inputSchema"]["properties"]


@pytest.mark.parametrize(
    "change",
    [
        {"name": "getUserById"},
        {"title": "Fetch user"},
        {"description": "Finds one user."},
        {"annotations": {"readOnlyHint": True}},
        {"outputSchema": {"type": "object"}},
        {"inputSchema": {**TOOL["inputSchema"], "required": ["id"]}},
    ],
)
def test_everything_a_model_reads_matters(change):
    assert contract_digest({**TOOL, **change}) != contract_digest(TOOL)


def test_an_integer_no_double_holds_is_read_as_javascript_reads_it():
    schema = {"type": "object", "properties": {"n": {"type": "integer", "maximum": 2**63 - 1}}}
    tool = {"name": "t", "inputSchema": schema}
    assert contract(tool)["inputSchema"]["properties"]["n"]["maximum"] == float(2**63)
    assert contract_digest(tool).startswith("c1:")


def test_one_and_one_point_zero_are_the_same_number():
    def tool(n):
        return {"name": "t", "inputSchema": {"type": "object", "default": {"n": n}}}

    assert contract_digest(tool(1)) == contract_digest(tool(1.0)) != contract_digest(tool(True))


@pytest.mark.parametrize(
    ("tool", "says"),
    [
        ({"inputSchema": {}}, "usable name"),
        ({"name": "t"}, "no inputSchema"),
        ({"name": "t", "inputSchema": [1]}, "expected an object"),
        ({"name": "t", "inputSchema": {"default": float("nan")}}, "nan is not a JSON number"),
    ],
)
def test_a_tool_without_a_contract_says_what_is_missing(tool, says):
    with pytest.raises(ContractError, match=says):
        contract(tool)


def test_deep_nesting_is_refused_not_a_crash():
    schema: dict = {"type": "object"}
    for _ in range(3000):
        schema = {"type": "object", "properties": {"a": schema}}
    with pytest.raises(ContractError, match="deeper than"):
        contract({"name": "t", "inputSchema": schema})


def test_a_lone_surrogate_can_be_digested():
    assert contract({"name": "t", "description": "a\ud800b", "inputSchema": {}})


def test_the_text_of_a_tool_holds_its_words_and_its_parameters():
    text = tool_text(contract(TOOL))
    assert text.splitlines()[0] == "get user by id: Get user"
    assert "id: the user's id" in text
    assert tool_text(contract(TOOL), "name") == "get user by id"
    assert "user's id" not in tool_text(contract(TOOL), "brief")
