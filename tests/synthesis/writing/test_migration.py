"""Migration: what moves with a row, what retires it, and how arguments follow their contract."""

import copy
import json
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assets.contracts.canonical import canonicalize_contract
from assets.contracts.snapshot import SNAPSHOTS
from assets.contracts.validate import validate_call
from assets.synthesis.tables import ONE_CALL, PAIRS, TASKS, dump_text, make_pair_id, read_goldens
from assets.synthesis.writing.migration import (
    UnmovablePair,
    migrate_pairs,
    read_old_contracts,
    rewrite_arguments,
)
from tests.contracts.random_schemas import next_version as any_version
from tests.contracts.random_schemas import value_for, whole
from tests.support.examples import examples
from tests.synthesis.contract_versions import (
    BREAKING,
    COMPATIBLE,
    called,
    next_version,
    snapshot,
    tool,
)
from warehouse.store import Warehouse

Tool = dict[str, Any]
STRING = {"type": "string"}
WRITE: Tool = {
    "name": "write_note",
    "description": "Write a short note into the notebook of a project",
    "inputSchema": {
        "type": "object",
        "properties": {
            "projectKey": {**STRING, "description": "Key of the project"},
            "words": {**STRING, "description": "What the note says"},
            "priority": {"type": "string", "enum": ["low", "high"]},
        },
        "required": ["projectKey", "words"],
    },
}
FIND: Tool = {
    "name": "find_note",
    "description": "Look up notes by a word that they hold",
    "inputSchema": {
        "type": "object",
        "properties": {"word": {**STRING, "description": "A word of the note"}},
        "required": ["word"],
    },
}
SAID = {"projectKey": "APOLLO", "words": "buy more paint"}
ASK = "Please note down 'buy more paint' for APOLLO."


def edited(tool: Tool, edit: Callable[[Tool], object]) -> Tool:
    result = copy.deepcopy(tool)
    edit(result)
    return result


def spelt_otherwise(tool: Tool) -> None:
    of = tool["inputSchema"]["properties"]
    of["project_key"] = of.pop("projectKey")
    tool["inputSchema"]["required"] = ["project_key", "words"]


def row(task: str = "single", **columns: Any) -> dict[str, Any]:
    base = snapshot(WRITE)
    golden = {k: base[k] for k in ("server_id", "tool", "contract_digest")}
    golden |= {"arguments": SAID, "borrowed": []}
    pair_row = dict.fromkeys(PAIRS.columns) | {
        **{k: base[k] for k in ("marketplace", "server_id", "tool", "contract_digest", "license")},
        "recipe_digest": "0" * 64, "plan_digest": "p", "task": task, "index": 0, "seed": 7,
        "kind": "direct", "instruction": ASK, "arguments": dump_text(SAID), "usd": 0.25,
        "calls": dump_text([golden]),
        "messages": dump_text([{"role": "user", "content": ASK}, call("c0", WRITE, SAID)]),
        "contracts": dump_text([base["contract_digest"], snapshot(FIND)["contract_digest"]]),
        "offered": dump_text([snapshot(FIND)["contract_digest"], base["contract_digest"]]),
        "checks": dump_text({"candidates": [base["contract_digest"]],
                           "picks": {"checker_a": base["contract_digest"]}}),
        "steps": dump_text([{"step": "generate", "role": "generator", "usd": 0.25}]),
        "prompt_tokens": 90, "completion_tokens": 30, "status": "ok", "verdict": "accept",
        "flaws": "[]", "cosine": 0.3,
        **columns,
    }  # fmt: skip
    return {**pair_row, "pair_id": make_pair_id(pair_row)}


def call(name: str, tool: Tool, arguments: Any) -> dict[str, Any]:
    function = {"name": tool["name"], "arguments": json.dumps(arguments)}
    calls = [{"id": name, "type": "function", "function": function}]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def old(*tools: Tool) -> dict[str, Any]:
    return {item["contract_digest"]: item for item in map(snapshot, tools or (WRITE, FIND))}


def now(*tools: Tool) -> dict[str, Any]:
    return {f"{item['server_id']}/{item['tool']}": item for item in map(snapshot, tools)}


def moved(item: dict[str, Any], *tools: Tool) -> dict[str, Any]:
    answer = migrate_pairs([item], old(), now(*tools))
    assert answer.retired == []
    return answer.moved[0]


