"""The sidecar's data: flaws, good calls in their place, drafts and what each should be."""

import json
from collections import Counter
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assets.contracts.match.match import match_call
from assets.contracts.rename_history import ContractMove
from extensions.sidecar.flaws import HELD_OUT, SHARES, WEIGHTS, GoodCall, make_flawed
from extensions.sidecar.prompt import (
    LEFT,
    RIGHT,
    UNTOUCHED,
    WRONG,
    RevisionRow,
    make_revision_request,
)
from extensions.sidecar.revision_data import KnownContracts, RefusedCall, build_rows, choose_rows
from serving.repair.ladder import repair_draft
from tests.extensions.sidecar.examples import ScriptedReviser, call_message, place, talk
from tests.training.conftest import raw_tool
from training.sets.split import TRAIN


@pytest.fixture(scope="module")
def drafted(train_rows: list[dict], pool: dict[str, Any]) -> list[RevisionRow]:
    return build_rows(place(train_rows, pool, 24), KnownContracts())


def test_rows_are_the_same_each_time_and_show_what_is_right(drafted, train_rows, pool):
    assert drafted == build_rows(place(train_rows, pool, 24), KnownContracts())
    assert len({row.row_id for row in drafted}) == len(drafted)
    assert {row.split for row in drafted} == {"train"}
    calls = place(train_rows, pool, 24)
    kept = [kind for kind in WEIGHTS if kind not in HELD_OUT]
    assert not {row.kind for row in build_rows(calls, KnownContracts(kinds=kept))} & HELD_OUT
    assert {row.kind for row in build_rows(calls, KnownContracts())} & HELD_OUT
    assert set(WEIGHTS) >= HELD_OUT
    assert sum(WEIGHTS.values()) == pytest.approx(sum(SHARES.values())) == pytest.approx(1)
    assert {row.ladder for row in drafted} == {LEFT, RIGHT, WRONG}
    for row in drafted:
        [right] = row.right
        [schema] = [t["inputSchema"] for t in row.contracts if t["name"] == right["name"]]
        draft = {"name": row.draft_name, "arguments": row.draft_arguments}
        same = match_call(schema, right, draft).match
        assert same == (row.kind == UNTOUCHED) or row.ladder == RIGHT, json.dumps(draft)
        if row.kind == UNTOUCHED:
            assert (draft, row.problems, row.ladder) == (right, (), RIGHT)


def test_a_row_is_the_request_that_the_ladder_makes(drafted):
    """Trained as served: the ladder, given the row's own draft, asks the same."""
    left = [row for row in drafted if row.ladder == LEFT and isinstance(row.draft_arguments, dict)]
    assert len(left) > 5
    for row in left:
        reviser = ScriptedReviser(lambda _: None)
        draft = {"name": row.draft_name, "arguments": row.draft_arguments}
        tools = [dict(contract) for contract in row.contracts]
        repair_draft(draft, tools, conversation=row.conversation, revise=reviser)
        [asked], request = reviser.asked, make_revision_request(row)
        assert (asked.name, asked.arguments) == (request.name, request.arguments)
        assert [o.name for o in asked.candidates] == [o.name for o in request.candidates]


def test_a_changed_contract_a_refused_call_and_a_question_are_rows(train_rows, pool):
    [call] = place(train_rows, pool, 1)
    move = ContractMove(call.good.server, call.good.name, "old_name", {"heading": "title"})
    [row] = [one for one in build_rows([call], KnownContracts([move])) if one.source == "drift"]
    old = dict(call.good.arguments)
    old["heading"] = old.pop("title")
    assert (row.draft_name, row.draft_arguments) == ("old_name", old)
    assert (row.kind, row.ladder) == ("tool renamed since", RIGHT)
    refused = RefusedCall(call.good.name, {"title": 1}, "title must be a string")
    rows = build_rows([replace(call, refused=refused)], KnownContracts())
    [row] = [row for row in rows if row.kind == "refused"]
    assert (row.source, row.problems) == ("corrupted", ("title must be a string",))
    played = replace(call, refused=refused, row={**call.row, "task": "trajectory"})
    assert "execution" in {row.source for row in build_rows([played], KnownContracts())}
    asking = replace(call, question="How many?", good=replace(call.good, arguments={"title": "a"}))
    [row] = build_rows([asking], KnownContracts(worlds={call.row["pair_id"]: "task-1"}))
    assert (row.right, row.question, row.world) == ((), "How many?", "task-1")
    assert row.ladder in (RIGHT, WRONG)


