"""A run's evaluation: what is asked, and all models on the same items."""

import json
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.training.conftest import embed, make_rows
from tests.training.evaluation.conftest import PLAN, publish_set
from training.evaluation import caller_summary, caller_table, phantom, predictor, retriever
from training.evaluation.caller_items import CallerItem, TestPlan, make_fresh_items, make_items
from training.evaluation.caller_run import evaluate_candidate, load_bench
from training.gates import check_same_items
from training.role import BASELINE
from training.sets.pool import BadOffer, get_pool_path
from training.sets.split import TEST_SPLITS
from training.sets.training_set import TRAINING_SET, build_training_set
from warehouse.store import Warehouse


def plain(items: list[CallerItem]) -> list[CallerItem]:
    return [i for i in items if i.perturbation == "none" and not i.phantom and i.expected]


def test_every_cell_holds_the_right_tool_among_as_many_as_planned_the_same_each_time(items, made):
    cells = Counter((i.split, i.candidates, i.distractors) for i in plain(items))
    assert {split for split, _, _ in cells} == {"seen_tool", "unseen_tool", "unseen_server"}
    for (_, n, _), count in cells.items():
        assert count <= (10 if n == 6 else 4)
    for item in plain(items):
        assert len(item.tools) == item.candidates
        names = [tool["name"] for tool in item.tools]
        assert len(set(names)) == len(names)
        assert names.count(item.expected[0]["name"]) == 1
    cell = [i for i in plain(items) if (i.split, i.candidates, i.distractors) ==
            ("unseen_server", 6, "hard")]  # fmt: skip
    counts = Counter(item.row["tool"] for item in cell)
    assert len(cell) == 10
    assert max(counts.values()) - min(counts.values()) <= 1
    assert make_items(list(reversed(made.rows)), made.pool, PLAN) == items
    assert len({item.item_id for item in items}) == len(items)


def test_each_change_is_paired_with_the_same_question_unchanged(items):
    by_id = {item.item_id: item for item in items}
    for kind in caller_table.PERTURBATIONS:
        changed = [item for item in items if item.perturbation == kind]
        assert 1 <= len(changed) <= PLAN.perturbations, kind
        for item in changed:
            before = by_id[item.item_id.removesuffix(f"|{kind}")]
            assert (before.perturbation, before.instruction) == ("none", item.instruction)
            names = [tool["name"] for tool in item.tools]
            assert kind == "renamed_tool" or names == [tool["name"] for tool in before.tools]
            assert {call["name"] for call in item.expected} <= set(names)


def test_where_no_call_is_right_the_right_tool_is_away_and_an_old_name_nowhere(items):
    left_out = [item for item in items if item.task == caller_table.NOT_OFFERED]
    assert len(left_out) == PLAN.irrelevance
    for item in left_out:
        assert item.expected == []
        assert item.row["tool"] not in {tool["name"] for tool in item.tools}
    aside = [item for item in items if item.task == "no_tool"]
    assert [item.row["pair_id"] for item in aside] in ([], ["p1:aside"])
    here = [item for item in items if item.phantom == caller_table.RENAMED_HERE]
    assert len(here) == PLAN.phantom
    for item in here:
        assert item.dead == item.row["tool"]
        names = [tool["name"] for tool in item.tools]
        assert item.dead not in names
        assert item.expected[0]["name"] in names


def test_a_conversation_is_asked_turn_by_turn(made):
    items = make_items(made.rows, made.pool, replace(PLAN, per_split=100))
    talks = [item for item in items if item.before]
    asking = [item for item in talks if item.task == caller_table.ASK_BACK]
    assert {item.row["task"] for item in asking} == {"missing_parameter", "clarification"}
    for item in asking:
        assert (item.expected, [one["role"] for one in item.before]) == ([], ["user"])
        assert "find_note" in {tool["name"] for tool in item.tools}
    called = [item for item in talks if item.expected]
    assert {item.task for item in called} == {"clarification", "recovery"}
    for item in called:
        assert item.before[-1]["role"] != "assistant"
        call = {"name": "find_note", "arguments": {"title": "Blue Sky", "count": 2}}
        assert (item.expected, item.perturbation, item.phantom) == ([call], "none", "")
    assert all(item.before for item in items if item.row["task"] in
               ("missing_parameter", "clarification", "recovery"))  # fmt: skip


