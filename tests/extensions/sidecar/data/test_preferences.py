"""Preference pairs of the sidecar's rows: the right call over the draft, for the same prompt."""

import json
from dataclasses import replace
from typing import Any

import pytest

from assets.contracts.canonical import contract_digest
from extensions.sidecar.prompt import make_revision_request
from extensions.sidecar.training_rows import make_preferences
from serving.repair.tools import make_revision_messages
from tests.extensions.sidecar.rewards.rows import BOOK, CANCEL, DRAFTS, RIGHT, make_row
from training.sets.split import SEEN_TOOL, UNSEEN_SERVER

CLEAR = {contract_digest(one) for one in (BOOK, CANCEL)}


@pytest.mark.parametrize("kind", [kind for kind in DRAFTS if kind != "unreadable"])
def test_the_draft_is_rejected_for_the_right_call(kind: str) -> None:
    row = make_row(kind)
    [made] = make_preferences([row], CLEAR)
    line = made.write_line()
    assert line["prompt"] == make_revision_messages(make_revision_request(row))
    assert read(line["chosen"]) == RIGHT
    assert read(line["rejected"]) == {"name": row.draft_name, "arguments": row.draft_arguments}
    assert (line["source"], line["split"], line["pair_id"]) == ("revision", "train", row.row_id)
    assert line["contract_digest"] == contract_digest(BOOK)
    assert json.loads(line["tools"])[0]["function"]["name"] == "book_room"


def test_a_question_is_preferred_where_asking_is_right() -> None:
    row = make_row("ask", split=UNSEEN_SERVER)
    [made] = make_preferences([row], CLEAR)
    assert made.write_line()["chosen"][0]["content"] == row.question
    assert made.write_line()["split"] == "test"


def test_what_prefers_nothing_is_left_out() -> None:
    invalid = ({"name": "book_room", "arguments": {"room": 7}},)
    rows = [
        make_row("untouched"),
        make_row("unreadable"),
        make_row("missing", split=SEEN_TOOL),
        make_row("missing", right=invalid),
        replace(make_row("missing"), draft_arguments=RIGHT["arguments"]),
    ]
    assert make_preferences(rows, CLEAR) == []
    assert make_preferences([make_row("missing")], {contract_digest(BOOK)}) == []


def read(messages: list[dict[str, Any]]) -> dict[str, Any]:
    [message] = messages
    return message["tool_calls"][0]["function"]
