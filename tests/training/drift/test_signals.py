"""Signals of drift, and what a home is compared with."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assets.vectors.encoders.weights import find_base_path
from tests.support.cases import cases
from training.caller.smollm2 import name_smollm2_base
from training.drift import measure
from training.drift.signals import (
    CLASS_WEIGHTS,
    DriftSignal,
    count_moves,
    find_change_classes,
    judge_signal,
    make_contract_signal,
    make_unmeasured,
    measure_retriever_decay,
)
from training.role import get_causal_base_name, get_retriever_base_name, is_same_base
from training.settings import RetrainPolicy
from warehouse.store import Warehouse

MAPS = st.dictionaries(st.sampled_from("abcdefgh"), st.sampled_from("123"), max_size=8)
CALLS = st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 50), max_size=8)


@given(MAPS, MAPS)
def test_drift_counts_every_tool_once(then, now):
    found = count_moves(then, now)
    same = sum(then[key] == now[key] for key in then.keys() & now.keys())
    union = len(then.keys() | now.keys())
    assert found.changed + found.new + found.gone + same == union
    assert found.known == len(then)


@given(MAPS, MAPS, CALLS)
def test_a_share_stays_within_its_interval_whatever_weighs(then, now, calls):
    classes = dict.fromkeys(then, "wording")
    found = make_contract_signal(count_moves(then, now, classes, calls), 0.01)
    assert found.value is not None
    assert 0 <= found.low <= found.value + 1e-9
    assert found.value <= found.high + 1e-9 <= 1 + 2e-9


@given(MAPS)
def test_the_same_contracts_has_no_drift(contracts):
    assert count_moves(contracts, dict(contracts)).share == 0.0


def test_before_the_first_training_everything_is_new():
    found = count_moves({}, {"a": "1", "b": "2"})
    assert (found.new, found.known, found.share) == (2, 0, 1.0)


def test_a_breaking_change_weighs_more_than_wording():
    then, now = {"a": "1", "b": "1"}, {"a": "2", "b": "1"}
    shares = {name: count_moves(then, now, {"a": name}).share for name in CLASS_WEIGHTS}
    assert shares == {"wording": 0.125, "compatible": 0.25, "breaking": 0.5, "suspicious": 0.5}
    assert count_moves(then, now).share == 0.5  # a change of no known class


def test_a_tool_that_is_called_weighs_its_calls():
    then, now = {"a": "1", "b": "1"}, {"a": "2", "b": "1"}
    assert count_moves(then, now, calls={"a": 8}).share == pytest.approx(9 / 10)
    assert count_moves(then, now, calls={"b": 8}).share == pytest.approx(1 / 10)
    assert "8 calls weighed" in count_moves(then, now, calls={"b": 8}).describe()


def change(was: str, now: str, cls: str, day: str) -> dict[str, Any]:
    return {
        "server_id": "s", "tool": "a", "from_digest": was, "to_digest": now,
        "cls": cls, "run_date": day,
    }  # fmt: skip


def test_the_class_of_several_changes_is_the_worst_since_the_training():
    changes = [
        change("0", "1", "breaking", "2026-01-01"),  # before the training
        change("2", "3", "wording", "2026-01-03"),
        change("1", "2", "compatible", "2026-01-02"),
    ]
    assert find_change_classes(changes, {"s::a": "1"}) == {"s::a": "compatible"}
    assert find_change_classes(changes, {"s::a": "9"}) == {}


def item(n: int, rank: int) -> dict[str, Any]:
    return {"pair_id": str(n), "server_id": "s", "tool": f"t{n}", "rank": rank}


def test_frozen_items_that_are_no_longer_found_are_lost():
    frozen = [item(n, 1 if n < 90 else 9) for n in range(100)]
    current = {("s", f"t{n}"): f"text {n}" for n in range(80)}  # twenty tools are gone
    asked: list[str] = []

    def rank(items: Sequence[Any]) -> dict[str, int]:
        asked.extend(row["positive"] for row in items)
        return {row["pair_id"]: 20 if int(row["pair_id"]) < 16 else 1 for row in items}

    found = measure_retriever_decay(frozen, rank, current, 0.02)
    assert found.n == 80 == len(asked)
    assert found.value == pytest.approx(16 / 80)
    assert found.p_value < 0.001
    assert "of 100 frozen items 20 lost their tool; 80 of the others" in found.why
    assert measure_retriever_decay(frozen, rank, current, 0.02, most=10).n <= 10
    assert measure_retriever_decay([], rank, current, 0.02).why == "it was never measured"
    assert measure_retriever_decay(frozen, rank, {}, 0.02).value is None


def test_lost_hits_are_tested_one_sided():
    def decay(before: list[int], after: list[int]) -> DriftSignal:
        ranks = {str(n): rank for n, rank in enumerate(after)}
        current = {("s", f"t{n}"): "text" for n in range(len(after))}
        frozen = [item(n, rank) for n, rank in enumerate(before)]
        return measure_retriever_decay(frozen, lambda _: ranks, current, 0.02)

    lost, won = decay([1] * 12 + [9] * 3, [9] * 12 + [1] * 3), decay([9] * 12, [1] * 12)
    assert lost.value == pytest.approx(9 / 15)
    assert lost.p_value == pytest.approx(sum((455, 105, 15, 1)) / 2**15)
    assert (won.value, won.p_value) == (-1, 1)
    assert lost.low < lost.value < lost.high


@cases(
    "value, p, threshold, fired",
    (0.2, 0.001, 0.1, True),
    (0.2, 0.06, 0.1, False),
    (0.05, 0.001, 0.1, False),
    (0.2, None, 0.1, True),  # counted, not tested
    (None, None, 0.1, False),
    (0.0, None, 0.0, False),  # nothing moved,
)
def test_a_signal_fires_by_its_threshold_and_its_test(value, p, threshold, fired):
    signal = DriftSignal("x", value, 10, threshold, "", p_value=p)
    assert judge_signal(signal, 0.05).fired is fired


A, B, COMMIT = "a" * 16, "b" * 16, f"some/base@{'c' * 40}"


def test_a_measurement_that_failed_is_made_again_and_any_other_is_not(tmp_path, monkeypatch):
    warehouse = Warehouse(home=tmp_path / "home", state=tmp_path / "state")
    calls: list[str] = []

    def fail_once(*_: Any) -> DriftSignal:
        calls.append("asked")
        if len(calls) == 1:
            raise TimeoutError("the endpoint does not answer")
        return make_unmeasured("contracts", 0.01, "nothing was trained yet")

    monkeypatch.setattr(measure, "_measure_contracts", fail_once)
    sources = measure.DriftSources(warehouse, "set", pytest.fail, "none")
    for _ in range(4):
        [first, *_] = measure.measure_drift(sources, RetrainPolicy())
    assert (len(calls), first.why) == (2, "nothing was trained yet")


@cases(
    "then, now, same",
    (f"/models/x@{A}", f"/models/x@{B}", False),  # its files changed where they lay
    (f"/models/x@{A}", f"/elsewhere/x@{A}", True),  # the same files, moved
    (f"/models/x@{A}", f"sentence-transformers:/models/x@{A}", False),  # pooled otherwise
    (f"{COMMIT}@{A}", COMMIT, True),  # a commit says what its files are
    (f"{COMMIT}@{A}", COMMIT.replace("c", "d"), False),
    (f"/models/x@{A}", "/models/x", True),  # gone for now: the place is the same
    (f"smollm2:{A}", f"smollm2:{B}", False),  # another template
    (f"smollm2:{A}", "/models/causal", False),
)
def test_bases_are_told_apart(then, now, same):
    assert is_same_base(then, now) is same


def test_a_folder_is_named_with_its_files_and_a_hub_id_is_never_fetched(tmp_path):
    known = {get_retriever_base_name(name) for name in ("minilm", "", "minilm-l6-v2")}
    assert known == {"minilm-l6-v2"}
    assert get_retriever_base_name(COMMIT) == COMMIT
    assert get_retriever_base_name(str(tmp_path)) == str(tmp_path)  # no model: its training says so
    assert get_causal_base_name("/gone") == "/gone"
    assert get_causal_base_name("smollm2") == name_smollm2_base()
    named = f"sentence-transformers:{find_base_path()}"
    assert get_retriever_base_name(named).startswith(f"{named}@")
