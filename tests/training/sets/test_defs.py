"""The asset of the set and its pool: what bad runs keep, and what is offered of good ones."""

import json
import subprocess
import sys
from typing import Any

import dagster as dg
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assets.catalogue.catalogue import CATALOGUE
from assets.contracts.canonical import canonicalize_contract, contract_digest
from assets.contracts.quarantined_tools import CLEAR, Decision, record_decision
from assets.marketplaces.listing_table import LISTINGS
from assets.outcomes.table import EXECUTIONS
from assets.outcomes.trajectory import TRAJECTORIES, TaskTrajectory, TrajectoryStep, WorldStretch
from assets.synthesis.tables import JUDGEMENTS, PAIRS
from tests.support.cases import cases
from tests.support.examples import examples
from tests.support.paths import ROOT
from tests.training.conftest import make_rows, raw_tool
from tests.vectors.conftest import WordEmbedder
from training.adapter_table import set_name, set_rows
from training.defs import training_set
from training.policies import TrainerPolicy
from training.sets.pool import (
    DISTRACTORS,
    HARD,
    MIXED,
    BadOffer,
    ToolPool,
    draw_candidates,
    load_pool,
    save_pool,
    select_split_pool,
)
from training.sets.set_audit import load_manifest
from training.sets.split import TEST, TRAIN, UNSEEN_SERVER, SetPolicy, split_of
from training.sets.training_set import TRAINING_SET
from warehouse.storage.lance import LanceStore
from warehouse.storage.tables import TableSpec
from warehouse.store import Warehouse

Row = dict[str, Any]


class Embedder(WordEmbedder):
    dim = 4096


def put(warehouse: Warehouse, spec: TableSpec, rows: list[Row]) -> None:
    kept = [{name: row.get(name) for name in spec.columns} for row in rows]
    tables = warehouse.tables
    tables.promote(tables.stage(spec, spec.frame(kept), "registry"), "test", [])


def run_asset(
    warehouse: Warehouse, snapshots: list[Row], pairs: list[Row], policy: SetPolicy = SetPolicy()
) -> dict[str, Any]:
    put(warehouse, CLEAR, snapshots)
    put(warehouse, PAIRS, [{"marketplace": "registry", "index": 0, **row} for row in pairs])
    put(warehouse, JUDGEMENTS, [{**row, "verdict": "accept"} for row in pairs])
    given = {"warehouse": warehouse, "embedder": Embedder(), "trainer": TrainerPolicy(split=policy)}
    held = {k: dg.ResourceDefinition.hardcoded_resource(v) for k, v in given.items()}
    assets: list[Any] = [training_set]
    result = dg.materialize(assets, resources=held, raise_on_error=False)
    if not result.success:
        [check] = [each for each in result.get_asset_check_evaluations() if not each.passed]
        return {"refused": check.description}
    if not (events := result.get_asset_materialization_events()):
        return {"skipped": True}
    [event] = events
    assert event.materialization
    return {name: value.value for name, value in event.materialization.metadata.items()}


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    """One published set for the tests that leave it as it is."""
    root = tmp_path_factory.mktemp("set")
    warehouse = Warehouse(home=root / "home", state=root / "state")
    assert run_asset(warehouse, *make_rows())["dagster/row_count"] == 60
    return warehouse


def only(keep: Any) -> tuple[list[Row], list[Row]]:
    snapshots, pairs = make_rows()
    return snapshots, [row for row in pairs if keep(row)]


def test_pairs_are_taken_by_what_their_calls_say_and_joined_ids_stand_on_one_side(warehouse):
    snapshots, pairs = make_rows()
    names = [row["pair_id"] for row in pairs if row["pair_id"]]
    tried = [
        {"execution_id": f"e1:{n}", "pair_ids": json.dumps([name]), "outcome": "tool_error",
         "blame": "caller", "proof": "refuted"}
        for n, name in enumerate(names[:2])
    ]  # fmt: skip
    put(warehouse, EXECUTIONS, [*tried])
    every = run_asset(warehouse, snapshots, pairs)
    valid = run_asset(warehouse, snapshots, pairs, SetPolicy(executed="valid"))
    assert every["dagster/row_count"] == 60
    assert (valid["dagster/row_count"], valid["dropped"]["not valid when executed"]) == (58, 2)
    learnt = next(row["server_id"] for row in pairs if not on_test_side(row))
    tested = next(row["server_id"] for row in pairs if on_test_side(row))
    row = {"catalogue_id": "cat:0", "server_ids": [learnt, tested]}
    put(warehouse, CATALOGUE, [row])
    run_asset(warehouse, snapshots, pairs)
    made = warehouse.tables.read(TRAINING_SET).filter(pl.col("server_id") == learnt)
    assert set(made["split"]) == {UNSEEN_SERVER}