def retired(item: dict[str, Any], *tools: Tool, **options: Any) -> str:
    answer = migrate_pairs([item], old(), now(*tools), **options)
    assert answer.moved == []
    assert answer.retired[0][0] == item["pair_id"]
    return answer.retired[0][1]


def test_a_renamed_parameter_moves_in_every_column() -> None:
    new, before = edited(WRITE, spelt_otherwise), row()
    after = moved(before, new, FIND)
    digest = snapshot(new)["contract_digest"]
    arguments = {"project_key": "APOLLO", "words": "buy more paint"}
    assert json.loads(after["arguments"]) == arguments
    assert read_goldens(after)[0].arguments == arguments
    [answer] = json.loads(after["messages"])[1]["tool_calls"]
    assert json.loads(answer["function"]["arguments"]) == arguments
    assert after["contract_digest"] == read_goldens(after)[0].contract_digest == digest
    assert json.loads(after["offered"]) == [snapshot(FIND)["contract_digest"], digest]
    assert json.loads(after["contracts"]) == [digest, snapshot(FIND)["contract_digest"]]
    assert json.loads(after["checks"]) == {"candidates": [digest], "picks": {"checker_a": digest}}
    assert (after["instruction"], after["verdict"]) == (ASK, "accept")


def test_a_moved_row_knows_whose_words_it_holds_and_bought_nothing() -> None:
    before = row()
    once = moved(before, edited(WRITE, spelt_otherwise), FIND)
    assert once["migrated_from"] == before["pair_id"] != once["pair_id"] == make_pair_id(once)
    *bought, step = json.loads(once["steps"])
    assert bought == json.loads(before["steps"])
    assert (step["step"], step["usd"], step["prompt_tokens"]) == ("migrate", 0.0, 0)
    assert (once["usd"], once["model"], once["cosine"]) == (0.25, before["model"], None)
    third = edited(edited(WRITE, spelt_otherwise), lambda t: t.update(title="Note"))
    answer = migrate_pairs([once], old(edited(WRITE, spelt_otherwise), FIND), now(third, FIND))
    [twice] = answer.moved
    assert twice["migrated_from"] == before["pair_id"]  # the first: its words
    links = [json.loads(twice["steps"])[i]["from"] for i in (-2, -1)]
    assert links == [before["pair_id"], once["pair_id"]]  # and the whole chain


def test_a_renamed_tool_is_called_by_its_new_name() -> None:
    after = moved(row(), edited(WRITE, lambda t: t.update(name="add_note")), FIND)
    [answer] = json.loads(after["messages"])[1]["tool_calls"]
    assert after["tool"] == read_goldens(after)[0].tool == answer["function"]["name"] == "add_note"


def test_a_tool_that_stood_beside_the_gone_one_is_not_its_new_name() -> None:
    twin = edited(WRITE, lambda t: t.update(name="write_note_v2"))
    answer = migrate_pairs([row()], old(WRITE, FIND, twin), now(twin, FIND))
    assert (answer.moved, answer.retired[0][1]) == (
        [],
        "write_note, which it shows or calls, is gone or held",
    )


@pytest.mark.parametrize(
    ("edit", "why"),
    [
        (lambda s: s["properties"].pop("words"), "words is gone"),
        (lambda s: s["properties"]["words"].update(type="integer"), "wrong_type at words"),
        (lambda s: s["properties"]["words"].update(maxLength=3), "length at words"),
        (lambda s: s["properties"]["words"].update(enum=["other"]), "not_in_enum at words"),
        (lambda s: s.update(required=["projectKey", "words", "priority"]), "missing_required"),
    ],
)
def test_a_breaking_change_retires_with_the_reason(edit: Any, why: str) -> None:
    assert why in retired(row(), edited(WRITE, lambda t: edit(t["inputSchema"])), FIND)


def test_what_had_no_worth_retires() -> None:
    new = edited(WRITE, spelt_otherwise)
    assert retired(row(status="failed", verdict=None), new) == "it had failed"
    assert retired(row(verdict="reject"), new) == "the rules had refused it"
    lines = snapshot(FIND)["contract_digest"]
    assert "held" in retired(row(), new, barred={lines})
    assert "is gone or held" in retired(row(), FIND)


