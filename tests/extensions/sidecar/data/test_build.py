"""Rows of the sidecar's data: drafts, what each should be, and what the ladder makes of it."""

import json
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assets.contracts.match.match import match_call
from assets.contracts.rename_history import ContractMove
from extensions.sidecar.flaws import HELD_OUT, SHARES, WEIGHTS
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
from serving.repair.tools import ProposedCall, RevisionRequest
from tests.extensions.sidecar.examples import place


@pytest.fixture(scope="module")
def drafted(train_rows: list[dict], pool: dict[str, Any]) -> list[RevisionRow]:
    return build_rows(place(train_rows, pool, 24), KnownContracts())


def test_rows_are_the_same_each_time_and_each_once(
    drafted: list[RevisionRow], train_rows: list[dict], pool: dict[str, Any]
) -> None:
    assert drafted == build_rows(place(train_rows, pool, 24), KnownContracts())
    assert len({row.row_id for row in drafted}) == len(drafted)
    assert {row.split for row in drafted} == {"train"}


def test_what_is_right_is_shown_and_what_is_left_as_it_was_is_right(
    drafted: list[RevisionRow],
) -> None:
    assert {row.ladder for row in drafted} == {LEFT, RIGHT, WRONG}
    for row in drafted:
        [right] = row.right
        assert right["name"] in {tool["name"] for tool in row.contracts}
        if row.kind == UNTOUCHED:
            assert (row.draft_name, row.draft_arguments) == (right["name"], right["arguments"])
            assert (row.problems, row.ladder) == ((), RIGHT)


def test_a_row_is_the_request_that_the_ladder_makes(drafted: list[RevisionRow]) -> None:
    """Trained as served: the ladder, given the row's own draft, asks the same."""
    left = [row for row in drafted if row.ladder == LEFT and isinstance(row.draft_arguments, dict)]
    assert len(left) > 5
    for row in left:
        asked: list[RevisionRequest] = []

        def revise(request: RevisionRequest, asked: list = asked) -> ProposedCall | None:
            asked.append(request)
            return None

        draft = {"name": row.draft_name, "arguments": row.draft_arguments}
        tools = [dict(contract) for contract in row.contracts]
        repair_draft(draft, tools, conversation=row.conversation, revise=revise)
        request = make_revision_request(row)
        assert (asked[0].name, asked[0].arguments) == (request.name, request.arguments)
        assert [candidate.name for candidate in asked[0].candidates] == [
            o.name for o in request.candidates
        ]


def test_training_never_sees_the_kinds_that_are_held_out(
    train_rows: list[dict], pool: dict[str, Any]
) -> None:
    calls = place(train_rows, pool, 24)
    kept = [kind for kind in WEIGHTS if kind not in HELD_OUT]
    assert not {row.kind for row in build_rows(calls, KnownContracts(kinds=kept))} & HELD_OUT
    assert {row.kind for row in build_rows(calls, KnownContracts())} & HELD_OUT
    assert set(WEIGHTS) >= HELD_OUT
    assert sum(WEIGHTS.values()) == pytest.approx(sum(SHARES.values())) == pytest.approx(1)


def test_a_change_of_the_contract_gives_a_draft_of_the_day_before(
    train_rows: list[dict], pool: dict[str, Any]
) -> None:
    [call] = place(train_rows, pool, 1)
    move = ContractMove(call.good.server, call.good.name, "old_name", {"heading": "title"})
    [row] = [one for one in build_rows([call], KnownContracts([move])) if one.source == "drift"]
    old = dict(call.good.arguments)
    old["heading"] = old.pop("title")
    assert (row.draft_name, row.draft_arguments) == ("old_name", old)
    assert (row.kind, row.ladder) == ("tool renamed since", RIGHT)


def test_a_refused_call_and_a_question_are_rows_of_their_own(
    train_rows: list[dict], pool: dict[str, Any]
) -> None:
    [call] = place(train_rows, pool, 1)
    refused = RefusedCall(call.good.name, {"title": 1}, "title must be a string")
    [row] = [
        r
        for r in build_rows([replace(call, refused=refused)], KnownContracts())
        if r.kind == "refused"
    ]
    assert (row.source, row.problems) == ("corrupted", ("title must be a string",))
    played = replace(call, refused=refused, row={**call.row, "task": "trajectory"})
    assert "execution" in {row.source for row in build_rows([played], KnownContracts())}
    asking = replace(call, question="How many?", good=replace(call.good, arguments={"title": "a"}))
    [row] = build_rows([asking], KnownContracts(worlds={call.row["pair_id"]: "task-1"}))
    assert (row.right, row.question, row.world) == ((), "How many?", "task-1")
    assert row.ladder in (RIGHT, WRONG)


@settings(max_examples=20, deadline=None)
@given(most=st.integers(1, 60), kept=st.integers(1, 100))
def test_mainly_what_the_ladder_leaves_is_taken(
    most: int, kept: int, drafted: list[RevisionRow]
) -> None:
    chosen = choose_rows(drafted[:kept], most)
    assert chosen == choose_rows([*reversed(drafted[:kept])], most)
    assert len(chosen) <= most
    counts, offered = (
        Counter(row.ladder == RIGHT for row in of) for of in (chosen, drafted[:kept])
    )
    assert counts[False] >= min(offered[False], round(0.55 * len(chosen)))


def test_every_row_can_be_told_right_from_wrong(drafted: list[RevisionRow]) -> None:
    for row in drafted:
        [right] = row.right
        schema = next(t["inputSchema"] for t in row.contracts if t["name"] == right["name"])
        sent = {"name": row.draft_name, "arguments": row.draft_arguments}
        same = match_call(schema, right, sent).match
        assert same == (row.kind == UNTOUCHED) or row.ladder == RIGHT, json.dumps(sent)
