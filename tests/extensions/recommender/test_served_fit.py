"""A reranker from its log to what a search shows: learnt, promoted, released, exported, rolled
back; by the assets, the router and the commands' functions as a run and a user use them."""

from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from assets.contracts.quarantined_tools import CLEAR
from assets.outcomes.policy import ReliabilityPolicy
from assets.servers.calls.log import CallLog
from assets.vectors.encoders.minilm import MiniLM
from extensions.recommender.defs import (
    reranker_adapter,
    reranker_champion,
    reranker_evaluation,
)
from extensions.recommender.online_learner import OnlineLearner
from serving.export import check_export, export_release, open_served
from serving.ranking.query import ToolQuery
from serving.router import Router, ServedRouter
from tests.support.reranked import DIGESTS, JOBS, ROWS, draw_calls
from training.policies import TrainerPolicy
from training.releases.defs import release, router_index
from training.releases.rollback import roll_back_release, undo_rollback
from training.sets.training_set import TRAINING_SET
from warehouse.home import claim_home
from warehouse.store import Warehouse

LEARNING = [reranker_adapter, reranker_evaluation, reranker_champion]
SERVING = [release, router_index]
# What the retriever answers with the tool that fails: its name is nearer.
QUERY = "tell the file of a bad city"


def materialize(warehouse: Warehouse, assets: list[Any], embedder: MiniLM) -> dict[str, Any]:
    """Metadata by asset."""
    given = {
        "warehouse": warehouse,
        "trainer": TrainerPolicy(),
        "embedder": embedder,
        "reliability_policy": ReliabilityPolicy(per_day=1_000),
    }
    made = dg.materialize(assets, resources=given)
    return {
        event.asset_key.to_user_string() if event.asset_key else "": {
            name: value.value for name, value in event.materialization.metadata.items()
        }
        for event in made.get_asset_materialization_events()
    }


def publish_contracts(warehouse: Warehouse) -> None:
    """The tools that a run has seen, and held-out requests for those that work."""
    tables = warehouse.tables
    tables.promote(tables.stage(CLEAR, CLEAR.frame(ROWS), "registry"), "run", [])
    rows = [
        dict.fromkeys(TRAINING_SET.columns)
        | {"pair_id": f"{job}-{at}", "server_id": "npm:good", "tool": f"good_{job}"}
        | {"split": "test_server", "task": "single", "instruction": f"{words} the good {job}"}
        for job in JOBS
        for at, words in enumerate(("tell me", "show", "what is"))
    ]
    tables.promote(tables.stage(TRAINING_SET, TRAINING_SET.frame(rows), None), "run", [])


def write_log(home: Path, count: int) -> None:
    """Searches in words and calls of what they showed, as a meta-server's log has them. Most
    are nearer to the tool that fails, by its name: the order alone does not tell what works."""
    log = CallLog(home)
    for at, row in enumerate(draw_calls(count).to_dicts()):
        city = "bad city" if at % 80 < 60 else "city"
        words = " ".join(row["query"].split()[:-1]).replace("city", city) + f" {at % 80}"
        search = {"token": "ann", "search_id": str(at), "query": f"q1:{at % 80}"}
        log.record({**search, "status": "searched", "words": words})
        ended = {"status": "ok"} if row["success"] else {"status": "tool_error", "blame": "tool"}
        tool = {"tool_id": row["tool_id"], "contract_digest": DIGESTS[row["tool_id"]]}
        log.record({**search, **ended, **tool, "call_id": str(at)})


def find_first(router: Router) -> str:
    return router.find(ToolQuery(QUERY, k=5)).hits[0].tool_id


@pytest.mark.slow  # it trains; six assets, an export and two rollbacks take some ten seconds
def test_a_promoted_reranker_is_served_exported_and_rolled_back(tmp_path: Path) -> None:
    warehouse = Warehouse(home=tmp_path / "home", state=tmp_path / "state")
    home, embedder = warehouse.home, MiniLM(threads=1)
    claim_home(home)
    publish_contracts(warehouse)
    before = materialize(warehouse, SERVING, embedder)
    assert before["router_index"]["reranker"] == "retriever-order"
    running = ServedRouter(home)
    assert find_first(running.current()) == "npm:bad::bad_file"

    write_log(home, 400)
    told = materialize(warehouse, LEARNING, embedder)
    assert told["reranker_champion"]["promoted"] is True, told["reranker_champion"]["why"]
    served = materialize(warehouse, SERVING, embedder)["router_index"]["reranker"]
    assert served == told["reranker_champion"]["model"]
    running.settle(30)
    assert find_first(running.settle(30)) == "npm:good::good_file"

    # The fit has read this log: following it teaches nothing twice.
    learner = OnlineLearner(running, CallLog(home), ReliabilityPolicy())
    while not learner.step():
        pass
    assert learner.learnt == 0

    out = tmp_path / "out"
    manifest = export_release(home, out)
    assert manifest["models"]["reranker"] == served
    card = (out / "cards" / "reranker.md").read_text()
    assert "AUC, calls that worked" in card
    assert check_export(out)["files"]
    elsewhere = open_served(out).current()
    assert find_first(elsewhere) == "npm:good::good_file"
    assert elsewhere.index.reranker == served

    rolled = roll_back_release(home)
    assert rolled.models["reranker"] == "retriever-order"
    assert rolled.rejected["reranker"] == [served]
    running.settle(30)
    assert find_first(running.settle(30)) == "npm:bad::bad_file"
    again = materialize(warehouse, [*LEARNING, *SERVING], embedder)
    assert again["reranker_champion"]["promoted"] is False
    assert again["router_index"]["reranker"] == "retriever-order"

    undo_rollback(home)
    running.settle(30)
    assert find_first(running.settle(30)) == "npm:good::good_file"
