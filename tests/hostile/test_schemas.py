"""Untrusted servers with schemas as weapons: what is listed is kept and checked without harm."""

import json
import socket
import subprocess
import sys

import pytest

from assets.contracts.canonical import ContractError, contract_digest, index_contracts
from assets.contracts.tool_diff import compare_tools
from assets.contracts.validate import find_schema_problem, validate_call
from assets.servers.deploy.deploy import DeploymentResult
from tests.support.paths import ROOT
from tests.support.untrusted_server import probe_source, tool_names


def listed(tmp_path, schema):
    """The tools of a server whose tool `x` has this schema (Python source)."""
    result = probe_source(tmp_path, f"serve([tool('a'), {{'name': 'x', 'inputSchema': {schema}}}])")
    assert (result.status, tool_names(result)) == ("ok", ["a", "x"]), result.hint
    assert DeploymentResult.from_json(DeploymentResult(result).to_json()).probe == result
    return result.tools


def test_a_remote_ref_is_never_fetched(tmp_path):
    """Through probe, contract, schema check and the check of a call, nobody knocks."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/schema.json"
        schema = {
            "type": "object",
            "$schema": url,
            "$id": url,
            "properties": {"a": {"$ref": url}, "b": {"$dynamicRef": f"{url}#x"}},
            "allOf": [{"$ref": f"{url}#/definitions/x"}],
        }
        for one in (schema, {**schema, "$schema": "https://json-schema.org/draft/2020-12/schema"}):
            tools = listed(tmp_path, repr(one))
            for body in index_contracts(tools)[0].values():
                find_schema_problem(body["inputSchema"])
                validate_call(body, {"a": 1, "b": 2})
                changed = {**body, "inputSchema": {**body["inputSchema"], "required": ["a"]}}
                compare_tools([body], [changed])
            contract_digest(tools[1])
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            listener.accept()


CALLS = """
import json, sys
sys.path.insert(0, sys.argv[1])
from assets.contracts.canonical import index_contracts
from assets.contracts.validate import find_schema_problem, validate_call
for body in index_contracts(json.loads(sys.stdin.read()))[0].values():
    problem = find_schema_problem(body["inputSchema"])
    flaws = validate_call(body, {"a": "a" * 5000 + "!", "b": [1] * 50, "c": {"c": {"c": 1}}})
    print(json.dumps([body["name"], bool(problem), len(flaws)]), flush=True)
"""

HEAVY = {
    "a pattern that backtracks": {"properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}},
    "nested stars": {"properties": {"a": {"pattern": "^((a*)*)*b$"}}},
    "overlapping alternatives": {"properties": {"a": {"pattern": "^(a|aa|a?)+$"}}},
    "patternProperties that backtrack": {"patternProperties": {"^(a|a)*b": {"type": "string"}}},
    "a pattern of 100 kB": {"properties": {"a": {"pattern": "(a?){50}" * 12_000}}},
    "a pattern that is none": {"properties": {"a": {"pattern": "(((("}}},
    "a counted repetition": {"properties": {"a": {"pattern": "^(a{1,999}){1,999}b$"}}},
    "a reference to itself": {"$ref": "#"},
    "references in a ring": {
        "$ref": "#/$defs/x",
        "$defs": {"x": {"$ref": "#/$defs/y"}, "y": {"$ref": "#/$defs/x"}},
    },
    "alternatives that multiply": {
        "$defs": {
            str(i): {"anyOf": [{"$ref": f"#/$defs/{i + 1}"}] * 4} if i < 20 else {"not": {}}
            for i in range(21)
        },
        "properties": {"a": {"$ref": "#/$defs/0"}},
    },
    "a multiple of almost nothing": {"properties": {"b": {"items": {"multipleOf": 1e-300}}}},
    "ten thousand members": {"properties": {f"p{i}": {"type": "string"} for i in range(10_000)}},
}


@pytest.fixture(scope="module")
def checked(tmp_path_factory):
    """{tool: (has a bad schema, number of flaws)} of one server that lists them all, each checked
    in another process; one that hangs is killed after three minutes, what follows is missing."""
    schemas = {name: {"type": "object", **schema} for name, schema in HEAVY.items()}
    listed = [{"name": name, "inputSchema": schema} for name, schema in schemas.items()]
    source = f"serve(json.loads({json.dumps(listed)!r}))"
    result = probe_source(tmp_path_factory.mktemp("heavy"), source)
    assert tool_names(result) == list(HEAVY), result.hint
    argv, tools = [sys.executable, "-c", CALLS, str(ROOT)], json.dumps(result.tools).encode()
    try:
        out = subprocess.run(argv, input=tools, stdout=subprocess.PIPE, timeout=180).stdout
    except subprocess.TimeoutExpired as error:
        out = error.stdout or b""
    lines = [json.loads(line) for line in out.splitlines()]
    return {name: (bad, flaws) for name, bad, flaws in lines}


@pytest.mark.parametrize("name", HEAVY)
def test_a_call_against_it_is_checked_all_the_same(name, checked):
    bad, flaws = checked[name]
    assert bad or flaws


def test_the_deepest_list_that_is_heard_can_be_kept_and_printed(tmp_path):
    """What is passed on must survive every recursion behind us; deeper is refused on arrival."""
    deep = '{"a":' * 110 + "1" + "}" * 110
    tools = listed(tmp_path, f"json.loads({deep!r})")
    json.dumps(tools)
    try:
        contract_digest(tools[1])
    except ContractError:
        return
    assert "x" in index_contracts(tools)[0]


def test_half_a_surrogate_can_be_kept_and_printed(tmp_path):
    result = probe_source(tmp_path, "serve([{**tool('b'), 'description': 'x' + chr(0xd800)}])")
    assert tool_names(result) == ["b"]
    again = DeploymentResult.from_json(DeploymentResult(result).to_json())
    assert again.probe.tools == result.tools
    for body in index_contracts(result.tools)[0].values():
        json.dumps(body).encode()
