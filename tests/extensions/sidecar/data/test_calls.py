"""Good calls in their place: conversation, tools, refusals and questions."""

import json
from typing import Any

from tests.extensions.sidecar.examples import call_message, place, talk
from training.sets.split import TRAIN


def test_a_call_stands_after_its_request_among_tools_of_its_split(
    train_rows: list[dict], pool: dict[str, Any]
) -> None:
    for one in place(train_rows, pool):
        row = one.row
        assert one.conversation == ({"role": "user", "content": row["instruction"]},)
        assert one.good.arguments == json.loads(row["arguments"])
        shown = {tool["name"] for tool in one.tools}
        assert {*one.good.beside, row["tool"]} == shown
        learned = {entry["tool"] for entry in pool.values() if entry["split"] == TRAIN}
        assert shown <= learned


def test_another_call_of_the_same_tool_is_its_sibling(
    train_rows: list[dict], pool: dict[str, Any]
) -> None:
    found = place(train_rows, pool, len(train_rows))
    twins = [one for one in found if one.good.sibling is not None]
    assert twins
    for one in twins:
        assert one.good.sibling != one.good.arguments
        assert one.good.sibling in [o.good.arguments for o in found if o.good.name == one.good.name]


def test_a_refused_call_goes_with_the_servers_words(
    train_rows: list[dict], pool: dict[str, Any]
) -> None:
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
    assert one.refused is not None
    assert (one.refused.name, one.refused.arguments) == (row["tool"], {"title": 1})
    assert one.refused.error == "title must be a string"
    assert one.conversation == ({"role": "user", "content": row["instruction"]},)
    assert one.good.arguments == right


def test_a_question_is_right_while_a_value_is_missing(
    train_rows: list[dict], pool: dict[str, Any]
) -> None:
    row = train_rows[0]
    right = json.loads(row["arguments"])
    spoken = talk(
        row,
        {"role": "user", "content": f"Please use '{right['title']}'."},
        {"role": "assistant", "content": "How many?"},
        {"role": "user", "content": f"{right['count']} of them"},
        call_message(row["tool"], right),
    )
    first, second = place([spoken], pool)
    assert first.question == "How many?"
    assert first.good.arguments == {"title": right["title"]}
    assert (second.question, second.good.arguments) == ("", right)
    assert len(second.conversation) == 3


def test_a_row_whose_tool_may_not_be_shown_here_gives_nothing(
    train_rows: list[dict], test_rows: list[dict], pool: dict[str, Any]
) -> None:
    strange = {**test_rows[0], "split": TRAIN}
    assert len(place([train_rows[0], strange], pool)) == 1