def test_the_rules_look_again_at_what_was_moved() -> None:
    names = edited(WRITE, lambda t: t.update(name="jot_down_note"))
    ask = "Use jot_down_note to keep 'buy more paint' for APOLLO."
    messages = dump_text([{"role": "user", "content": ask}, call("c0", WRITE, SAID)])
    assert "names_the_tool" in retired(row(instruction=ask, messages=messages), names, FIND)


def test_what_only_others_could_see_stays() -> None:
    doubt = {"kind": "one_checker_disagrees", "path": "", "reason": "b took 2", "certain": False}
    before = row(flaws=dump_text([doubt]), verdict="unsure")
    after = moved(before, edited(WRITE, spelt_otherwise), FIND)
    assert (after["verdict"], json.loads(after["flaws"])) == ("unsure", [doubt])


def test_a_row_that_showed_a_tool_that_is_gone_is_written_anew() -> None:
    assert "find_note, which it shows or calls, is gone" in retired(
        row("lookalike"), edited(WRITE, spelt_otherwise)
    )


@pytest.mark.parametrize("task", sorted(set(TASKS) - set(ONE_CALL)))
def test_a_row_of_several_turns_is_written_again(task: str) -> None:
    assert retired(row(task), edited(WRITE, spelt_otherwise), FIND) == (
        f"pairs of the task {task} are written again"
    )


def test_old_contracts_come_from_what_was_published(warehouse: Warehouse) -> None:
    tables = warehouse.tables
    versions = [(WRITE, FIND), (edited(WRITE, spelt_otherwise), FIND), (FIND,)]
    for tools in versions:
        rows = [{k: v for k, v in snapshot(t).items() if k != "license"} for t in tools]
        tables.promote(tables.stage(SNAPSHOTS, SNAPSHOTS.frame(rows), "registry"), "t", [])
    first = snapshot(WRITE)["contract_digest"]
    old_contracts = read_old_contracts(tables, {first, "c1:" + "0" * 64}, "registry")
    assert old_contracts.keys() == {
        first,
        snapshot(FIND)["contract_digest"],
    }  # and what stood beside it
    assert json.loads(old_contracts[first]["contract"]) == canonicalize_contract(WRITE)
    assert read_old_contracts(tables, {first}) == old_contracts
    assert read_old_contracts(tables, set()) == {}


def scalars(value: Any) -> Counter[str]:
    if isinstance(value, dict) and value:
        return sum((scalars(item) for item in value.values()), Counter())
    if isinstance(value, list) and value:
        return sum((scalars(item) for item in value), Counter())
    return Counter([json.dumps(value)])


@given(called(), st.sampled_from(COMPATIBLE), st.data())
@examples(300)
def test_a_compatible_change_moves_every_call(answer: Any, change: str, data: Any) -> None:
    raw, arguments = answer
    name = data.draw(st.sampled_from(sorted(raw["inputSchema"]["properties"])))
    old, new = canonicalize_contract(raw), canonicalize_contract(next_version(raw, change, name))
    moved = rewrite_arguments(old, new, arguments)
    assert validate_call(new, moved) == []
    assert scalars(moved) == scalars(arguments)
    again = old if change in ("option", "described", "tool") else new
    assert rewrite_arguments(new, again, moved) == moved


@given(called(), st.sampled_from(BREAKING), st.data())
@examples(300)
def test_a_breaking_change_moves_no_call_that_it_touches(
    answer: Any, change: str, data: Any
) -> None:
    raw, arguments = answer
    if change != "required" and not arguments:
        return
    name = data.draw(st.sampled_from(sorted(arguments or raw["inputSchema"]["properties"])))
    old, new = canonicalize_contract(raw), canonicalize_contract(next_version(raw, change, name))
    with pytest.raises(UnmovablePair):
        rewrite_arguments(old, new, arguments)


@given(st.integers(0, 2**32))
@examples(400)
def test_whatever_the_schemas_a_moved_call_is_valid_and_says_the_same(seed: int) -> None:
    rng = Random(seed)
    old = {"name": "t", "inputSchema": whole(rng)}
    new = {"name": "t", "inputSchema": any_version(old["inputSchema"], rng)}
    arguments = value_for(old["inputSchema"], old["inputSchema"], rng)
    if not isinstance(arguments, dict) or validate_call(old, arguments):
        return
    try:
        moved = rewrite_arguments(old, new, arguments)
    except UnmovablePair:
        return
    assert validate_call(new, moved) == []
    assert scalars(moved) == scalars(arguments)


