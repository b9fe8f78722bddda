"""Failure steers what is explored and written next, within a budget, and starves no tool."""

import json
from collections import Counter
from math import ceil
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assets.contracts.canonical import contract_digest
from assets.contracts.quarantined_tools import CLEAR
from assets.synthesis.tables import (
    CURRICULUM,
    LOOKALIKE,
    MISSING,
    PAIRS,
    RECOVERY,
    SINGLE,
    read_grants,
)
from tests.synthesis.contracts import make_tool
from tests.training.conftest import materialize
from training.curriculum import (
    ERRORS,
    KINDS,
    TURN,
    CurriculumTool,
    ErrorTally,
    choose_grants,
    make_curriculum,
)
from training.evaluation.caller_table import CALLER_EVALUATION, UNPERTURBED
from training.policies import TrainerPolicy
from training.releases.in_service import find_model_in_service
from training.reporting.defs import curriculum
from training.role import CALLER
from training.sets.split import TRAIN, SetPolicy, choose_tool_place
from training.settings import CurriculumPolicy
from warehouse.storage.tables import TableSpec
from warehouse.store import Warehouse

NAMES = [("npm:desk", f"tool_{number}") for number in range(9)]
ITEMS = 6  # requests that every tool is measured on
Night = dict[tuple[str, str], int]  # tool -> wrong answers
nights = st.lists(
    st.fixed_dictionaries({name: st.integers(0, ITEMS) for name in NAMES}), min_size=1, max_size=12
)
policies = st.builds(
    CurriculumPolicy,
    tools=st.integers(1, 6),
    turns=st.sampled_from([0.2, 0.34, 0.5, 1.0]),
    most=st.integers(1, 3),
)
tools = [CurriculumTool(name, frozenset({f"kind {at % 3}"})) for at, name in enumerate(NAMES)]


def tally_night(night: Night) -> ErrorTally:
    tally = ErrorTally()
    for tool in tools:
        for number in range(ITEMS if tool.key in night else 0):
            wrong = number < night[tool.key]
            faulty = tool.kinds if wrong else frozenset()
            tally.add(tool.key, SINGLE, wrong, tool.kinds, faulty)
    return tally


def play(history: list[Night], policy: CurriculumPolicy) -> list[set[tuple[str, str]]]:
    before, granted = Counter[tuple[str, str]](), []
    for night in history:
        grants = choose_grants(tools, tally_night(night), before, policy)
        chosen = {tool.key for tool, _, _ in grants}
        before.update(chosen)
        granted.append(chosen)
    return granted


def find_first(granted: list[set[tuple[str, str]]], tool: tuple[str, str]) -> float:
    return next((at for at, keys in enumerate(granted) if tool in keys), float("inf"))


@given(nights, policies)
def test_whatever_the_errors_every_tool_is_granted_more_within_so_many_nights(history, policy):
    most = ceil(len(tools) / ceil(policy.tools * policy.turns))
    granted = play((history * most)[:most], policy)
    assert set().union(*granted) == {tool.key for tool in tools}
    assert all(len(keys) <= policy.tools for keys in granted)
    assert max(Counter(key for keys in granted for key in keys).values()) <= policy.most


@given(nights, policies, st.sampled_from(NAMES), st.data())
def test_with_more_errors_a_tool_never_comes_later(history, policy, tool, data):
    worse = [{**night, tool: data.draw(st.integers(night[tool], ITEMS))} for night in history]
    assert find_first(play(worse, policy), tool) <= find_first(play(history, policy), tool)


def test_what_was_not_measured_counts_by_its_kinds_and_what_is_only_tested_on_gets_turns_alone():
    policy = CurriculumPolicy(tools=3, turns=0.1)
    chosen = choose_grants(tools, tally_night({NAMES[0]: ITEMS}), {}, policy)
    [turn] = [tool.key for tool, _, why in chosen if why == TURN]
    whys = {tool.key: why for tool, _, why in chosen if why != TURN}
    assert turn == NAMES[0] or whys.pop(NAMES[0]) == ERRORS
    assert set(whys.values()) == {KINDS}
    assert {at % 3 for at, name in enumerate(NAMES) if name in whys} == {0}  # its kinds
    held = [CurriculumTool(tool.key, tool.kinds, learnt=False) for tool in tools]
    policy = CurriculumPolicy(tools=4, turns=0.5)
    chosen = choose_grants(held, tally_night(dict.fromkeys(NAMES, ITEMS)), {}, policy)
    assert [why for _, _, why in chosen] == [TURN] * 4
    tally = ErrorTally()
    tally.add(NAMES[0], MISSING, wrong=True)
    tally.add(NAMES[1], RECOVERY, wrong=True)
    tally.add(NAMES[1], RECOVERY, wrong=True)
    assert {tool.choose_task(tally) for tool in held} == {RECOVERY}  # of all, not its own


