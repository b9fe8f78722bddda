from random import Random

import pytest

from benchmarks.outcomes.noise.faults import (
    CUT,
    FAULTS,
    RATES,
    TRUNCATED,
    UNIT,
    change_answer,
    change_arguments,
    is_hit,
)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_strikes_as_often_as_it_says(fault: str) -> None:
    rng = Random(1)
    assert sum(is_hit(fault, rng) for _ in range(2000)) / 2000 == pytest.approx(
        RATES[fault], abs=0.04
    )


def test_no_fault_never_strikes() -> None:
    assert not is_hit(None, Random(1))


def test_a_truncated_answer_has_eighty_characters() -> None:
    assert change_answer(TRUNCATED, "x" * 200, Random(1)) == "x" * CUT


def test_another_unit_changes_numbers_but_no_dates_and_paths() -> None:
    changed = change_answer(UNIT, "price: 12.5 on 2026-01-02 in /a/7", Random(1))
    assert "2026-01-02" in changed
    assert "/a/7" in changed
    assert "12.5 " not in changed


def test_another_unit_asks_for_other_numbers_only() -> None:
    given = {"quantity": 3, "rows": [[2]], "name": "3", "force": True}
    changed = change_arguments(UNIT, given, Random(1))
    assert changed["quantity"] in (30, 300, 3000)
    assert changed["rows"] != [[2]]
    assert (changed["name"], changed["force"]) == ("3", True)
    assert given["quantity"] == 3
