"""The seed's failure signature: there when types go wrong, absent when anything else does."""

import json
from typing import Any

import pytest

from training.evaluation.caller_summary import compute_signature


def rows(verdicts: dict[str, str], n: int = 40, tool: bool = True) -> list[dict[str, Any]]:
    """`n` items of ten tools; each parameter is named after its declared type."""
    held = [{"name": kind, "type": kind, "verdict": verdict} for kind, verdict in verdicts.items()]
    ok = tool and all(verdict == "match" for verdict in verdicts.values())
    return [
        {"tool_ok": tool, "ast_ok": ok, "text_digest": f"t{i % 10}", "parameters": json.dumps(held)}
        for i in range(n)
    ]


RIGHT = {"string": "match", "array": "match"}


def test_wrong_types_under_the_right_tool_are_the_signature() -> None:
    found = compute_signature(
        rows({"string": "match", "array": "wrong_type"}, 30) + rows(RIGHT, 10)
    )
    assert found["present"]
    assert found["by_type"]["array"] == {"n": 40, "wrong": 30, "wrong_type": 30}
    assert "present" in found["verdict"]
    assert "array 30/40" in found["verdict"]
    json.dumps(found)


def test_arrays_that_are_left_out_while_strings_are_right_are_too() -> None:
    found = compute_signature(rows({"string": "match", "array": "missing"}, 30) + rows(RIGHT, 10))
    assert found["present"]
    assert found["typed"]["value"] == 0.0


def test_a_copier_of_words_has_it_however_many_words_it_copies_wrongly() -> None:
    """Slot copying on the demo's contracts: string 275 of 539 wrong, array 24 of 24."""
    held = rows({"string": "wrong_value", "array": "missing"}, 20)
    held += rows({"string": "match", "array": "missing"}, 20) + rows({"string": "match"}, 40)
    assert compute_signature(held)["present"]


@pytest.mark.parametrize(
    "held",
    [
        rows(RIGHT),
        rows(RIGHT, tool=False),
        rows({"string": "wrong_value", "array": "match"}),
        rows({"string": "wrong_type", "array": "wrong_type"}, 2) + rows(RIGHT, 38),
        [],
    ],
    ids=["all right", "wrong tool", "wrong words only", "too few to say", "nothing"],
)
def test_anything_else_is_not(held: list[dict[str, Any]]) -> None:
    found = compute_signature(held)
    assert not found["present"]
    assert "absent" in found["verdict"] or "not measured" in found["verdict"]
