"""Old contracts out of what was published; wrong calls that are wrong, near the right one."""

import copy
import json
import random
from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from assets.contracts.canonical import canonicalize_contract, contract_digest
from assets.contracts.snapshot import SNAPSHOTS
from assets.contracts.validate import validate_call
from assets.synthesis.offline.provider import answer_requests
from assets.synthesis.old_contracts import find_renamed_parameters, read_old_contracts
from assets.synthesis.wrong_calls import make_wrong_call
from tests.support.cases import cases
from tests.support.examples import examples
from tests.synthesis.contracts import ALL, CREATE_ISSUE, PING, make_tool

Tool = dict[str, Any]
STRING = {"type": "string"}
WRITE: Tool = make_tool(
    "write_note",
    "Write a short note into the notebook of a project",
    {
        "projectKey": {**STRING, "description": "Key of the project"},
        "words": {**STRING, "description": "What the note says"},
        "priority": {"type": "string", "enum": ["low", "high"]},
    },
    *("projectKey", "words"),
)
ABOUT = {**STRING, "description": "A word of the note"}
FIND: Tool = make_tool(
    "find_note", "Look up notes by a word that they hold", {"word": ABOUT}, "word"
)


def edited(tool: Tool, edit: Callable[[Tool], object]) -> Tool:
    result = copy.deepcopy(tool)
    edit(result)
    return result


def snapshot(raw: dict[str, Any], server: str = "npm:notes") -> dict[str, Any]:
    facts = {"marketplace": "registry", "schema_problem": None, "license": "MIT"}
    return facts | {
        "server_id": server, "tool": raw["name"], "contract_digest": contract_digest(raw),
        "contract": json.dumps(canonicalize_contract(raw)), "recipe_digest": "r" * 64,
    }  # fmt: skip


def test_old_contracts_come_from_what_was_published(warehouse):
    tables = warehouse.tables
    titled = edited(WRITE, lambda tool: tool.update(title="Note"))
    versions = [(WRITE, FIND), (titled, FIND), (FIND,)]
    for tools in versions:
        rows = [{k: v for k, v in snapshot(t).items() if k != "license"} for t in tools]
        tables.promote(tables.stage(SNAPSHOTS, SNAPSHOTS.frame(rows), "registry"), "t", [])
    first = snapshot(WRITE)["contract_digest"]
    old_contracts = read_old_contracts(tables, {first, "c1:" + "0" * 64}, "registry")
    beside = snapshot(FIND)["contract_digest"]
    assert old_contracts.keys() == {first, beside}
    assert json.loads(old_contracts[first]["contract"]) == canonicalize_contract(WRITE)
    assert read_old_contracts(tables, {first}) == old_contracts
    assert read_old_contracts(tables, set()) == {}


def described(words: str) -> dict[str, str]:
    return {**STRING, "description": words}


ON_DISK = described("Where the file lies on disk")
AIRPORT = described("Code of the airport")
WAIT = {"type": "integer", "description": "Time to wait"}


@cases(
    "before, after, renamed",
    ({"userId": STRING}, {"user_id": STRING}, {"userId": "user_id"}),
    ({"lang": described("Language spoken")}, {"locale": described("language spoken.")},
     {"lang": "locale"}),
    ({"path": ON_DISK}, {"file_path": ON_DISK}, {"path": "file_path"}),
    ({"start_date": STRING}, {"end_date": STRING}, {}),
    ({"min_price": STRING}, {"max_price": STRING}, {}),
    ({"price": STRING}, {"max_price": STRING}, {}),
    ({"id": STRING}, {"parent_id": STRING}, {}),
    ({"timeout_seconds": {"type": "integer"}}, {"timeout_ms": {"type": "integer"}}, {}),
    ({"city": STRING}, {"country": STRING}, {}),
    ({"q": STRING}, {"query": STRING}, {}),
    ({"label": STRING}, {"labels": {"type": "array", "items": STRING}}, {}),
    ({"options": {"type": "object", "properties": {"depth": {"type": "integer"}}}},
     {"depth": {"type": "integer"}}, {}),
    ({"from": AIRPORT}, {"to": AIRPORT}, {}),
    ({"wait": WAIT}, {"wait_ms": WAIT}, {}),
    ({"name": STRING}, {"author": {"type": "object", "properties": {"name": STRING}}}, {}),
    ({"repo": described("Name of the repository")},
     {"org": described("Name of the organization")}, {}),
    ({"userId": STRING}, {"user_id": STRING, "userID": STRING}, {}),
    ({"a": STRING}, {"b": STRING}, {}),
)  # fmt: skip
def test_only_a_plain_rename_counts(before, after, renamed):
    schemas = [{"type": "object", "properties": properties} for properties in (before, after)]
    assert find_renamed_parameters(*schemas) == renamed


Json = Any


@examples(60)
@given(st.sampled_from(ALL), st.integers(0, 10_000))
def test_a_wrong_call_is_refused_and_its_error_is_the_validators(tool, seed):
    right = answer_requests({"contract": tool, "count": 1}, seed % 7)["requests"][0]["values"]
    wrong = make_wrong_call(tool, right, random.Random(seed))
    assert wrong
    flaws = validate_call(tool, wrong.arguments)
    assert wrong.kind in {flaw.kind for flaw in flaws}
    message = wrong.error
    if message.startswith("{"):
        message = json.loads(message)["error"]["message"]
    assert any(flaw.message in message for flaw in flaws)
    assert wrong == make_wrong_call(tool, right, random.Random(seed))
    # One thing is wrong with it; the rest is as it was.
    rows_kept = set(wrong.arguments) & set(right)
    assert sum(wrong.arguments[name] != right[name] for name in rows_kept) <= 1
    assert len(set(wrong.arguments) ^ set(right)) <= 2


def test_every_kind_of_wrong_call_is_made():
    right = {"project_key": "OPS", "title": "Tap", "priority": "low", "estimate": 3}
    answer = [make_wrong_call(CREATE_ISSUE, right, random.Random(seed)) for seed in range(40)]
    assert {item.kind for item in answer if item} == {
        "wrong_type", "missing_required", "unknown_argument",
    }  # fmt: skip
    assert {item.error.split(":")[0].split(" -")[0] for item in answer if item} >= {
        "Input validation error", "MCP error", '{"error"',
    }  # fmt: skip
    wrong = make_wrong_call(PING, {}, random.Random(0))
    assert wrong
    assert wrong.kind == "unknown_argument"


@cases("value", True, 3, 2.5, "x", ["a", "b"], {"a": 1}, ids=lambda value: type(value).__name__)
def test_a_value_of_any_type_has_a_wrong_neighbour(value):
    kind = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array",
            dict: "object"}[type(value)]  # fmt: skip
    tool = {"name": "t", "inputSchema": {"type": "object", "properties": {"v": {"type": kind}}}}
    calls = [make_wrong_call(tool, {"v": value}, random.Random(seed)) for seed in range(30)]
    assert {call.kind for call in calls if call} == {"wrong_type", "unknown_argument"}
