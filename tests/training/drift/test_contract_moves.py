"""What moved since a training, weighed, and calls of tools that are no more."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.drift.contract_moves import (
    CLASS_WEIGHTS,
    count_moves,
    find_change_classes,
    make_contract_signal,
    measure_phantom_calls,
)

MAPS = st.dictionaries(st.sampled_from("abcdefgh"), st.sampled_from("123"), max_size=8)
CALLS = st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 50), max_size=8)


@given(MAPS, MAPS)
def test_drift_counts_every_tool_once(then: dict[str, str], now: dict[str, str]) -> None:
    found = count_moves(then, now)
    same = sum(then[key] == now[key] for key in then.keys() & now.keys())
    union = len(then.keys() | now.keys())
    assert found.changed + found.new + found.gone + same == union
    assert found.known == len(then)


@given(MAPS, MAPS, CALLS)
def test_a_share_stays_within_its_interval_whatever_weighs(then, now, calls) -> None:
    classes = dict.fromkeys(then, "wording")
    found = make_contract_signal(count_moves(then, now, classes, calls), 0.01)
    assert found.value is not None
    assert 0 <= found.low <= found.value + 1e-9
    assert found.value <= found.high + 1e-9 <= 1 + 2e-9


@given(MAPS)
def test_the_same_contracts_has_no_drift(contracts: dict[str, str]) -> None:
    assert count_moves(contracts, dict(contracts)).share == 0.0


def test_before_the_first_training_everything_is_new() -> None:
    found = count_moves({}, {"a": "1", "b": "2"})
    assert (found.new, found.known, found.share) == (2, 0, 1.0)


def test_a_breaking_change_weighs_more_than_wording() -> None:
    then, now = {"a": "1", "b": "1"}, {"a": "2", "b": "1"}
    shares = {name: count_moves(then, now, {"a": name}).share for name in CLASS_WEIGHTS}
    assert shares == {
        "wording": 0.125,
        "compatible": 0.25,
        "breaking": 0.5,
        "suspicious": 0.5,
    }
    assert count_moves(then, now).share == 0.5  # a change of no known class


def test_a_tool_that_is_called_weighs_its_calls() -> None:
    then, now = {"a": "1", "b": "1"}, {"a": "2", "b": "1"}
    assert count_moves(then, now, calls={"a": 8}).share == pytest.approx(9 / 10)
    assert count_moves(then, now, calls={"b": 8}).share == pytest.approx(1 / 10)
    assert "8 calls weighed" in count_moves(then, now, calls={"b": 8}).describe()


def change(was: str, now: str, cls: str, day: str) -> dict[str, Any]:
    return {
        "server_id": "s", "tool": "a", "from_digest": was, "to_digest": now,
        "cls": cls, "run_date": day,
    }  # fmt: skip


def test_the_class_of_several_changes_is_the_worst_since_the_training() -> None:
    changes = [
        change("0", "1", "breaking", "2026-01-01"),  # before the training
        change("2", "3", "wording", "2026-01-03"),
        change("1", "2", "compatible", "2026-01-02"),
    ]
    assert find_change_classes(changes, {"s::a": "1"}) == {"s::a": "compatible"}
    assert find_change_classes(changes, {"s::a": "9"}) == {}


def contract(name: str, *parameters: str) -> dict[str, Any]:
    properties = {parameter: {"type": "string"} for parameter in parameters}
    return {"name": name, "inputSchema": {"type": "object", "properties": properties}}


def row(name: str, **arguments: str) -> dict[str, Any]:
    call = {"name": name, "contract_digest": f"c1:{name}", "arguments": arguments}
    return {"server_id": "s", "calls": json.dumps([call])}


def test_calls_of_lost_tools_and_parameters_are_phantoms() -> None:
    current = {"s::kept": contract("kept", "path"), "s::renamed": contract("renamed", "file")}
    rows = [
        row("kept", path="a"),
        row("kept", path="b"),
        row("gone", path="a"),
        row("renamed", path="a"),
        {"server_id": "s", "calls": "[]"},
    ]
    found = measure_phantom_calls(rows, {}, current, 0.02)
    assert (found.value, found.n) == (0.5, 4)
    assert "1 are of tools that are gone, 1 name a parameter that is" in found.why
    assert measure_phantom_calls([], {}, current, 0.02).value is None


def test_a_call_of_another_server_is_found_by_its_contract() -> None:
    current = {"other::kept": contract("kept", "path")}
    owners = {"c1:kept": ["other::kept"]}
    assert measure_phantom_calls([row("kept", path="a")], owners, current, 0.02).value == 0
