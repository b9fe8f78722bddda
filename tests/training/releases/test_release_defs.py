"""The assets release and router_index after a rollback, a hold, a lost model."""

import shutil

import dagster as dg

from assets.contracts.quarantined_tools import CLEAR, Decision, record_decision
from assets.vectors.encoders.minilm import MiniLM
from serving.index.folder import load_index, read_served_version
from serving.ranking.overlays import read_blocked
from tests.serving.conftest import SNAPSHOT_ROWS
from tests.training.promotions import consider_model, read_pointers
from training.policies import TrainerPolicy
from training.releases.defs import release, router_index
from training.releases.release import read_current_release, read_served
from training.releases.rollback import roll_back_release
from training.runtime.model_store import get_model_folder
from warehouse.home import claim_home
from warehouse.store import Warehouse

ONE_MARKET = [row for row in SNAPSHOT_ROWS if row["marketplace"] == "registry"]
LESS = ONE_MARKET[:2]


def run_assets(warehouse: Warehouse, assets: list[dg.AssetsDefinition]) -> dict[str, dict]:
    """Runs the assets; each asset's metadata."""
    given = {"warehouse": warehouse, "trainer": TrainerPolicy(), "embedder": MiniLM(threads=1)}
    made = dg.materialize(assets, resources=given)
    return {
        event.asset_key.to_user_string() if event.asset_key else "": {
            name: value.value for name, value in event.materialization.metadata.items()
        }
        for event in made.get_asset_materialization_events()
    }


def run_serving(warehouse: Warehouse, rows: list[dict]) -> dict[str, dict]:
    tables = warehouse.tables
    tables.promote(tables.stage(CLEAR, CLEAR.frame(rows), "registry"), "run", [])
    return run_assets(warehouse, [release, router_index])


def test_runs_after_a_rollback_serve_it_until_there_is_something_new(
    warehouse: Warehouse,
) -> None:
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
    before = read_pointers(home)
    metadata = run_serving(warehouse, ONE_MARKET)
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