def test_requests_of_tools_that_are_gone_or_renamed_are_found(made):
    served = [row for row in made.rows if row["arguments"] and not row["messages"]]
    gone, moved = served[0], next(r for r in served if r["tool"] != served[0]["tool"])
    new_name = "brand_new_name"
    pool = {name: entry for name, entry in made.pool.items() if entry["tool"] != gone["tool"]}
    renamed = dict(pool.pop(moved["contract_digest"]))
    renamed["contract"] = {**renamed["contract"], "name": new_name}
    pool["c1:new"] = {**renamed, "tool": new_name}
    changes = [
        {"server_id": moved["server_id"], "tool": new_name, "from_digest": "x",
         "to_digest": "c1:new", "run_date": "2026-11-21", "renamed_from": moved["tool"]},
    ]  # fmt: skip
    listed = {(entry["server_id"], entry["tool"]) for entry in pool.values()}
    found = phantom.find_dead_requests(served, changes, listed, pool)
    assert {caller_table.GONE, caller_table.RENAMED} <= {one.phantom for one in found}
    assert {one.dead for one in found} == {gone["tool"], moved["tool"]}
    plan = replace(PLAN, phantom=50)
    asked = [
        i
        for i in make_items([], pool, plan, found)
        if i.phantom in (caller_table.GONE, caller_table.RENAMED)
    ]
    assert len(asked) == len(found)
    for item in asked:
        assert item.dead not in {tool["name"] for tool in item.tools}
        right = [call["name"] for call in item.expected]
        assert right == ([new_name] if item.phantom == caller_table.RENAMED else [])
        if item.phantom == caller_table.RENAMED:
            assert item.expected[0]["arguments"] == json.loads(item.row["arguments"])
    dead_pairs = {one.row["pair_id"] for one in found}
    assert dead_pairs == {row["pair_id"] for row in served if row["tool"] in
                          (gone["tool"], moved["tool"])}  # fmt: skip


def test_nothing_is_dead_that_is_listed_or_was_a_conversation_and_new_contracts_are_asked_for(made):
    listed = {(entry["server_id"], entry["tool"]) for entry in made.pool.values()}
    assert phantom.find_dead_requests(made.rows, [], listed, made.pool) == []
    talks = [row for row in made.rows if row["messages"]]
    assert talks
    assert phantom.find_dead_requests(talks, [], [], {}) == []
    fresh = {row["contract_digest"] for row in made.rows if row["split"] != "train"}
    chosen = make_fresh_items(made.rows, made.pool, replace(PLAN, fresh=5), fresh)
    assert {item.split for item in chosen} <= {"seen_tool", "unseen_tool"}
    assert len(chosen) == 5
    assert not make_fresh_items(made.rows, made.pool, PLAN, ())


FEW = st.integers(0, 3)
COUNTS: Any = dict.fromkeys(("per_large", "perturbations", "irrelevance", "phantom"), FEW)
PLANS = st.builds(
    TestPlan,
    splits=st.lists(st.sampled_from(TEST_SPLITS), unique=True).map(tuple),
    candidates=st.lists(st.integers(2, 40), min_size=1, max_size=3, unique=True).map(tuple),
    distractors=st.sampled_from([("random",), ("hard",), ("hard", "random")]),
    per_split=st.integers(0, 4),
    seeds=st.lists(FEW, min_size=1, max_size=2, unique=True).map(tuple),
    **COUNTS,
)


@given(PLANS)
def test_any_plan_makes_items_with_names_of_their_own(plan):
    items = make_items(MADE.rows, MADE.pool, plan)
    assert len({item.item_id for item in items}) == len(items)
    assert all(item.split in plan.splits for item in items)