def on_test_side(row: Row) -> bool:
    return split_of(row["server_id"]) == TEST


@cases(
    "keep, message",
    (lambda row: False, "the train split is empty"),
    (on_test_side, "the train split is empty"),
    (lambda row: not on_test_side(row), "the unseen_server split is empty"),
    (lambda row: on_test_side(row) or row["tool"] == "drop_song", "call npm:song/drop_song alone"),
    (lambda row: on_test_side(row) or row["server_id"] == "npm:song", "are of npm:song; expected"),
    ids=["no pairs", "no train", "no unseen server", "one tool", "one server"],
)
def test_an_empty_split_or_a_single_class_keeps_the_set_that_is_published(published, keep, message):
    before = set_name(published)
    assert message in run_asset(published, *only(keep))["refused"]
    assert set_name(published) == before
    assert len(published.tables.read(TRAINING_SET)) == 60
    assert load_manifest(published.home, before)


def test_one_server_alone_is_nothing_to_train_on_and_no_failure(warehouse):
    snapshots, pairs = only(lambda row: row["server_id"] == "npm:song")
    put(warehouse, LISTINGS, [{"listing_id": "private:mcp.json#notes"}])
    assert run_asset(warehouse, snapshots, pairs) == {"skipped": True}
    assert warehouse.tables.head(TRAINING_SET.name) is None
    two = [{"listing_id": f"private:mcp.json#{name}"} for name in ("notes", "mail")]
    put(warehouse, LISTINGS, two)
    assert "expected two" in run_asset(warehouse, snapshots, pairs)["refused"]


def test_the_same_inputs_are_the_same_set_with_its_manifest_and_pool(published):
    name = set_name(published)
    kept = load_manifest(published.home, name)
    pool = load_pool(published.home, name)
    assert run_asset(published, *make_rows())["version_moved"] is False
    assert load_manifest(published.home, name) == kept
    assert load_pool(published.home, name) == pool
    assert kept
    assert kept["lance_tag"] == f"training-set-{name[:16]}"
    assert kept["lance_version"] == LanceStore(published.home / "lance").tag(kept["lance_tag"])
    assert kept["rows"] == {"train": 38, "seen_tool": 8, "unseen_tool": 2, "unseen_server": 12}
    assert {row["split"] for row in set_rows(published, TRAIN)} == {TRAIN}
    # Those who ask for the test side, as in older versions, get the servers that were never seen.
    assert [len(select_split_pool(pool, split)) for split in (TRAIN, UNSEEN_SERVER)] == [23, 30]


def test_what_is_held_since_leaves_the_pool_and_what_was_made_of_it_the_set(warehouse):
    snapshots, pairs = make_rows()
    raw = {"name": "zzz", "description": "Qqq www eee rrr.", "inputSchema": {"type": "object"}}
    lonely = {**snapshots[0], "server_id": "npm:note", "tool": "zzz", "contract_digest": "c1:zzz",
              "contract": json.dumps(raw)}  # fmt: skip
    run_asset(warehouse, [*snapshots, lonely], pairs)
    name = set_name(warehouse)
    pool = load_pool(warehouse.home, name)
    hold(warehouse, "c1:zzz")  # nobody's pair and nobody's negative: the set stays what it is
    run_asset(warehouse, [*snapshots, lonely], pairs)
    assert set_name(warehouse) == name
    assert load_pool(warehouse.home, name).keys() == pool.keys() - {"c1:zzz"}
    bad = next(digest for digest, entry in pool.items() if entry["split"] == TRAIN)
    hold(warehouse, bad)
    assert run_asset(warehouse, [*snapshots, lonely], pairs)["dropped"] == {"quarantined": 2}
    assert set_name(warehouse) != name
    assert bad not in load_pool(warehouse.home, set_name(warehouse))
    assert not any(bad in json.dumps(row) for row in warehouse.tables.read(TRAINING_SET).to_dicts())


