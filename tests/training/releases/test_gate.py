"""Gates, moves of contracts, and the assets of a release."""

import math
import shutil
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assets.contracts.changes import CHANGES, add_changes
from assets.contracts.quarantined_tools import CLEAR, Decision, record_decision
from assets.contracts.rename_history import HISTORY_FILE, parse_history, read_history, write_history
from assets.contracts.snapshot import SNAPSHOTS
from assets.vectors.encoders.minilm import MiniLM
from serving.index.build import build_index, move_pointer
from serving.index.folder import load_index, read_served_version
from serving.index.model import IndexSource
from serving.ranking.overlays import read_blocked
from serving.repair.ladder import repair_draft
from tests.serving.conftest import SNAPSHOT_ROWS
from tests.support.cases import cases
from tests.synthesis.test_old_contracts import FIND, WRITE, edited, snapshot
from tests.training.conftest import materialize
from tests.training.promotions import (
    BETTER,
    EQUAL,
    NOTHING,
    UNSURE,
    WORSE,
    consider_model,
    passed_by_gate,
    read_pointers,
)
from tests.vectors.conftest import WordEmbedder
from training.gates import (
    MIN_TOOLS,
    MOST_PHANTOM,
    TOLERANCE,
    check_gain,
    check_no_worse,
    check_phantom_difference,
    check_phantom_rate,
    check_same_items,
    judge_gates,
)
from training.policies import TrainerPolicy
from training.releases.defs import release, router_index
from training.releases.index_source import collect_moves
from training.releases.release import read_current_release, read_served
from training.releases.rollback import roll_back_release
from training.role import UnknownRole, check_evaluation, check_gates
from training.runtime.model_store import get_model_folder
from warehouse.errors import UnusableInput
from warehouse.home import claim_home
from warehouse.store import Warehouse

FIGURES = {"gain": BETTER, "irrelevance": EQUAL, "phantom": EQUAL, "phantom_rate": NOTHING}
CALLER = {"candidate": "m1", "incumbent": "baseline:bm25+slots", "tools": 30, "servers": 5}
MORE, NATS = {**UNSURE, "tools": MIN_TOOLS}, {**BETTER, "low": 0.2, "value": 1.0}
LEARNT = {"fresh_nats": NATS, "kept_nats": EQUAL}
FRESH_GAIN, LIKELIER = "gain_on_new_contracts", "likelihood_on_new_contracts"
numbers = st.floats(-1, 1, allow_nan=False)
figures = st.tuples(numbers, numbers, numbers, st.integers(1, 500)).map(
    lambda parts: dict(zip(("low", "value", "high"), sorted(parts[:3]), strict=True), n=parts[3])
)
steps = st.floats(0, 1, allow_nan=False)


def caller(**figures: dict) -> dict:
    return {**CALLER, "gate": {**FIGURES, **figures}}


def test_a_better_caller_passes_every_gate_and_an_update_says_what_was_right_before():
    gates = check_gates("caller", caller())
    assert [gate.name for gate in gates] == [
        *("enough_tools", "gain", "irrelevance", "phantom_rate", "phantom_difference")
    ]
    why = "gain +0.100 [+0.020, +0.200], n=90: interval above zero, all gates passed"
    assert judge_gates(gates) == (True, why)
    fresh = {**BETTER, "before": 0.25, "after": 0.5}
    gates = {gate.name: gate for gate in check_gates("caller", caller(gain=EQUAL, fresh=fresh))}
    assert gates["gain_on_new_contracts"].found.endswith("(25% before, 50% after)")
    gates = check_gates("caller", caller(phantom=NOTHING, phantom_rate=NOTHING))
    assert judge_gates(gates)[0]
    assert [gate.found for gate in gates[-2:]] == ["nothing gone yet (n=0)"] * 2


@cases(
    "figures, failed",
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
)
def test_one_figure_that_is_not_good_enough_or_was_not_measured_keeps_a_caller_out(figures, failed):
    gates = check_gates("caller", caller(**figures))
    assert [name for name, fine in passed_by_gate(gates).items() if not fine] == [failed]
    promoted, why = judge_gates(gates)
    assert (promoted, failed in why) == (False, True)


