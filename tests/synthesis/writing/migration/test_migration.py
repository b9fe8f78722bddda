"""Whole rows carried over: what moves with a row, what retires it, and what it says of itself."""

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assets.contracts.canonical import canonicalize_contract
from assets.contracts.snapshot import SNAPSHOTS
from assets.contracts.validate import validate_call
from assets.synthesis.tables import PAIRS, dump_text, make_pair_id, read_goldens
from assets.synthesis.writing.migration.migration import migrate
from assets.synthesis.writing.migration.old_contracts import read_old_contracts
from tests.support.examples import examples
from tests.synthesis.contract_versions import BREAKING, COMPATIBLE, called, next_version, snapshot
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
    made = copy.deepcopy(tool)
    edit(made)
    return made


def spelt_otherwise(tool: Tool) -> None:
    of = tool["inputSchema"]["properties"]
    of["project_key"] = of.pop("projectKey")
    tool["inputSchema"]["required"] = ["project_key", "words"]


def row(task: str = "single", **columns: Any) -> dict[str, Any]:
    own = snapshot(WRITE)
    golden = {k: own[k] for k in ("server_id", "tool", "contract_digest")}
    golden |= {"arguments": SAID, "borrowed": []}
    made = dict.fromkeys(PAIRS.columns) | {
        **{k: own[k] for k in ("marketplace", "server_id", "tool", "contract_digest", "license")},
        "recipe_digest": "0" * 64, "plan_digest": "p", "task": task, "index": 0, "seed": 7,
        "kind": "direct", "instruction": ASK, "arguments": dump_text(SAID), "usd": 0.25,
        "calls": dump_text([golden]),
        "messages": dump_text([{"role": "user", "content": ASK}, call("c0", WRITE, SAID)]),
        "contracts": dump_text([own["contract_digest"], snapshot(FIND)["contract_digest"]]),
        "offered": dump_text([snapshot(FIND)["contract_digest"], own["contract_digest"]]),
        "checks": dump_text({"candidates": [own["contract_digest"]],
                           "picks": {"checker_a": own["contract_digest"]}}),
        "steps": dump_text([{"step": "generate", "role": "generator", "usd": 0.25}]),
        "prompt_tokens": 90, "completion_tokens": 30, "status": "ok", "verdict": "accept",
        "flaws": "[]", "cosine": 0.3,
        **columns,
    }  # fmt: skip
    return {**made, "pair_id": make_pair_id(made)}


def call(name: str, tool: Tool, arguments: Any) -> dict[str, Any]:
    function = {"name": tool["name"], "arguments": json.dumps(arguments)}
    calls = [{"id": name, "type": "function", "function": function}]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def old(*tools: Tool) -> dict[str, Any]:
    return {made["contract_digest"]: made for made in map(snapshot, tools or (WRITE, FIND))}


def now(*tools: Tool) -> dict[str, Any]:
    return {f"{made['server_id']}/{made['tool']}": made for made in map(snapshot, tools)}


def moved(one: dict[str, Any], *tools: Tool) -> dict[str, Any]:
    made = migrate([one], old(), now(*tools))
    assert made.retired == []
    return made.moved[0]


def retired(one: dict[str, Any], *tools: Tool, **options: Any) -> str:
    made = migrate([one], old(), now(*tools), **options)
    assert made.moved == []
    assert made.retired[0][0] == one["pair_id"]
    return made.retired[0][1]


def test_a_renamed_parameter_moves_in_every_column() -> None:
    new, before = edited(WRITE, spelt_otherwise), row()
    after = moved(before, new, FIND)
    digest = snapshot(new)["contract_digest"]
    arguments = {"project_key": "APOLLO", "words": "buy more paint"}
    assert json.loads(after["arguments"]) == arguments
    assert read_goldens(after)[0].arguments == arguments
    [made] = json.loads(after["messages"])[1]["tool_calls"]
    assert json.loads(made["function"]["arguments"]) == arguments
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
    made = migrate([once], old(edited(WRITE, spelt_otherwise), FIND), now(third, FIND))
    [twice] = made.moved
    assert twice["migrated_from"] == before["pair_id"]  # the first: its words
    links = [json.loads(twice["steps"])[i]["from"] for i in (-2, -1)]
    assert links == [before["pair_id"], once["pair_id"]]  # and the whole chain


def test_a_renamed_tool_is_called_by_its_new_name() -> None:
    after = moved(row(), edited(WRITE, lambda t: t.update(name="add_note")), FIND)
    [made] = json.loads(after["messages"])[1]["tool_calls"]
    assert after["tool"] == read_goldens(after)[0].tool == made["function"]["name"] == "add_note"