def case(before: dict[str, Any], after: dict[str, Any], arguments: dict[str, Any]) -> Any:
    return rewrite_arguments(
        canonicalize_contract(tool(before, [])), canonicalize_contract(tool(after, [])), arguments
    )


@pytest.mark.parametrize(
    ("before", "after", "arguments", "moved"),
    [
        ({"userId": STRING}, {"user_id": STRING}, {"userId": "7"}, {"user_id": "7"}),
        ({"lang": {**STRING, "description": "Language of the text"}},
         {"locale": {**STRING, "description": "language of the text."}}, {"lang": "de"},
         {"locale": "de"}),
        ({"path": {**STRING, "description": "Where the file lies on disk"}},
         {"file_path": {**STRING, "description": "Where the file lies on disk"}},
         {"path": "/a"}, {"file_path": "/a"}),
        ({"n": {"type": "integer"}}, {"n": {"type": "number"}}, {"n": 5}, {"n": 5}),
        ({"meta": {"type": "object"}}, {"meta": {"type": "object", "properties": {"a": STRING}}},
         {"meta": {"a": "x"}}, {"meta": {"a": "x"}}),
    ],
)  # fmt: skip
def test_where_it_is_plain_a_value_moves(
    before: Any, after: Any, arguments: Any, moved: Any
) -> None:
    assert case(before, after, arguments) == moved


@pytest.mark.parametrize(
    ("before", "after", "arguments"),
    [
        ({"start_date": STRING}, {"end_date": STRING}, {"start_date": "2024-01-02"}),
        ({"min_price": STRING}, {"max_price": STRING}, {"min_price": "3"}),
        ({"price": STRING}, {"max_price": STRING}, {"price": "3"}),
        ({"id": STRING}, {"parent_id": STRING}, {"id": "3"}),
        ({"id": STRING}, {"owner_id": STRING}, {"id": "3"}),
        ({"timeout_seconds": {"type": "integer"}}, {"timeout_ms": {"type": "integer"}},
         {"timeout_seconds": 3}),
        ({"timeout": {"type": "integer", "description": "Time in seconds"}},
         {"timeout": {"type": "integer", "description": "Time in milliseconds"}}, {"timeout": 3}),
        ({"city": STRING}, {"country": STRING}, {"city": "Oslo"}),
        ({"q": STRING}, {"query": STRING}, {"q": "x"}),
        ({"label": STRING}, {"labels": {"type": "array", "items": STRING}}, {"label": "bug"}),
        ({"options": {"type": "object", "properties": {"depth": {"type": "integer"}}}},
         {"depth": {"type": "integer"}}, {"options": {"depth": 2}}),
        ({"from": {**STRING, "description": "Code of the airport"}},
         {"to": {**STRING, "description": "Code of the airport"}}, {"from": "OSL"}),
        ({"wait": {"type": "integer", "description": "Time to wait"}},
         {"wait_ms": {"type": "integer", "description": "Time to wait"}}, {"wait": 3}),
        ({"name": STRING}, {"author": {"type": "object", "properties": {"name": STRING}}},
         {"name": "Ada"}),
        ({"tags": STRING}, {"tags": {"type": "array", "items": STRING}}, {"tags": "a,b"}),
        ({"tag": STRING}, {"tag": {"type": "array", "items": {"type": "integer"}}}, {"tag": "a"}),
        ({"repo": {**STRING, "description": "Name of the repository"}},
         {"org": {**STRING, "description": "Name of the organization"}}, {"repo": "x"}),
        ({"userId": STRING}, {"user_id": STRING, "userID": STRING}, {"userId": "1"}),
        ({"a": STRING}, {"b": STRING}, {"a": "x"}),
    ],
)  # fmt: skip
def test_where_it_may_be_something_else_nothing_moves(
    before: Any, after: Any, arguments: Any
) -> None:
    with pytest.raises(UnmovablePair):
        case(before, after, arguments)
