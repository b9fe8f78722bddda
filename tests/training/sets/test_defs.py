"""The asset: bad runs keep the set that is published, good ones its manifest and pool."""

import json
from typing import Any

import dagster as dg
import polars as pl
import pytest

from assets.catalogue.catalogue import CATALOGUE
from assets.contracts.quarantined_tools import CLEAR, Decision, record_decision
from assets.marketplaces.listing_table import LISTINGS
from assets.outcomes.table import EXECUTIONS
from assets.outcomes.trajectory import TRAJECTORIES, TaskTrajectory, TrajectoryStep, WorldStretch
from assets.synthesis.tables import JUDGEMENTS, PAIRS
from tests.support.cases import cases
from tests.training.conftest import make_rows
from tests.vectors.conftest import WordEmbedder
from training.adapter_table import set_name, set_rows
from training.defs import training_set
from training.policies import TrainerPolicy
from training.sets.pool import load_pool, select_split_pool
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
    warehouse: Warehouse,
    snapshots: list[Row],
    pairs: list[Row],
    trainer: TrainerPolicy | None = None,
) -> dict[str, Any]:
    """Runs the asset; returns its figures, or {"refused": why}."""
    put(warehouse, CLEAR, snapshots)
    put(warehouse, PAIRS, [{"marketplace": "registry", "index": 0, **row} for row in pairs])
    put(warehouse, JUDGEMENTS, [{**row, "verdict": "accept"} for row in pairs])
    given = {"warehouse": warehouse, "embedder": Embedder()}
    given |= {"trainer": trainer or TrainerPolicy()}
    held = {k: dg.ResourceDefinition.hardcoded_resource(v) for k, v in given.items()}
    assets: list[Any] = [training_set]
    result = dg.materialize(assets, resources=held, raise_on_error=False)
    if not result.success:
        [check] = [
            evaluation
            for evaluation in result.get_asset_check_evaluations()
            if not evaluation.passed
        ]
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
    """The snapshots with the pairs of which `keep` is true."""
    snapshots, pairs = make_rows()
    return snapshots, [row for row in pairs if keep(row)]


def test_pairs_are_taken_by_what_their_executed_calls_say(warehouse):
    snapshots, pairs = make_rows()
    names = [row["pair_id"] for row in pairs if row["pair_id"]]
    tried = [
        {"execution_id": f"e1:{n}", "pair_ids": json.dumps([name]), "outcome": "tool_error",
         "blame": "caller", "proof": "refuted"}
        for n, name in enumerate(names[:2])
    ]  # fmt: skip
    put(warehouse, EXECUTIONS, [*tried])
    every = run_asset(warehouse, snapshots, pairs)
    valid = run_asset(warehouse, snapshots, pairs, TrainerPolicy(split=SetPolicy(executed="valid")))
    assert every["dagster/row_count"] == 60
    assert valid["dagster/row_count"] == 58
    assert valid["dropped"]["not valid when executed"] == 2


def test_ids_that_the_catalogue_joins_stand_on_one_side(warehouse):
    snapshots, pairs = make_rows()
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
    (
        lambda row: on_test_side(row) or row["server_id"] == "npm:song",
        "are of npm:song; expected two",
    ),
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
    assert (
        len(select_split_pool(pool, TRAIN))
        == 23
        < len(select_split_pool(pool, UNSEEN_SERVER))
        == 30
    )


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


def test_kept_trajectories_are_learnt_from_where_the_settings_say_so(tmp_path):
    warehouse = Warehouse(home=tmp_path / "home", state=tmp_path / "state")
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
    found = run_asset(warehouse, snapshots, pairs, TrainerPolicy(split=policy))
    assert found["dropped"] == {"stale_contract": 1}  # of a server that this home does not know
    kept = tables.read(TRAINING_SET).filter(task="trajectory").to_dicts()
    assert {row["server_id"]: row["split"] for row in kept} == {
        learnt: TRAIN, tested: UNSEEN_SERVER,
    }  # fmt: skip
    for row in kept:
        own = [one for one in json.loads(row["messages"]) if one["role"] == "assistant"]
        assert [one.get("weight") for one in own] == [0, None, None, None]
        assert len(json.loads(row["calls"])) == 2