@settings(max_examples=20, deadline=None)
@given(most=st.integers(1, 60), kept=st.integers(1, 100))
def test_mainly_what_the_ladder_leaves_is_taken(most, kept, drafted):
    chosen = choose_rows(drafted[:kept], most)
    assert chosen == choose_rows([*reversed(drafted[:kept])], most)
    assert len(chosen) <= most
    counts, offered = (
        Counter(row.ladder == RIGHT for row in of) for of in (chosen, drafted[:kept])
    )
    assert counts[False] >= min(offered[False], round(0.55 * len(chosen)))


def test_a_call_stands_after_its_request_among_tools_of_its_split(train_rows, pool, test_rows):
    placed = place(train_rows, pool, len(train_rows))
    assert [one for one in placed if one.good.sibling is not None]
    for one in placed:
        if one.good.sibling is not None:  # another call of the same tool
            same = [other.good.arguments for other in placed if other.good.name == one.good.name]
            assert one.good.sibling in same
            assert one.good.sibling != one.good.arguments
        row = one.row
        assert one.conversation == ({"role": "user", "content": row["instruction"]},)
        assert one.good.arguments == json.loads(row["arguments"])
        shown = {tool["name"] for tool in one.tools}
        assert {*one.good.beside, row["tool"]} == shown
        assert shown <= {entry["tool"] for entry in pool.values() if entry["split"] == TRAIN}
    assert len(place([train_rows[0], {**test_rows[0], "split": TRAIN}], pool)) == 1


def test_a_refused_call_goes_with_its_error_and_a_question_until_answered(train_rows, pool):
    row = train_rows[0]
    right = json.loads(row["arguments"])
    spoken = talk(
        row,
        {"role": "user", "content": row["instruction"]},
        call_message(row["tool"], {"title": 1}, weight=0),
        {"role": "tool", "tool_call_id": "call_1", "content": "title must be a string"},
        call_message(row["tool"], right),
    )
    [one] = place([spoken], pool)
    assert one.refused == RefusedCall(row["tool"], {"title": 1}, "title must be a string")
    assert one.conversation == ({"role": "user", "content": row["instruction"]},)
    assert one.good.arguments == right
    spoken = talk(
        row,
        {"role": "user", "content": f"Please use '{right['title']}'."},
        {"role": "assistant", "content": "How many?"},
        {"role": "user", "content": f"{right['count']} of them"},
        call_message(row["tool"], right),
    )
    first, second = place([spoken], pool)
    assert (first.question, first.good.arguments) == ("How many?", {"title": right["title"]})
    assert (second.question, second.good.arguments, len(second.conversation)) == ("", right, 3)


TEXT, NUMBER = {"type": "string"}, {"type": "integer"}
PROPERTIES = {
    **dict.fromkeys(("title", "owner"), TEXT),
    **dict.fromkeys(("count", "wait_seconds", "spare"), NUMBER),
    **{name: {"type": "array", "items": TEXT} for name in ("tags", "one")},
    "order": {"enum": ["newest", "oldest"]},
    "open": {"type": "boolean"},
    "box": {"type": "object", "properties": {"left": NUMBER}},
    "since": {**TEXT, "format": "date"},
}
SCHEMA = {"type": "object", "properties": PROPERTIES, "required": ["title", "count"]}
TOOL = {**raw_tool("find", "file"), "inputSchema": SCHEMA}
GOOD = {"title": "Blue Sky", "count": 2, "owner": "Ana", "order": "newest", "open": True,
        "tags": ["a", "b"], "box": {"left": 3}, "wait_seconds": 30,
        "one": ["x"], "since": "2026-03-04"}  # fmt: skip
CALL = GoodCall("npm:file", TOOL, GOOD, {**GOOD, "title": "Old Oak"}, ("make_file",))


@pytest.mark.parametrize("kind", sorted(WEIGHTS))
def test_a_flaw_changes_the_call_and_its_seed_decides_how(kind):
    seed = next(n for n in range(20) if make_flawed(CALL, kind, Random(n)))
    one, again = (make_flawed(CALL, kind, Random(seed)) for _ in range(2))
    assert one is not None
    assert again is not None
    assert json.dumps([one.name, one.arguments]) == json.dumps([again.name, again.arguments])
    assert (one.name, one.arguments) != (CALL.name, GOOD)
    assert (one.kind, one.meant) == (kind, (GOOD,))
    if kind in ("value of another call", "tool beside it"):
        assert make_flawed(GoodCall("npm:file", TOOL, GOOD), kind, Random(3)) is None