SERVER = next(
    name
    for name in (f"npm:desk-{at}" for at in range(99))
    if choose_tool_place(name, "close_ticket", SetPolicy()) == TRAIN
)
FIELDS = {"ticket_id": {"type": "string"}, "day": {"type": "string", "format": "date"}}
CLOSE = make_tool("close_ticket", "Close a ticket.", FIELDS, "ticket_id")


@pytest.fixture
def home(warehouse) -> Warehouse:
    names = {"server_id": SERVER, "tool": "close_ticket"}
    listed = {**names, "contract_digest": contract_digest(CLOSE), "contract": json.dumps(CLOSE)}
    publish(warehouse, CLEAR, [listed], "a")
    written = [{**names, "task": task, "pair_id": task} for task in (SINGLE, LOOKALIKE)]
    publish(warehouse, PAIRS, [dict.fromkeys(PAIRS.columns) | row for row in written], "a")
    return warehouse


def publish(warehouse: Warehouse, spec: TableSpec, rows: list[dict[str, Any]], *of: str) -> None:
    warehouse.tables.promote(warehouse.tables.stage(spec, spec.frame(rows), *of), "test", [])


def evaluate(warehouse: Warehouse, *called: dict[str, Any], task: str = SINGLE) -> None:
    right = {"ticket_id": "T-1", "day": "2026-01-01"}
    about = {"model": find_model_in_service(warehouse.home, CALLER).model, "task": task}
    about |= {"split": "seen_tool", "perturbation": UNPERTURBED, "phantom": "", "failed": False}
    about |= {"server_id": SERVER, "tool": "close_ticket"}

    def write(arguments: dict[str, Any]) -> str:
        return json.dumps([{"name": "close_ticket", "arguments": arguments}])

    rows = [
        {**about, "item_id": f"{task} {at}", "ast_ok": arguments == right,
         "expected": write(right), "called": write(arguments)}
        for at, arguments in enumerate(called)
    ]  # fmt: skip
    other = {**rows[0], "model": "another", "item_id": "x", "ast_ok": False}
    publish(warehouse, CALLER_EVALUATION, [*rows, other])


def run(warehouse: Warehouse, **policy: Any) -> dict[str, Any]:
    trainer = TrainerPolicy(curriculum=CurriculumPolicy(**policy))
    return materialize([curriculum], warehouse=warehouse, trainer=trainer)["curriculum"]


def test_a_first_night_grants_nothing_and_right_answers_count_no_error(home):
    assert run(home)["granted_tools"] == 0
    assert read_grants(home.tables) == {}
    evaluate(home, {"ticket_id": "T-1", "day": "2026-01-01"})
    rows, tally = make_curriculum(home, CurriculumPolicy(), SetPolicy())
    assert not +tally.errors
    assert [row["reason"] for row in rows] == [TURN]


def test_the_task_that_is_failed_is_granted_once_for_each_evaluation(home):
    evaluate(home, {"ticket_id": "T-1"}, {"ticket_id": "T-2", "day": "2026-01-01"})
    shown = run(home)
    assert read_grants(home.tables) == {(SERVER, "close_ticket"): {RECOVERY}}  # a twin is there
    [row] = home.tables.read(CURRICULUM).to_dicts()
    assert (row["n"], row["errors"], row["kind"]) == (2, 2, "date")
    assert "data:image/png;base64," in shown["errors"]
    version = home.tables.head(CURRICULUM.name)
    run(home)
    assert home.tables.head(CURRICULUM.name) == version  # the same errors ask for nothing again
    evaluate(home, {"ticket_id": "T-1"}, task="ask_back")
    run(home)
    assert read_grants(home.tables) == {(SERVER, "close_ticket"): {RECOVERY, MISSING}}