@cases(
    "figures, failed",
    ({"gain": EQUAL, "fresh": {**BETTER, "tools": MIN_TOOLS}}, []),
    ({"gain": EQUAL, "fresh": {**BETTER, "tools": MIN_TOOLS - 1}}, [FRESH_GAIN]),
    ({"gain": BETTER, "fresh": WORSE}, []),
    ({"gain": EQUAL, "fresh": UNSURE}, ["gain_on_new_contracts"]),
    ({"gain": WORSE, "fresh": {**BETTER, "tools": MIN_TOOLS}}, ["gain"]),
    ({"gain": EQUAL, "fresh": NOTHING}, ["gain"]),
    ({"gain": EQUAL, "fresh": MORE, "fresh_nats": NATS, "kept_nats": EQUAL}, []),
    ({"gain": EQUAL, "fresh": MORE, "fresh_nats": BETTER, "kept_nats": EQUAL}, [LIKELIER]),
    ({"gain": EQUAL, "fresh": MORE, "fresh_nats": NATS}, ["kept_requests"]),
    ({"gain": BETTER, "kept_nats": {**EQUAL, "low": -math.inf}}, ["kept_requests"]),
    ({"gain": BETTER, "kept_nats": {**EQUAL, "value": -1.0}}, ["kept_requests"]),
    ({"gain": BETTER, "since_shipped": WORSE}, ["gain_since_shipped"]),
    ({"gain": WORSE, "fresh": {**MORE, "tools": 7}, **LEARNT}, [LIKELIER, "gain"]),
    ({"gain": EQUAL, "fresh": {**WORSE, "tools": 8}, **LEARNT}, [FRESH_GAIN]),
    ({"gain": BETTER, "kept_nats": WORSE}, ["kept_requests"]),
)
def test_an_update_gains_on_new_contracts_and_does_not_lose_on_the_others(figures, failed):
    gates = check_gates("caller", caller(**figures))
    assert [name for name, fine in passed_by_gate(gates).items() if not fine] == failed
    promoted, why = judge_gates(gates)
    assert promoted == (not failed)
    updated = LIKELIER if "fresh_nats" in figures else FRESH_GAIN
    main_gate = "gain" if figures["gain"] is BETTER else updated
    assert why.startswith(f"the incumbent stays: {failed[0]}:" if failed else main_gate)


@given(st.lists(st.floats(-0.04, 0), min_size=30, max_size=30))
def test_thirty_nights_that_each_lose_a_little_lose_no_more_than_the_tolerance(losses):
    lost = 0.0
    for loss in losses:
        night, since = ({**EQUAL, "value": each, "high": 0.1} for each in (loss, lost + loss))
        asked = {"gain": night, "fresh": MORE, **LEARNT, "since_shipped": since}
        lost += loss if judge_gates(check_gates("caller", caller(**asked)))[0] else 0
    assert lost >= -TOLERANCE
    assert lost < 0 or not any(losses)


@given(figures, figures, figures, figures, steps, steps, steps)
def test_a_caller_with_higher_gains_never_fails_where_a_lower_one_passed(
    gain, fresh, fresh_nats, kept_nats, a, b, c
):
    def rise(figure: dict) -> dict:
        moves = {"value": a, "low": b, "high": c}
        return {name: value + moves.get(name, 0) for name, value in figure.items()}

    fresh = {**fresh, "tools": MIN_TOOLS}
    every = {"gain": gain, "fresh": fresh, "fresh_nats": fresh_nats, "kept_nats": kept_nats}
    if judge_gates(check_gates("caller", caller(**every)))[0]:
        for name, figure in every.items():
            risen = {**every, name: rise(figure)}
            assert judge_gates(check_gates("caller", caller(**risen)))[0], name