def hold(warehouse: Warehouse, digest: str) -> None:
    decision = Decision(digest, "*", "held", "ann", "2026-01-02T03:04:05Z", "read it")
    record_decision(warehouse.home, decision)


def played(snapshots: list[Row], server: str, why: str | None = None) -> Row:
    """A trajectory of one server's first two tools: a wrong call, its error, two right calls."""
    own = [row for row in snapshots if row["server_id"] == server][:2]
    steps = [
        TrajectoryStep(server, row["tool"], row["contract_digest"], given, "no such title",
                       "useful", "s1", "s1", wrong=wrong)
        for row, given, wrong in ((own[0], {"title": "Odd"}, True),
                                  (own[0], {"title": "Even", "count": 1}, False),
                                  (own[1], {"title": "Even", "count": 1}, False))
    ]  # fmt: skip
    offered = {row["contract_digest"]: (server, json.loads(row["contract"])) for row in own}
    places = (WorldStretch("small", "task", 1, "s1", "s2"),)
    words = f"Please take care of it all at {server}."
    return TaskTrajectory(words, tuple(steps), "Done.", places, offered, why).make_row()


def test_kept_trajectories_are_learnt_from_where_the_settings_say_so(warehouse):
    snapshots, pairs = make_rows()
    learnt = next(row["server_id"] for row in pairs if not on_test_side(row))
    tested = next(row["server_id"] for row in pairs if on_test_side(row))
    unknown = {**played(snapshots, learnt), "trajectory_id": "t1:unknown", "server_id": "npm:gone"}
    wrong = {**played(snapshots, learnt, "it ended wrong"), "trajectory_id": "t1:wrong"}
    rows = [played(snapshots, learnt), played(snapshots, tested), unknown, wrong]
    tables = warehouse.tables
    tables.promote(tables.stage(TRAJECTORIES, TRAJECTORIES.frame(rows)), "test", [])
    assert run_asset(warehouse, snapshots, pairs)["dagster/row_count"] == 60
    policy = SetPolicy(trajectories=True, seen_tools=0.0, unseen_tools=0.0)
    found = run_asset(warehouse, snapshots, pairs, policy)
    assert found["dropped"] == {"stale_contract": 1}  # of a server that this home does not know
    kept = tables.read(TRAINING_SET).filter(task="trajectory").to_dicts()
    sides = {row["server_id"]: row["split"] for row in kept}
    assert sides == {learnt: TRAIN, tested: UNSEEN_SERVER}
    for row in kept:
        own = [one for one in json.loads(row["messages"]) if one["role"] == "assistant"]
        assert [one.get("weight") for one in own] == [0, None, None, None]
        assert len(json.loads(row["calls"])) == 2


def names(offer: list) -> list[str]:
    return [tool["name"] for tool in offer]


def entry(raw: Row, server: str, split: str = TRAIN, *twins: str) -> Row:
    contract = canonicalize_contract(raw)
    facts = {"server_id": server, "tool": raw["name"], "contract": contract, "split": split}
    return {**facts, "twins": list(twins)}


def row_of(name: str, *golds: str, **facts: Any) -> Row:
    calls = [{"name": "?", "contract_digest": gold, "arguments": {}} for gold in golds]
    own = golds[0] if golds else facts.pop("own")
    return {"pair_id": name, "contract_digest": own, "calls": json.dumps(calls),
            "negatives": "[]", "instruction": "Please do.", **facts}  # fmt: skip


@st.composite
def pools(draw: st.DrawFn) -> tuple[dict[str, Row], list[str]]:
    """A pool in which names repeat, servers have several tools, and some are marked as twins."""
    words = st.sampled_from(["find", "make", "drop", "song", "note", "page"])
    many = draw(st.integers(1, 14))
    pool, digests = {}, []
    for at in range(many):
        raw = raw_tool("find", "song") | {
            "name": f"{draw(words)}_{draw(words)}",
            "description": " ".join(draw(st.lists(words, min_size=1, max_size=5))) + f" {at}",
        }
        digests.append(contract_digest(raw))
        pool[digests[-1]] = entry(raw, f"npm:{draw(words)}")
    for _ in range(draw(st.integers(0, 3))):
        one, other = draw(st.sampled_from(digests)), draw(st.sampled_from(digests))
        pool[one]["twins"] = [other]
    return pool, digests


