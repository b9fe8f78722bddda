"""Which tool gets which task, and what a plan compares: properties over made-up marketplaces."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assets.synthesis.judging.judge import make_offline_provider
from assets.synthesis.policy import SynthesisPolicy, TaskShares
from assets.synthesis.prompts import PromptFile, read_prompt
from assets.synthesis.tables import LOOKALIKE, NO_TOOL, SEQUENTIAL, SINGLE, TASKS
from assets.synthesis.writing import row_builder, units
from assets.synthesis.writing.partners import hash_fraction
from assets.synthesis.writing.units import WritingUnit, draws_task, list_steps, plan_units
from tests.support.examples import examples
from tests.synthesis.contracts import ALL, snapshot_rows
from tests.synthesis.scripted import ALL_TASKS, ROLES, SINGLES, others, planned
from warehouse.ledger.ledger import Ledger
from warehouse.llm.client import LLM, Role

Row = dict[str, Any]
VERBS, THINGS = ("list", "get", "delete", "send"), ("file", "song", "order")


class NoLedger(Ledger):
    """Planning asks nobody: no ledger is opened."""

    def __init__(self) -> None:
        return


LLM_ = LLM([Role(name) for name in ROLES], NoLedger(), offline=make_offline_provider())


def tool(server: int, verb: str, thing: str) -> Row:
    name = f"{verb}_{thing}"
    required = [] if verb == "list" else [f"{thing}_id"]
    schema = {
        "type": "object",
        "properties": {f"{thing}_id": {"type": "string"}},
        "required": required,
    }
    made = {"name": name, "description": f"{verb} the {thing} of {server}", "inputSchema": schema}
    return snapshot_rows([made], f"npm:s{server}")[0]


EVERYTHING = [
    tool(server, verb, thing) for server in range(4) for verb in VERBS for thing in THINGS
]
MARKETS = st.lists(st.sampled_from(range(len(EVERYTHING))), min_size=1, max_size=24, unique=True)


def key(row: Mapping[str, Any]) -> str:
    return f"{row['server_id']}/{row['tool']}"


def near_among(rows: Sequence[Row]) -> Any:
    """A likeness of two tools that no third tool changes; some tools are like nobody."""

    def near(row: Mapping[str, Any]) -> list[Row]:
        alike = {key(one): hash_fraction("alike", *sorted((key(row), key(one)))) for one in rows
                 if key(one) != key(row)}  # fmt: skip
        found = [one for one in rows if alike.get(key(one), 0.0) > 0.6]
        return sorted(found, key=lambda one: -alike[key(one)])

    return near


def plans(
    rows: Sequence[Row], policy: SynthesisPolicy
) -> tuple[dict[str, str], dict[str, WritingUnit]]:
    made = planned(rows, policy, near_among(rows))
    return plan_units(made, LLM_, policy), {unit.key: unit for unit in made}


@examples(60)
@given(MARKETS, st.data(), st.sampled_from([0.3, 1.0]))
def test_a_tool_that_goes_takes_exactly_the_units_that_show_it(
    places: list[int], data: st.DataObject, share: float
) -> None:
    rows = [EVERYTHING[place] for place in places]
    gone = data.draw(st.sampled_from(rows))
    policy = SynthesisPolicy(tasks=TaskShares(**dict.fromkeys(TASKS[1:], share)), distractors=2)
    before, shown = plans(rows, policy)
    after, left = plans([row for row in rows if row is not gone], policy)
    show_it = {name for name, unit in shown.items() if gone in unit.shown}
    assert {name for name in before if after.get(name) != before[name]} == show_it
    # Released, it brings back exactly those, as they were.
    assert {name for name in before if name not in after or after[name] != before[name]} == show_it
    assert set(after) <= set(before), "a tool that goes makes no new unit"
    assert not any(gone in unit.shown for unit in left.values())


@settings(max_examples=40, deadline=None)
@given(MARKETS)
def test_every_unit_is_whole(places: list[int]) -> None:
    rows = [EVERYTHING[place] for place in places]
    made = planned(rows, ALL_TASKS, near_among(rows))
    assert len({unit.key for unit in made}) == len(made)
    assert [unit.own for unit in made if unit.task == SINGLE] == rows
    for unit in made:
        assert all(row in rows for row in unit.shown)
        assert len({key(row) for row in unit.shown}) == len(unit.shown)
        if unit.task in (LOOKALIKE, NO_TOOL):
            assert len({row["tool"] for row in unit.shown}) == len(unit.shown)
        if unit.task == LOOKALIKE:
            assert unit.rivals
        if len(unit.rows) > 1:
            assert len({row["tool"] for row in unit.rows}) == len(unit.rows)
        assert len(unit.rows) == 2 or unit.task != SEQUENTIAL


@given(st.permutations(range(len(EVERYTHING))))
@settings(max_examples=10, deadline=None)
def test_the_order_of_the_rows_decides_nothing(order: list[int]) -> None:
    rows = [EVERYTHING[place] for place in order]
    assert plans(rows, ALL_TASKS)[0] == plans(EVERYTHING, ALL_TASKS)[0]


def test_nothing_that_near_names_beyond_the_rows_is_shown() -> None:
    clear, quarantined = EVERYTHING[:6], EVERYTHING[6:9]
    made = planned(clear, ALL_TASKS, lambda row: [*quarantined, *clear[:2]])
    assert not [unit for unit in made if any(row in quarantined for row in unit.shown)]
    assert [unit for unit in made if unit.rivals]


def test_a_share_is_kept_over_many_tools() -> None:
    rows = [{"server_id": f"npm:{n // 7}", "tool": f"t{n}"} for n in range(4000)]
    for task in TASKS[1:]:
        held = sum(draws_task(row, task, 0.1) for row in rows) / len(rows)
        assert 0.085 < held < 0.115
    assert not any(draws_task(row, LOOKALIKE, 0.0) for row in rows)
    assert all(draws_task(row, LOOKALIKE, 1.0) for row in rows)


def test_no_share_no_task_and_no_checks_no_rivals() -> None:
    made = planned(EVERYTHING, SINGLES, near_among(EVERYTHING))
    assert {unit.task for unit in made} == {SINGLE}
    assert not any(unit.rivals for unit in made)


EDITABLE = (
    "generate", "revise", "evolve", "call", "repair", "several", "no_tool", "missing", "act",
    "choose",
)  # fmt: skip


def edit(patch: pytest.MonkeyPatch, name: str) -> None:
    """Puts one more sentence into one prompt file."""
    kept = read_prompt(name)
    edited = dataclasses.replace(kept, digest="e" * 64, system=f"{kept.system}\nBe brief.")

    def changed(asked: str) -> PromptFile:
        return edited if asked == name else read_prompt(asked)

    for module in (units, row_builder):
        patch.setattr(module, "read_prompt", changed)


@pytest.mark.parametrize("name", EDITABLE)
def test_an_edited_prompt_redoes_exactly_the_units_that_use_it(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, made = plans(EVERYTHING, ALL_TASKS)
    edit(monkeypatch, name)
    after, _ = plans(EVERYTHING, ALL_TASKS)
    using = {u.key for u in made.values() if name in {p for _, p in list_steps(u, ALL_TASKS)}}
    assert {one for one in before if before[one] != after[one]} == using
    assert 0 < len(using) < len(before)


def test_a_unit_that_does_not_evolve_knows_nothing_of_evolution() -> None:
    made = planned(EVERYTHING, dataclasses.replace(SINGLES, evolve_share=0.3, pairs_per_tool=1))
    policy = dataclasses.replace(SINGLES, evolve_share=0.3, pairs_per_tool=1)
    using = [u for u in made if ("evolver", "evolve") in list_steps(u, policy)]
    assert 0 < len(using) < len(made)


@pytest.mark.parametrize(
    ("changed", "tasks"),
    [
        ({"pairs_per_tool": 4}, {SINGLE}),
        ({"seed": 8}, set(TASKS)),
        ({"languages": ("en", "de")}, set(TASKS)),
        ({"judge_threshold": 9.0}, set()),
        ({"twins_above": 0.5}, set()),
    ],
)
def test_a_policy_value_redoes_the_units_that_read_it(
    changed: dict[str, Any], tasks: set[str]
) -> None:
    before, made = plans(EVERYTHING, ALL_TASKS)
    after, _ = plans(EVERYTHING, dataclasses.replace(ALL_TASKS, **changed))
    assert {made[one].task for one in before if before[one] != after[one]} == tasks


def test_another_checker_redoes_what_is_checked_and_a_slower_one_nothing() -> None:
    before, made = plans(EVERYTHING, ALL_TASKS)
    units_ = list(made.values())
    roles = [Role(name) for name in ROLES if name != "checker_b"]
    other = LLM(
        [*roles, Role("checker_b", temperature=0.3)], NoLedger(), offline=make_offline_provider()
    )
    slow = LLM(
        [*roles, Role("checker_b", timeout_s=1)], NoLedger(), offline=make_offline_provider()
    )
    after = plan_units(units_, other, ALL_TASKS)
    checked = {u.key for u in units_ if u.task in (SINGLE, LOOKALIKE) and u.rivals}
    assert {one for one in before if before[one] != after[one]} == checked
    assert plan_units(units_, slow, ALL_TASKS) == before


def test_tools_stand_in_sequence_only_where_one_speaks_of_what_the_other_takes() -> None:
    rows = snapshot_rows(ALL)
    made = planned(rows, ALL_TASKS, others(rows))
    chains = [unit for unit in made if unit.task == SEQUENTIAL]
    assert all(len(unit.rows) == 2 for unit in chains)
    pair = [tool(0, "list", "file"), tool(0, "delete", "file")]
    assert [u.rows for u in planned(pair, ALL_TASKS) if u.task == SEQUENTIAL] == [
        tuple(pair), tuple(pair[::-1]),
    ]  # fmt: skip
    unrelated = [tool(0, "list", "file"), tool(0, "delete", "song")]
    assert not [u for u in planned(unrelated, ALL_TASKS) if u.task == SEQUENTIAL]
