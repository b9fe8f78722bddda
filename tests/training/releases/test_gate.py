"""Gates: what crowns, what was not measured, and that a better figure never fails."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.training.promotions import BETTER, EQUAL, NOTHING, UNSURE, WORSE, passed_by_gate
from training.gates import (
    MIN_TOOLS,
    MOST_PHANTOM,
    TOLERANCE,
    PromotionGate,
    check_gain,
    check_no_worse,
    check_phantom_difference,
    check_phantom_rate,
    check_same_items,
    judge_gates,
    render_gates_table,
)
from training.role import UnknownRole, check_evaluation, check_gates

CALLER = {
    "candidate": "m1",
    "incumbent": "baseline:bm25+slots",
    "tools": 30,
    "servers": 5,
    "gate": {"gain": BETTER, "irrelevance": EQUAL, "phantom": EQUAL, "phantom_rate": NOTHING},
}
numbers = st.floats(-1, 1, allow_nan=False)
figures = st.tuples(numbers, numbers, numbers, st.integers(1, 500)).map(
    lambda parts: dict(zip(("low", "value", "high"), sorted(parts[:3]), strict=True), n=parts[3])
)
steps = st.floats(0, 1, allow_nan=False)


def caller(**figures: dict) -> dict:
    return {**CALLER, "gate": {**CALLER["gate"], **figures}}


def test_a_caller_that_is_better_and_no_worse_passes_every_gate() -> None:
    gates = check_gates("caller", CALLER)
    assert [gate.name for gate in gates] == [
        *("enough_tools", "gain", "irrelevance", "phantom_rate", "phantom_difference")
    ]
    assert judge_gates(gates) == (
        True,
        "gain +0.100 [+0.020, +0.200], n=90: better beyond its interval, all gates passed",
    )


@pytest.mark.parametrize(
    ("figures", "failed"),
    [
        ({"gain": UNSURE}, "gain"),
        ({"gain": {**BETTER, "low": 0.0}}, "gain"),
        ({"gain": NOTHING}, "gain"),
        ({"gain": None}, "gain"),
        ({"gain": {**BETTER, "low": math.nan}}, "gain"),
        ({"irrelevance": WORSE}, "irrelevance"),
        ({"irrelevance": NOTHING}, "irrelevance"),
        ({"irrelevance": {**EQUAL, "value": -TOLERANCE - 0.001}}, "irrelevance"),
        ({"irrelevance": {"value": -0.01, "low": -0.02, "high": -0.001, "n": 9}}, "irrelevance"),
        ({"phantom_rate": {**EQUAL, "value": MOST_PHANTOM + 0.001}}, "phantom_rate"),
        ({"phantom_rate": {**EQUAL, "value": math.nan}}, "phantom_rate"),
        ({"phantom_rate": None}, "phantom_rate"),
        ({"phantom": BETTER}, "phantom_difference"),
        ({"phantom": {**EQUAL, "low": math.nan}}, "phantom_difference"),
        ({"phantom": None}, "phantom_difference"),
    ],
)
def test_one_figure_that_is_not_good_enough_or_was_not_measured_keeps_a_caller_out(
    figures: dict, failed: str
) -> None:
    gates = check_gates("caller", caller(**figures))
    assert [name for name, fine in passed_by_gate(gates).items() if not fine] == [failed]
    promoted, why = judge_gates(gates)
    assert not promoted
    assert failed in why


def test_where_no_tool_is_gone_yet_phantom_calls_pass_and_say_so() -> None:
    gates = check_gates("caller", caller(phantom=NOTHING, phantom_rate=NOTHING))
    assert judge_gates(gates)[0]
    assert [gate.found for gate in gates[-2:]] == ["nothing gone yet (n=0)"] * 2


@pytest.mark.parametrize(
    ("figures", "failed"),
    [
        ({}, []),
        ({"gain_at_1": UNSURE}, ["gain_at_1"]),
        ({"gain_at_5": WORSE}, ["recall_at_5"]),
        ({"gain_at_5": None}, ["recall_at_5"]),
        ({"tools": MIN_TOOLS - 1}, ["enough_tools"]),
        ({"tools": None}, ["enough_tools"]),
        ({"incumbent": "m1"}, ["two_models"]),
    ],
)
def test_a_retriever_is_held_against_recall(figures: dict, failed: list[str]) -> None:
    held = {"candidate": "m1", "incumbent": "base", "tools": 30, "servers": 5}
    held |= {"gain_at_1": BETTER, "gain_at_5": EQUAL, **figures}
    gates = passed_by_gate(check_gates("retriever", held))
    assert [name for name, fine in gates.items() if not fine] == failed


def test_a_role_without_rules_is_named_and_no_gate_crowns_nobody() -> None:
    with pytest.raises(UnknownRole, match="'cook'; known: retriever, caller"):
        check_gates("cook", {})
    assert not judge_gates([])[0]


@given(figures, steps, steps, steps)
def test_a_higher_figure_never_fails_where_a_lower_one_passed(figure, a, b, c) -> None:
    more = {**figure, "value": figure["value"] + a, "low": figure["low"] + b,
            "high": figure["high"] + c}  # fmt: skip
    assert not check_gain(figure).passed or check_gain(more).passed
    assert not check_no_worse(figure, "x").passed or check_no_worse(more, "x").passed
    # Of phantom calls fewer is better.
    assert not check_phantom_rate(more).passed or check_phantom_rate(figure).passed
    assert not check_phantom_difference(more).passed or check_phantom_difference(figure).passed


@given(figures)
def test_what_is_better_beyond_its_interval_is_never_worse(figure: dict) -> None:
    assert not check_gain(figure).passed or check_no_worse(figure, "x").passed


def rows(model: str, items: range, training_set: str = "s1") -> list[dict]:
    return [
        {"model": model, "pair_id": f"p{at}", "training_set": training_set, "ok": True}
        for at in items
    ]


@pytest.mark.parametrize(
    ("theirs", "fine", "found"),
    [
        (rows("base", range(5)), True, "5 items of set s1, both"),
        (rows("base", range(4)), False, "m1 on 5 items and base on 4, 4 of them the same"),
        (rows("base", range(1, 6)), False, "4 of them the same"),
        (rows("base", range(5), "s0"), False, "training sets s0, s1"),
        ([], False, "base on 0, 0 of them the same"),
    ],
)
def test_two_models_are_compared_on_the_same_items_of_one_set_or_not_at_all(
    theirs: list, fine: bool, found: str
) -> None:
    gate = check_same_items(
        [*rows("m1", range(5)), *theirs, *rows("other", range(9))], "m1", "base"
    )
    assert (gate.passed, found in gate.found) == (fine, True), gate


def test_nothing_is_summed_up_of_items_that_differ() -> None:
    held = [*rows("m1", range(5)), *rows("base", range(4))]
    gates, summed = check_evaluation(
        "retriever", held, "m1", "base", lambda *_: pytest.fail("was summed")
    )
    assert [gate.name for gate in gates] == ["same_items"]
    assert summed == {"candidate": "m1", "incumbent": "base"}


def test_gates_are_shown_as_a_table() -> None:
    shown = render_gates_table([PromotionGate("gain", False, "+0.1", "above zero")])
    assert shown.splitlines()[2] == "| gain | **no** | +0.1 | above zero |"
    assert render_gates_table([]) == "No gate was asked."