@examples(60)
@given(pools(), st.integers(1, 20), st.sampled_from(DISTRACTORS), st.integers(0, 3), st.data())
def test_an_offer_holds_what_it_says(drawn, n, how, seed, data):
    entries, digests = drawn
    pool = ToolPool(entries)
    golds = data.draw(st.lists(st.sampled_from(digests), min_size=1, max_size=3, unique=True))
    golds = list({entries[name]["tool"]: name for name in golds}.values())
    near = data.draw(st.lists(st.sampled_from(digests), max_size=4))
    row = row_of("p1", *golds, negatives=json.dumps([*near, "c1:gone"]))
    offer = draw_candidates(row, pool, n, distractors=how, seed=seed)
    without = draw_candidates(row, pool, n, distractors=how, seed=seed, gold=False)
    assert offer == draw_candidates(row, entries, n, distractors=how, seed=seed)
    for made in (offer, without):
        assert len(set(names(made))) == len(made)
    held = [entries[name]["contract"] for name in golds]
    assert all(offer.count(one) == 1 for one in held)
    twins = {twin for name in golds for twin in pool.get_twins(name)}
    banned = [entries[name]["contract"] for name in twins]
    assert not any(one in without for one in banned)
    assert not any(one in offer for one in banned if one not in held)
    taken = {one["name"] for one in held}
    free = {entries[d]["tool"] for d in digests if d not in twins}
    assert len(offer) == max(len(golds), min(n, len(taken) + len(free - taken)))
    assert len(without) == min(n, len(free))


def test_offers_differ_by_kind_and_seed_put_the_right_tool_anywhere_and_take_what_a_pool_has(made):
    pool = select_split_pool(made.pool, TRAIN)
    rows = [row for row in made.rows if row["split"] == TRAIN]
    assert {names(draw_candidates(row, pool, 4)).index(row["tool"]) for row in rows} == {0, 1, 2, 3}
    pool, row = select_split_pool(made.pool, UNSEEN_SERVER), made.rows[0]
    offers = {tuple(names(draw_candidates(row, pool, 10, distractors=how, seed=seed)))
              for how in DISTRACTORS for seed in (0, 1)}  # fmt: skip
    assert len(offers) == 6
    hard = [set(names(draw_candidates(row, pool, 10, distractors=HARD, seed=s))) for s in (0, 1)]
    assert hard[0] == hard[1]  # the hardest are the hardest; only their order is drawn
    pool = select_split_pool(made.pool, UNSEEN_SERVER)
    assert len(draw_candidates(made.rows[0], pool, 100)) == len(pool) == 30
    only = {made.rows[0]["contract_digest"]: made.pool[made.rows[0]["contract_digest"]]}
    assert names(draw_candidates(made.rows[0], only, 10)) == [made.rows[0]["tool"]]
    assert draw_candidates(made.rows[0], only, 10, gold=False) == []
    row = next(r for r in made.rows if r["split"] == UNSEEN_SERVER)
    pool = select_split_pool(made.pool, UNSEEN_SERVER)
    hard = json.loads(row["negatives"])
    mixed = set(names(draw_candidates(row, pool, 10, distractors=MIXED)))
    assert {pool[name]["name"] for name in hard[:5]} <= mixed
    assert mixed != set(names(draw_candidates(row, pool, 10, distractors=HARD)))