def test_a_tool_that_stood_beside_the_gone_one_is_not_its_new_name() -> None:
    twin = edited(WRITE, lambda t: t.update(name="write_note_v2"))
    made = migrate([row()], old(WRITE, FIND, twin), now(twin, FIND))
    assert (made.moved, made.retired[0][1]) == (
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
    held = snapshot(FIND)["contract_digest"]
    assert "held" in retired(row(), new, barred={held})
    assert "is gone or held" in retired(row(), FIND)


def test_the_rules_look_again_at_what_was_moved() -> None:
    named = edited(WRITE, lambda t: t.update(name="jot_down_note"))
    ask = "Use jot_down_note to keep 'buy more paint' for APOLLO."
    messages = dump_text([{"role": "user", "content": ask}, call("c0", WRITE, SAID)])
    assert "names_the_tool" in retired(row(instruction=ask, messages=messages), named, FIND)


def test_what_only_others_could_see_stays() -> None:
    doubt = {"kind": "one_checker_disagrees", "path": "", "reason": "b took 2", "certain": False}
    before = row(flaws=dump_text([doubt]), verdict="unsure")
    after = moved(before, edited(WRITE, spelt_otherwise), FIND)
    assert (after["verdict"], json.loads(after["flaws"])) == ("unsure", [doubt])


def test_a_row_that_showed_a_tool_that_is_gone_is_written_anew() -> None:
    assert "find_note, which it shows or calls, is gone" in retired(
        row("lookalike"), edited(WRITE, spelt_otherwise)
    )


def test_a_call_that_was_wrong_on_purpose_is_written_anew() -> None:
    assert "wrong on purpose" in retired(row("recovery"), edited(WRITE, spelt_otherwise), FIND)


def test_a_question_stands_while_the_same_is_required() -> None:
    ask = [{"role": "user", "content": "Please note down 'buy more paint'."},
           {"role": "assistant", "content": "For which project?"}]  # fmt: skip
    asked = row("missing_parameter", calls="[]", arguments=None, messages=dump_text(ask))
    assert moved(asked, edited(WRITE, spelt_otherwise), FIND)["arguments"] is None
    eased = edited(WRITE, lambda t: t["inputSchema"].update(required=["words"]))
    assert "other values are required" in retired(asked, eased, FIND)


def test_borrowed_names_move_and_changed_results_retire() -> None:
    result = {"type": "object", "properties": {"project": STRING}, "required": ["project"]}
    find = {**FIND, "outputSchema": result}
    own = {"server_id": "npm:notes"}
    first = {**own, "tool": "find_note", "contract_digest": snapshot(find)["contract_digest"],
             "arguments": {"word": "paint"}}  # fmt: skip
    digest = snapshot(WRITE)["contract_digest"]
    second = {**own, "tool": "write_note", "contract_digest": digest, "arguments": SAID,
              "borrowed": ["projectKey"]}  # fmt: skip
    text = "Find the note about paint and note down 'buy more paint' for its project."
    answer = {"role": "tool", "tool_call_id": "c0", "content": '{"project": "APOLLO"}'}
    messages = [{"role": "user", "content": text}, call("c0", find, {"word": "paint"}), answer,
            call("c1", WRITE, SAID)]  # fmt: skip
    shown = dump_text([snapshot(find)["contract_digest"], digest])
    before = row("sequential", instruction=text, calls=dump_text([first, second]), offered="[]",
                 contracts=shown, messages=dump_text(messages))  # fmt: skip
    known, new = old(WRITE, find), edited(WRITE, spelt_otherwise)
    made = migrate([before], known, now(new, find))
    assert made.retired == []
    assert read_goldens(made.moved[0])[1].borrowed == ("project_key",)
    other = {**find, "outputSchema": {**result, "properties": {"name": STRING}, "required": []}}
    made = migrate([before], known, now(new, other))
    assert made.retired == [(before["pair_id"], "the results of find_note changed")]


@given(called(), st.sampled_from((*COMPATIBLE, *BREAKING)), st.data())
@examples(200)
def test_a_moved_row_always_calls_rightly(made: Any, change: str, data: Any) -> None:
    raw, arguments = made
    name = data.draw(st.sampled_from(sorted(raw["inputSchema"]["properties"])))
    own = snapshot(raw)
    golden = {k: own[k] for k in ("server_id", "tool", "contract_digest")} | {
        "arguments": arguments
    }
    spoken = " and ".join(json.dumps(value, ensure_ascii=False) for value in arguments.values())
    ask = f"Put this down for me now: {spoken}."
    before = row(instruction=ask, arguments=dump_text(arguments), calls=dump_text([golden]),
                 messages=dump_text([{"role": "user", "content": ask}, call("c", raw, arguments)]),
                 offered="[]", contracts="[]", checks=None, verdict="unsure",
                 **{k: own[k] for k in ("tool", "contract_digest")})  # fmt: skip
    new = next_version(raw, change, name)
    result = migrate([before], old(raw), now(new))
    assert len(result.moved) + len(result.retired) == 1
    for after in result.moved:
        [one] = read_goldens(after)
        assert validate_call(canonicalize_contract(new), one.arguments) == []
        [sent] = json.loads(after["messages"])[1]["tool_calls"]
        assert json.loads(sent["function"]["arguments"]) == one.arguments
        assert sent["function"]["name"] == after["tool"] == new["name"]


def test_old_contracts_come_from_what_was_published(warehouse: Warehouse) -> None:
    tables = warehouse.tables
    versions = [(WRITE, FIND), (edited(WRITE, spelt_otherwise), FIND), (FIND,)]
    for tools in versions:
        rows = [{k: v for k, v in snapshot(t).items() if k != "license"} for t in tools]
        tables.promote(tables.stage(SNAPSHOTS, SNAPSHOTS.frame(rows), "registry"), "t", [])
    first = snapshot(WRITE)["contract_digest"]
    found = read_old_contracts(tables, {first, "c1:" + "0" * 64}, "registry")
    assert found.keys() == {first, snapshot(FIND)["contract_digest"]}  # and what stood beside it
    assert json.loads(found[first]["contract"]) == canonicalize_contract(WRITE)
    assert read_old_contracts(tables, {first}) == found
    assert read_old_contracts(tables, set()) == {}