SNAPSHOTS, PAIRS = make_rows()
MADE = build_training_set(PAIRS[:24], SNAPSHOTS, embed)


def opened(home: Path) -> Warehouse:
    return Warehouse(home=home, state=home / "state")


def kept_caller(home: Path, name: str, adapter: Path, base: str) -> str:
    folder = home / "models" / name
    shutil.copytree(adapter, folder)
    card: dict[str, Any] = {"role": "caller", "name": name, "base": base, "base_name": base}
    settings = {"context": 2048, "words": None}
    (folder / "model.json").write_text(json.dumps({**card, "start": "x", "settings": settings}))
    return name


def test_all_are_asked_the_same_and_a_lost_incumbent_is_told(
    tmp_path, made, adapter, base, monkeypatch
):
    from training.evaluation import loaded_model as module

    home = publish_set(tmp_path, [r for r in made.rows if r["split"] != "unseen_tool"], made)
    publish_set(home, made.rows, made)
    monkeypatch.setattr("training.evaluation.caller_run.is_smollm2", lambda _: True)
    monkeypatch.setattr("training.evaluation.caller_run.GENERAL", "c" * 64)

    generated = module.generate_completions
    monkeypatch.setattr(
        module, "generate_completions", lambda *a, **k: generated(*a, **{**k, "max_new": 3})
    )
    mine = kept_caller(home, "a" * 64, adapter, str(base))
    lost = kept_caller(home, "b" * 64, adapter, "/no/such/base")
    plan = type(PLAN)(candidates=(4,), per_split=3, perturbations=1, irrelevance=1, phantom=1)
    rows, notes = evaluate_candidate(opened(home), mine, lost, plan)
    assert {row["model"] for row in rows} == {BASELINE, mine}
    assert "/no/such/base" in notes[0]
    assert "cccc" in notes[1], "the caller that ships is asked, too"
    assert check_same_items(rows, mine, BASELINE).passed
    assert len(caller_table.CALLER_EVALUATION.frame(rows)) == len(rows)
    summary = caller_summary.summarise_calls(rows, mine)
    assert summary["gate"]["gain"]["n"] == summary["n"] > 0
    own = [row for row in rows if row["model"] == mine and row["nats"] is not None]
    assert all(row["nats"] < 0 for row in own)
    assert Counter(row["distractors"] for row in own) == {"kept": 60, "fresh": 8}
    assert summary["gate"]["kept_nats"]["n"] == 0, "the baseline has no likelihood"
    with pytest.raises(predictor.CannotPredict, match="/no/such/base"):
        evaluate_candidate(opened(home), lost, BASELINE, plan)


def test_requests_of_an_earlier_set_whose_tool_is_gone_are_asked(tmp_path, made):
    old = {**made.rows[0], "pair_id": "p1:old", "tool": "burn_file", "server_id": "npm:file"}
    old["calls"] = json.dumps([{"name": "burn_file", "contract_digest": "c1:x", "arguments": {}}])
    home = publish_set(tmp_path / "home", [*made.rows, old], made)
    assert load_bench(opened(home)).dead == []  # the current set is no earlier one
    publish_set(home, made.rows, made)
    held = load_bench(opened(home))
    assert [(one.phantom, one.dead) for one in held.dead] == [(caller_table.GONE, "burn_file")]
    asked: list[CallerItem] = [
        item for item in held.make_items_for(PLAN) if item.phantom == caller_table.GONE
    ]
    assert (len(asked), asked[0].expected) == (1, [])
    beside = {tool["name"] for tool in asked[0].tools}
    assert {"find_file", "make_file", "drop_file"} <= beside  # what its server lists now


def test_a_home_that_cannot_be_measured_says_why(tmp_path, home):
    with pytest.raises(retriever.NothingToEvaluate, match="materialize training_set"):
        load_bench(opened(tmp_path / "empty"))
    head = opened(home).tables.head(TRAINING_SET.name)
    assert head is not None
    get_pool_path(home, head.digest).unlink()
    with pytest.raises(BadOffer, match="no pool"):
        load_bench(opened(home))
