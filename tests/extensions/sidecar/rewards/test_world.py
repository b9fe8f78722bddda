"""A replayed world scores a call; what was never recorded is neutral."""

from typing import Any

import pytest

from extensions.sidecar.prompt import RevisionRow
from extensions.sidecar.rewards import HARMFUL, WorldScorer, find_worlds, score_revision
from extensions.sidecar.rewards import RIGHT as IS_RIGHT
from tests.extensions.sidecar.rewards.rows import make_row, write_call
from tests.outcomes.recorded import CONTRACTS, READ, WRITE, find_task, recording

MADE = recording()
BOTH = find_task(MADE, "Read /a, then write x into /b.")
READS = find_task(MADE, "What does /a say?")
FAILS = {"name": "read", "arguments": {"path": "/z"}}
UNSEEN = {"name": "read", "arguments": {"path": "/unseen"}}


def row(world: str, right: dict[str, Any] = READ, **changed: Any) -> RevisionRow:
    said = ({"role": "user", "content": "Read /a, /z or /unseen and write x into /b."},)
    held: dict[str, Any] = {
        "contracts": tuple(CONTRACTS.values()), "conversation": said, "right": (right,),
        "draft_name": right["name"], "draft_arguments": {"path": 7}, "world": world,
    }  # fmt: skip
    return make_row("wrong_type", **{**held, **changed})


def score(made: RevisionRow, call: dict[str, Any]) -> Any:
    return score_revision(made, write_call(call), world=WorldScorer(MADE))


def test_a_call_that_the_world_answers_is_executed() -> None:
    found = score(row(READS), READ)
    assert (found.total, found.parts["executed"]) == (1.0, 1.0)
    failed = score(row(READS), FAILS)
    assert failed.parts["executed"] == 0.0
    assert failed.verdict == HARMFUL


@pytest.mark.parametrize("world", [READS, "t1:unknown", f"{READS}#x", ""])
def test_a_miss_is_neutral(world: str) -> None:
    made = row(world)
    found = score(made, UNSEEN)
    assert "executed" not in found.parts
    assert found.total == score_revision(made, write_call(UNSEEN)).total


def test_a_call_by_another_contract_is_a_miss() -> None:
    other = {**CONTRACTS["read"], "description": "Reads otherwise"}
    made = row(READS)
    changed = RevisionRow(**{**vars(made), "contracts": (other, CONTRACTS["write"])})
    assert "executed" not in score(changed, READ).parts


def test_calls_of_the_task_come_before_the_revised_one() -> None:
    made = row(f"{BOTH}#1", WRITE)
    assert score(made, WRITE).parts["executed"] == 1.0


def test_a_world_that_refuses_the_right_call_scores_nobody() -> None:
    made = row(READS, FAILS)
    for call in (FAILS, READ):
        assert "executed" not in score(made, call).parts
    assert score(made, FAILS).verdict == IS_RIGHT


def test_rows_find_the_recorded_task_that_makes_their_right_call() -> None:
    other = {**CONTRACTS["read"], "description": "Reads otherwise"}
    [read, write, unseen, changed] = find_worlds(
        MADE, [row("t:other"), row("", WRITE), row("", UNSEEN), row("", contracts=(other,))]
    )
    assert WorldScorer(MADE)(read.world, CONTRACTS["read"], READ) == 1.0
    assert write.world == f"{BOTH}#1"
    assert unseen.world == changed.world == ""
    assert score(write, WRITE).parts["executed"] == 1.0