def test_hard_is_confused_then_beside_then_near_and_no_distractor_could_serve_the_row():
    def tool(name: str, about: str) -> Row:
        return {"name": name, "description": about, "inputSchema": {"type": "object"}}

    raws = {
        "gold": (tool("find_song", "look up a song"), "npm:song"),
        "confused": (tool("zzz", "qqq"), "npm:other"),
        "beside": (tool("drop_list", "remove every song"), "npm:song"),
        "near": (tool("find_songs", "look up a song quickly"), "npm:else"),
        "far": (tool("bake", "oven temperature"), "npm:kitchen"),
    }
    pool = {name: entry(raw, server) for name, (raw, server) in raws.items()}
    row = row_of("p1", "gold", negatives='["confused"]')
    hard = [set(names(draw_candidates(row, pool, n, distractors=HARD))) for n in (2, 3, 4, 5)]
    assert [one - two for one, two in zip(hard, [{"find_song"}, *hard], strict=False)] == [
        {"zzz"}, {"drop_list"}, {"find_songs"}, {"bake"}
    ]  # fmt: skip
    raw = raw_tool("find", "song")
    same = {**raw, "inputSchema": {**raw["inputSchema"], "required": ["title"]}}
    marked, other = raw_tool("make", "song"), raw_tool("drop", "song")
    pool = {"a": entry(raw, "s", TRAIN, "c"), "b": entry(same, "t"),
            "c": entry(marked, "u"), "d": entry(other, "v")}  # fmt: skip
    row = row_of("p1", "a", negatives='["b", "c", "d"]')
    for how in DISTRACTORS:
        offer = names(draw_candidates(row, pool, 10, distractors=how))
        assert set(offer) == {"find_song", "drop_song"}
        assert names(draw_candidates(row, pool, 10, distractors=how, gold=False)) == ["drop_song"]
    pool = {name: entry(raw_tool(name, "song"), "s") for name in ("find", "make", "drop")}
    row = row_of("p1", "find", "drop", "find")
    assert set(names(draw_candidates(row, pool, 1))) == {"find_song", "drop_song"}
    assert len(draw_candidates(row, pool, 3)) == 3
    assert names(draw_candidates(row, pool, 3, gold=False)) == ["make_song"]
    things = ("song", "note", "page", "photo", "flight", "recipe", "ticket", "file", "issue",
              "album", "letter", "parcel")  # fmt: skip
    pool = {thing: entry(raw_tool("find", thing), thing) for thing in things}
    row = row_of("p1", own="song", offered='["song", "gone"]', instruction="Which photo is best?")
    for how in DISTRACTORS:
        assert names(draw_candidates(row, pool, 1, distractors=how)) == ["find_song"]
        full = set(names(draw_candidates(row, pool, 100, distractors=how)))
        assert full == {f"find_{thing}" for thing in things if thing != "photo"}


def test_a_train_prompt_shows_train_tools_alone_and_a_bad_offer_or_pool_is_told(made, tmp_path):
    learnt = select_split_pool(made.pool, TRAIN)
    assert {made.pool[name]["split"] for name in learnt} == {TRAIN}
    row = next(row for row in made.rows if row["split"] == UNSEEN_SERVER)
    with pytest.raises(BadOffer, match=rf"pair {row['pair_id']}: the pool of 23 contracts lacks"):
        draw_candidates(row, learnt, 10)
    with pytest.raises(BadOffer, match="distractors 'easy': expected one of random, hard, mixed"):
        draw_candidates(made.rows[0], made.pool, 10, distractors="easy")
    path = save_pool(tmp_path, "set-1", made.pool)
    assert load_pool(tmp_path, "set-1") == made.pool
    with pytest.raises(BadOffer, match=r"set set-2 has no pool .* materialize training_set"):
        load_pool(tmp_path, "set-2")
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(BadOffer, match=r"not a pool .* remove the file"):
        load_pool(tmp_path, "set-1")


def test_another_process_draws_the_same_offers(made, tmp_path):
    save_pool(tmp_path, "set-1", made.pool)
    rows = [row for row in made.rows if row["split"] == UNSEEN_SERVER]
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    code = (
        "import json, sys; from pathlib import Path\n"
        "from training.sets.pool import *\n"
        "home = Path(sys.argv[1])\n"
        "pool = select_split_pool(load_pool(home, 'set-1'), 'unseen_server')\n"
        "rows = json.loads((home / 'rows.json').read_text())\n"
        "print(json.dumps([[c['name'] for c in draw_candidates(r, pool, 10, distractors=d)]\n"
        "                  for r in rows for d in DISTRACTORS]))"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    out = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True,
                          env={"PYTHONHASHSEED": "12345", "PATH": ""}).stdout  # fmt: skip
    pool = select_split_pool(made.pool, UNSEEN_SERVER)
    drawn = [names(draw_candidates(r, pool, 10, distractors=d)) for r in rows for d in DISTRACTORS]
    assert json.loads(out) == drawn
