"""Executed calls answer beside those of trajectories, and tell how volatile an answer is."""

import json
from typing import Any

import pytest

from assets.contracts.canonical import contract_digest
from assets.outcomes.kept import Execution
from assets.outcomes.replay.recording import add_executions, make_key, record_trajectories
from tests.outcomes.replay.recorded import CONTRACTS, READ, SERVER, recording, row, step

NAME = contract_digest(CONTRACTS["read"])
LISTED = [{"server_id": SERVER, "tool": "read", "contract_digest": NAME,
           "contract": json.dumps(CONTRACTS["read"])}]  # fmt: skip


def executed(text: str, given: dict[str, Any], **facts: Any) -> tuple[dict[str, Any], bytes]:
    """(row of EXECUTIONS, its blob)."""
    held: dict[str, Any] = {
        "outcome": "useful", "blame": None, "evidence": "", "status": "ok", "error_kind": None,
        "hint": None, "answer": "d1", "text": text, "structured": None, "size": len(text),
        "seconds": 0.1, "before": "s1", "after": "s1", "repeated": "d1", **facts,
    }  # fmt: skip
    Execution(**held)
    row = {"execution_id": f"{text}{given}", "contract_digest": NAME, "withheld": "[]",
           "arguments": json.dumps(given), "result_blob": "b"}  # fmt: skip
    return row, json.dumps({"execution": held, "proof": None, "stale": None}).encode()


def test_executed_calls_are_answered_too() -> None:
    made = recording()
    row, blob = executed("more", {"path": "/more"})
    assert add_executions(made, [row], LISTED, lambda _: blob) == 1
    found = made.answer(NAME, {"path": "/more"}, "s1")
    assert (found.text, found.seen, found.differing) == ("more", 2, 0)
    assert made.measure_volatility()["n"] == 2


def test_an_answer_that_is_structured_too_is_recorded_by_its_text() -> None:
    made, structured = recording(), {"content": "more"}
    size = len("more") + len(json.dumps(structured))
    row, blob = executed("more", {"path": "/more"}, structured=structured, size=size)
    assert add_executions(made, [row], LISTED, lambda _: blob) == 1
    assert made.answer(NAME, {"path": "/more"}, "s1").text == "more"
    cut = executed("mor", {"path": "/more"}, structured=structured, size=size)[1]
    assert add_executions(made, [row], LISTED, lambda _: cut) == 0


def test_a_call_that_was_answered_otherwise_is_volatile_and_keeps_its_first_answer() -> None:
    made = recording()
    before = made.answer(NAME, READ["arguments"], "s1")
    row, blob = executed("another", READ["arguments"], repeated="d2")
    add_executions(made, [row], LISTED, lambda _: blob)
    found = made.answer(NAME, READ["arguments"], "s1")
    assert found.text == before.text
    assert (found.seen, found.differing) == (before.seen + 2, 2)
    assert made.measure_volatility()["value"] == 1.0


def test_what_is_withheld_cut_or_of_no_clear_contract_is_left_out() -> None:
    made = recording()
    row, blob = executed("x", {"path": "/x"})
    cut = executed("x", {"path": "/x"}, size=9)[1]
    assert add_executions(made, [{**row, "withheld": '["override"]'}], LISTED, lambda _: blob) == 0
    assert add_executions(made, [row], LISTED, lambda _: cut) == 0
    assert add_executions(made, [row], [], lambda _: blob) == 0
    assert add_executions(made, [{**row, "result_blob": None}], LISTED, lambda _: blob) == 0
    assert make_key(NAME, {"path": "/x"}, "s1") not in made.answers


@pytest.mark.parametrize("outcome", ["refused", "truncated", "timeout", "protocol_error"])
def test_a_played_call_without_a_whole_answer_is_a_miss(outcome: str) -> None:
    """What was withheld has no words here: to replay none would make an answer up."""
    given = {"path": "/q"}
    made = record_trajectories(
        [row(step("read", given, "", "s1", "s1", outcome=outcome), why="no useful answer")]
    )
    assert make_key(NAME, given, "s1") not in made.answers


def test_arguments_without_a_canonical_form_have_a_key_that_nothing_holds() -> None:
    deep: dict[str, Any] = {}
    for _ in range(5000):
        deep = {"a": deep}
    assert make_key(NAME, {"n": float("nan")}, "s1") == ""
    assert make_key(NAME, deep, "s1") == ""
    assert "" not in recording().answers
