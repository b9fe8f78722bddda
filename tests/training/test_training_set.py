"""No server in both splits, no copy of a test tool in training, every negative resolvable."""

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from assets.synthesis.rows import accepted
from tests.training.conftest import embed, make_world
from training.split import TEST, TRAIN, split_of
from training.training_set import (
    TRAINING_SET,
    SetPolicy,
    build_training_set,
    load_manifest,
    manifest,
    save_manifest,
    set_flaws,
)


@given(st.text(min_size=1))
def test_the_split_is_a_function_of_the_server_alone(server: str) -> None:
    assert split_of(server) == split_of(server)
    assert split_of(server, test_share=0.0) == TRAIN
    assert split_of(server, test_share=1.0) == TEST


def test_about_the_asked_share_of_servers_is_tested() -> None:
    sides = [split_of(f"npm:server-{i}") for i in range(2000)]
    assert 0.26 < sides.count(TEST) / 2000 < 0.34


def test_the_set_has_no_flaw_and_both_splits(rows: list[dict]) -> None:
    assert set_flaws(rows) == []
    assert len(TRAINING_SET.frame(rows)) == 60


def test_negatives_are_other_tools_of_the_same_split(rows: list[dict]) -> None:
    side = {row["contract_digest"]: row["split"] for row in rows}
    for row in rows:
        near = json.loads(row["negatives"])
        assert 1 <= len(near) <= 4
        assert row["contract_digest"] not in near
        assert {side[name] for name in near} == {row["split"]}


def test_the_nearest_tool_is_the_first_negative(rows: list[dict]) -> None:
    row = next(row for row in rows if row["tool"].startswith("find_"))
    first = json.loads(row["negatives"])[0]
    assert next(r for r in rows if r["contract_digest"] == first)["server_id"] == row["server_id"]


def test_tools_it_is_confused_with_are_its_first_negatives(rows: list[dict]) -> None:
    snapshots, pairs = make_world()
    row = next(row for row in rows if row["tool"].startswith("find_"))
    others = [r["contract_digest"] for r in rows if r["split"] == row["split"]]
    strange = [name for name in others if name not in json.loads(row["negatives"])]
    worst = next(name for name in strange if name != row["contract_digest"])
    elsewhere = next(r["contract_digest"] for r in rows if r["split"] != row["split"])
    hard = {row["contract_digest"]: [row["contract_digest"], elsewhere, "c1:unknown", worst]}
    made = build_training_set(pairs, snapshots, embed, hard=hard)
    again = next(r for r in made.rows if r["pair_id"] == row["pair_id"])
    assert json.loads(again["negatives"]) == [worst, *json.loads(row["negatives"])[:3]]
    assert set_flaws(made.rows) == []


def test_a_pair_of_a_changed_contract_is_left_out() -> None:
    snapshots, pairs = make_world()
    pairs[0]["contract_digest"] = "c1:gone"
    assert build_training_set(pairs, snapshots, embed).dropped == {"stale_contract": 1}


def test_a_train_copy_of_a_test_tool_is_left_out() -> None:
    snapshots, pairs = make_world()
    tested = next(row for row in snapshots if split_of(row["server_id"]) == TEST)
    server = next(row["server_id"] for row in snapshots if split_of(row["server_id"]) == TRAIN)
    pair = next(p for p in pairs if p["tool"] == tested["tool"])
    copied = build_training_set(
        [*pairs, {**pair, "server_id": server, "pair_id": "p1:copy"}],
        [*snapshots, {**tested, "server_id": server}],
        embed,
    )
    assert copied.dropped == {"leak": 1}
    assert "p1:copy" not in {row["pair_id"] for row in copied.rows}


def test_only_verified_and_judged_pairs_are_accepted() -> None:
    good = {"status": "ok", "verdict": "accept", "task": "single", "twin_of": None}
    pairs = [
        {**good, "pair_id": "a"},
        {**good, "pair_id": "a"},  # the same pair from another marketplace
        {**good, "pair_id": "b", "status": "failed"},
        {**good, "pair_id": "c"},
        {**good, "pair_id": "d"},
        {**good, "pair_id": "e", "verdict": "reject"},
        {**good, "pair_id": "f", "twin_of": "a"},
        {**good, "pair_id": "g", "task": "parallel"},
    ]
    verdicts = [
        {"pair_id": name, "verdict": "accept" if name != "c" else "reject"} for name in "abcefg"
    ]
    assert [row["pair_id"] for row in accepted(pairs, verdicts)] == ["a"]


def test_a_pair_whose_prompts_showed_a_held_contract_is_left_out() -> None:
    snapshots, pairs = make_world()
    pairs[0]["contracts"] = json.dumps([pairs[0]["contract_digest"], "c1:held"])
    made = build_training_set(pairs, snapshots, embed, held={("npm:other", "look_up", "c1:held")})
    assert made.dropped == {"quarantined": 1}
    assert pairs[0]["pair_id"] not in {row["pair_id"] for row in made.rows}


def test_an_empty_split_is_a_flaw(rows: list[dict]) -> None:
    assert set_flaws([row for row in rows if row["split"] == TRAIN]) == [
        "the test split is empty: deploy more servers"
    ]
    assert len(set_flaws([])) == 2


def test_a_server_on_both_sides_and_a_lost_negative_are_flaws(rows: list[dict]) -> None:
    first = next(row for row in rows if row["split"] == TRAIN)
    moved = {**first, "split": TEST, "negatives": '["c1:lost"]', "pair_id": "x"}
    flaws = set_flaws([*rows, moved])
    assert any("both splits" in flaw for flaw in flaws)
    assert any("c1:lost does not resolve" in flaw for flaw in flaws)


def test_the_order_of_pairs_does_not_change_the_set(world: tuple[list, list]) -> None:
    snapshots, pairs = world
    policy = SetPolicy(negatives=2)
    one = build_training_set(pairs, snapshots, embed, policy)
    two = build_training_set(pairs[::-1], snapshots[::-1], embed, policy)
    names = [TRAINING_SET.digest(TRAINING_SET.frame(made.rows)) for made in (one, two)]
    assert names[0] == names[1]


def test_a_manifest_says_what_the_set_was_made_of(world: tuple[list, list], tmp_path: Path) -> None:
    snapshots, pairs = world
    made = build_training_set(pairs, snapshots, embed)
    save_manifest(tmp_path, manifest(made, "set-1", embedder="words", lance_version=3))
    read = load_manifest(tmp_path, "set-1")
    assert read is not None
    assert read["rows"][TRAIN] + read["rows"][TEST] == 60
    assert not set(read["servers"][TRAIN]) & set(read["servers"][TEST])
    assert len(read["contracts"]) == 30
    assert read["providers"] == {"offline": 60}
    assert load_manifest(tmp_path, "set-2") is None