@cases(
    "figures, failed",
    ({}, []),
    ({"gain_at_1": UNSURE}, ["gain_at_1"]),
    ({"gain_at_5": WORSE}, ["recall_at_5"]),
    ({"gain_at_5": None}, ["recall_at_5"]),
    ({"tools": MIN_TOOLS - 1}, ["enough_tools"]),
    ({"tools": None}, ["enough_tools"]),
    ({"incumbent": "m1"}, ["two_models"]),
)
def test_a_retriever_is_held_against_recall(figures, failed):
    held = {"candidate": "m1", "incumbent": "base", "tools": 30, "servers": 5}
    held |= {"gain_at_1": BETTER, "gain_at_5": EQUAL, **figures}
    gates = passed_by_gate(check_gates("retriever", held))
    assert [name for name, fine in gates.items() if not fine] == failed


def test_a_role_without_rules_is_named_no_gate_crowns_nobody_and_other_items_are_not_summed_up():
    with pytest.raises(UnknownRole, match="'cook'; known: retriever, caller"):
        check_gates("cook", {})
    assert not judge_gates([])[0]
    held = [*rows("m1", range(5)), *rows("base", range(4))]
    never = Mock(side_effect=AssertionError("was summed"))
    gates, summed = check_evaluation("retriever", held, "m1", "base", never)
    assert [gate.name for gate in gates] == ["same_items"]
    assert summed == {"candidate": "m1", "incumbent": "base"}


@given(figures, steps, steps, steps)
def test_a_higher_figure_never_fails_where_a_lower_one_passed(figure, a, b, c):
    more = {**figure, "value": figure["value"] + a, "low": figure["low"] + b,
            "high": figure["high"] + c}  # fmt: skip
    assert not check_gain(figure).passed or check_gain(more).passed
    assert not check_gain(figure).passed or check_no_worse(figure, "x").passed
    assert not check_no_worse(figure, "x").passed or check_no_worse(more, "x").passed
    # Of phantom calls fewer is better.
    assert not check_phantom_rate(more).passed or check_phantom_rate(figure).passed
    assert not check_phantom_difference(more).passed or check_phantom_difference(figure).passed


def rows(model: str, items: range, training_set: str = "s1") -> list[dict]:
    about = {"model": model, "training_set": training_set, "ok": True}
    return [{**about, "pair_id": f"p{at}"} for at in items]


@cases(
    "theirs, fine, found",
    (rows("base", range(5)), True, "5 items of set s1, both"),
    (rows("base", range(4)), False, "m1 on 5 items and base on 4, 4 of them the same"),
    (rows("base", range(1, 6)), False, "4 of them the same"),
    (rows("base", range(5), "s0"), False, "training sets s0, s1"),
    ([], False, "base on 0, 0 of them the same"),
)
def test_two_models_are_compared_on_the_same_items_of_one_set_or_not_at_all(theirs, fine, found):
    held = [*rows("m1", range(5)), *theirs, *rows("other", range(9))]
    gate = check_same_items(held, "m1", "base")
    assert (gate.passed, found in gate.found) == (fine, True), gate


def rename_parameter(tool):
    of = tool["inputSchema"]["properties"]
    of["text"] = of.pop("words")
    tool["inputSchema"]["required"] = ["projectKey", "text"]


BETWEEN = edited(WRITE, lambda tool: tool.update(name="jot_note"))
NOW = edited(BETWEEN, rename_parameter)


@pytest.fixture
def moves(warehouse: Warehouse):
    """Three publications: WRITE and FIND, then WRITE under a new name, then with one inside."""
    tables, rows, changes = warehouse.tables, [], []
    for day, tools in enumerate(((WRITE, FIND), (BETWEEN, FIND), (NOW, FIND))):
        new = [{k: v for k, v in snapshot(t).items() if k != "license"} for t in tools]
        tables.promote(tables.stage(SNAPSHOTS, SNAPSHOTS.frame(new), "registry"), "t", [])
        changes = add_changes(changes, rows, new, 1.7e9 + day * 86_400)
        rows = new
    tables.promote(tables.stage(CHANGES, CHANGES.frame(changes)), "t", [])
    return collect_moves(tables, {rows[0]["server_id"]}), rows


