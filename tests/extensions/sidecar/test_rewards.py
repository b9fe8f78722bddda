"""What a completion is worth: the right answer most, a copied draft little, harm least."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extensions.sidecar import prompt, rewards
from extensions.sidecar.rewards import RIGHT as IS_RIGHT
from tests.extensions.sidecar.examples import (
    CALLS,
    CANCEL,
    DRAFTS,
    KINDS,
    QUESTION,
    RIGHT,
    make_row,
    write_call,
)
from tests.support.cases import cases

# A right call with a needless change that only the fixer reads.
LEAST_RIGHT = 1 - (rewards.WEIGHTS["kept"] + rewards.WEIGHTS["parsed"] * (1 - rewards.FIXED)) / sum(
    rewards.WEIGHTS.values()
)
FORMS = st.sampled_from(["plain", "tagged", "prose", "broken"])
HOSTILE = {
    "1 MB of text": "a" * 1_000_000,
    "1 MB argument": write_call({"name": "book_room", "arguments": {"room": "a" * 1_000_000}}),
    "brackets without end": "[" * 200_000,
    "objects without end": '{"a":' * 100_000,
    "nested arguments": '{"name": "book_room", "arguments": ' + '{"a":' * 400 + "1" + "}" * 401,
    "NaN": '{"name": "book_room", "arguments": {"room": "Aspen", "guests": NaN}}',
    "infinite": '{"name": "book_room", "arguments": {"room": "Aspen", "guests": 1e999}}',
    "endless calls": write_call(RIGHT) * 20_000,
    "endless questions": "Which room? " * 80_000,
    "endless thought": "<think>" + "hm " * 300_000,
    "null bytes": "\x00" * 1000,
    "lone surrogate": '{"name": "book_room", "arguments": {"room": "\\ud800", "guests": 4}}',
    "a huge number": '{"name": "book_room", "arguments": {"guests": ' + "9" * 5000 + "}}",
    "nothing": "",
}


def answer(row: prompt.RevisionRow) -> str:
    return write_call(row.right[0]) if row.right else row.question


def copy(row: prompt.RevisionRow) -> str:
    return write_call({"name": row.draft_name, "arguments": row.draft_arguments})


@cases("kind", *KINDS, "ask")
def test_the_right_answer_is_worth_1_and_a_little_less_where_it_needs_the_fixer(kind):
    row = make_row(kind)
    found = rewards.score_revision(row, answer(row))
    assert (found.total, found.verdict) == (1.0, IS_RIGHT)
    if kind == "ask":
        return
    for form in ("prose", "broken"):  # what needed the fixer
        found = rewards.score_revision(row, write_call(RIGHT, form))
        assert found.verdict == IS_RIGHT
        assert LEAST_RIGHT < found.total < 1.0
    text = {"name": "book_room", "arguments": json.dumps(RIGHT["arguments"])}
    assert rewards.score_revision(row, write_call(text)).parts["parsed"] == rewards.FIXED


@given(st.sampled_from([*KINDS, "ask"]), CALLS, FORMS)
@settings(max_examples=60)
def test_nothing_is_worth_more_than_the_right_answer(kind, call, form):
    row = make_row(kind)
    found = rewards.score_revision(row, write_call(call, form))
    assert 0 <= found.total <= rewards.score_revision(row, answer(row)).total
    assert found.verdict == IS_RIGHT or found.total < LEAST_RIGHT
    assert all(0 <= part <= 1 for part in found.parts.values())
    assert rewards.score_revision(row, write_call(call, form)) == found


@given(st.sampled_from(list(DRAFTS)), st.sampled_from(["plain", "tagged", "prose"]))
@settings(max_examples=20)
def test_a_copy_of_a_flawed_draft_is_worth_less_than_any_step_to_the_right_call(kind, form):
    row = make_row(kind)
    copied = rewards.score_revision(row, write_call(json.loads(copy(row)[12:-13]), form))
    assert copied.total <= rewards.WORTH[rewards.COPIED]
    assert copied.verdict in (rewards.COPIED, rewards.HARMFUL)
    assert copied.total < rewards.score_revision(row, answer(row)).total
    # One argument of the right call alone is already worth more.
    nearer = {"name": "book_room", "arguments": {"room": "Aspen", "day": "2026-12-01"}}
    assert copied.total < rewards.score_revision(row, write_call(nearer)).total


@given(CALLS)
@settings(max_examples=40)
def test_any_change_of_an_untouched_draft_is_worth_less_than_the_draft(call):
    row = make_row("untouched")
    found = rewards.score_revision(row, write_call(call))
    if call != RIGHT:
        assert found.total < rewards.score_revision(row, copy(row)).total == 1.0


def test_what_was_right_stays_nothing_is_added_and_more_right_values_are_worth_more():
    row = make_row("wrong_type")
    kept = {"room": "Aspen", "guests": "4", "day": "2026-12-01"}
    lost = {"room": "Birch", "guests": "4", "day": "2026-12-01"}
    scores = [
        rewards.score_revision(row, write_call({**RIGHT, "arguments": one})) for one in (kept, lost)
    ]
    assert [score.parts["kept"] for score in scores] == [1.0, 0.5]
    assert scores[0].total > scores[1].total
    changed = {**RIGHT, "arguments": {**RIGHT["arguments"], "size": "small"}}
    found = rewards.score_revision(make_row("untouched"), write_call(changed))
    assert (found.verdict, found.parts["kept"]) == (IS_RIGHT, 0.0)
    assert found.total < 1
    assert rewards.score_revision(make_row("missing"), write_call(changed)).total == 1.0
    row = make_row("renamed")
    steps: list[dict[str, Any]] = [
        {}, {"room": "Aspen"}, {"room": "Aspen", "guests": 4}, RIGHT["arguments"],
    ]  # fmt: skip
    totals = [
        rewards.score_revision(row, write_call({**RIGHT, "arguments": step})).total
        for step in steps
    ]
    assert totals == sorted(set(totals))
    parts = [
        rewards.score_revision(make_row("unreadable"), write_call({**RIGHT, "name": name})).parts[
            "tool"
        ]
        for name in ("no_such_tool", CANCEL["name"], RIGHT["name"])
    ]
    assert parts == [0.0, 0.5, 1.0]


def test_an_invented_value_does_harm_and_a_question_for_a_call_is_worth_little():
    harmful = {"name": "cancel_room", "arguments": {"room": "Aspen"}}
    for kind in ("wrong_type", "missing", "untouched"):
        row = make_row(kind)
        asked = rewards.score_revision(row, QUESTION)
        harm = rewards.score_revision(row, write_call(harmful))
        assert (asked.verdict, harm.verdict) == (rewards.ASKED, rewards.HARMFUL)
        assert harm.total < asked.total == rewards.ASKED_IN_VAIN
    row = make_row("ask")
    sent = rewards.score_revision(row, write_call(RIGHT))
    stopped = rewards.score_revision(row, copy(row))
    assert (sent.total, sent.verdict) == (0.0, rewards.HARMFUL)
    assert (stopped.total, stopped.verdict) == (rewards.CALLED_IN_VAIN, rewards.COPIED)
    assert rewards.ASKED_RIGHTLY <= rewards.score_revision(row, "What is your name?").total < 1.0
    row = make_row("missing")
    for guests, verdict in ((7, rewards.HARMFUL), (4, rewards.WRONG)):
        call = {"name": "book_room", "arguments": {"room": "Aspen", "guests": guests}}
        found = rewards.score_revision(row, write_call(call))
        assert (found.verdict, found.parts["grounded"]) == (verdict, 0.5 if guests == 7 else 1.0)
    broken = {"name": "book_room", "description": "", "inputSchema": {"type": 7, "required": 3}}
    row = make_row("missing", contracts=(broken,))
    assert rewards.score_revision(row, write_call(RIGHT)).total == 1.0
    assert rewards.score_revision(row, copy(row)).total < LEAST_RIGHT


@pytest.mark.parametrize("name", HOSTILE)
@cases("kind", "wrong_type", "untouched", "ask")
def test_whatever_is_written_gets_a_score(kind, name):
    row = make_row(kind)
    found = rewards.score_revision(row, HOSTILE[name])
    assert 0 <= found.total <= 1
    assert found == rewards.score_revision(row, HOSTILE[name])
    if name == "nested arguments":
        assert (found.verdict, found.total) == (rewards.UNREAD, 0.0)