def test_renames_of_a_server_are_collected_in_a_file_and_bad_ones_told(warehouse, moves, tmp_path):
    [first, second], _ = moves
    assert (first.was, first.tool, dict(first.renamed)) == ("write_note", "jot_note", {})
    assert (second.was, second.tool) == ("jot_note", "jot_note")
    assert dict(second.renamed) == {"words": "text"}
    assert first.from_digest == snapshot(WRITE)["contract_digest"]
    assert first.date < second.date
    assert collect_moves(warehouse.tables, {"npm:other"}) == []
    twice = [first, second, *(replace(one, server_id="b") for one in (first, second))]
    assert write_history(twice) == write_history(twice[::-1])
    path = tmp_path / HISTORY_FILE
    path.write_bytes(write_history(twice))
    assert len(read_history(path).moves) == 4
    named = {"server_id": "a", "tool": "b", "was": "c"}
    wrong = ({"was": 5}, {"renamed": 5}, {"renamed": {"a": 5}})
    for odd in ({}, 5, *({**named, **of} for of in wrong)):
        with pytest.raises(UnusableInput, match="here, move 0"):
            parse_history({"format": 1, "moves": [odd]}, "here")
    for odd in ([], {"format": 2, "moves": []}, {"format": 1}):
        with pytest.raises(UnusableInput, match="here"):
            parse_history(odd, "here")


def test_history_goes_with_the_index_and_its_export_and_repairs_a_call(tmp_path, moves):
    found, rows = moves
    home, words = tmp_path, WordEmbedder()
    make = {"embed": words.embed, "embedder": words.id}
    version = build_index(home, IndexSource(rows, moves=found), **make)
    assert version != build_index(home, IndexSource(rows), **make)
    move_pointer(home, version)
    history = load_index(home, version).history
    assert list(history.moves) == found
    draft = {"name": "write_note", "arguments": {"projectKey": "A", "words": "paint"}}
    report = repair_draft(draft, [NOW, FIND], history=history)
    assert (report.name, report.arguments) == ("jot_note", {"projectKey": "A", "text": "paint"})
    assert load_index(home, build_index(home, IndexSource(rows), **make)).history.moves == ()


ONE_MARKET = [row for row in SNAPSHOT_ROWS if row["marketplace"] == "registry"]
LESS = ONE_MARKET[:2]


def run_assets(warehouse: Warehouse, assets: list[Any]) -> dict[str, dict]:
    trainer, embedder = TrainerPolicy(), MiniLM(threads=1)
    return materialize(assets, warehouse=warehouse, trainer=trainer, embedder=embedder)


def run_serving(warehouse: Warehouse, rows: list[dict]) -> dict[str, dict]:
    tables = warehouse.tables
    tables.promote(tables.stage(CLEAR, CLEAR.frame(rows), "registry"), "run", [])
    return run_assets(warehouse, [release, router_index])


def test_runs_after_a_rollback_serve_it_until_there_is_something_new(warehouse):
    home = warehouse.home
    claim_home(home)
    consider_model(home, "m1")
    shutil.rmtree(get_model_folder(home, "m1"))
    metadata = run_serving(warehouse, LESS)
    assert metadata["release"]["retriever"] == "base"  # the champion's model is gone
    first = read_served_version(home)
    assert load_index(home, first).adapter is None
    run_serving(warehouse, ONE_MARKET)
    left = read_served(home)["release"]

    rolled = roll_back_release(home)
    assert read_served_version(home) == first
    before, metadata = read_pointers(home), run_serving(warehouse, ONE_MARKET)
    assert (read_served_version(home), metadata["router_index"]["tools"]) == (first, len(LESS))
    assert read_pointers(home) == before

    held = LESS[0]["contract_digest"]
    record_decision(home, Decision(held, "*", "held", "ann", "2026-01-02T03:04:05Z", "bad"))
    run_assets(warehouse, [router_index])
    assert (read_served_version(home), read_blocked(home).digests) == (first, {held})

    run_serving(warehouse, ONE_MARKET)  # that hold makes another set than the one rolled back
    now = read_served(home)
    assert now["release"] == read_current_release(home)["release"]
    assert now["release"] not in (left, rolled.release)
    assert len(load_index(home, now["version"]).tools) == len(ONE_MARKET) - 1
