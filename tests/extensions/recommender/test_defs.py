"""The assets of the reranker over a home: with too few calls, and with a log that holds enough."""

from pathlib import Path
from typing import Any

import dagster as dg

from assets.contracts.quarantined_tools import CLEAR
from assets.outcomes.policy import ReliabilityPolicy
from assets.servers.calls.log import CallLog
from extensions.recommender.defs import (
    ADAPTER,
    reranker_adapter,
    reranker_champion,
    reranker_evaluation,
)
from tests.support.reranked import DIGESTS, ROWS, draw_calls
from tests.vectors.conftest import WordEmbedder
from training.policies import TrainerPolicy
from training.releases.in_service import find_release_models, find_reranker_file
from warehouse.store import Warehouse

ASSETS = [reranker_adapter, reranker_evaluation, reranker_champion]


def materialize(warehouse: Warehouse) -> dict[str, dict[str, Any]]:
    given = {
        "warehouse": warehouse,
        "trainer": TrainerPolicy(),
        "embedder": WordEmbedder(),
        "reliability_policy": ReliabilityPolicy(),
    }
    made = dg.materialize(ASSETS, resources=given)
    return {
        event.asset_key.to_user_string() if event.asset_key else "": {
            name: value.value for name, value in event.materialization.metadata.items()
        }
        for event in made.get_asset_materialization_events()
    }


def write_log(home: Path, count: int) -> None:
    log = CallLog(home)
    for at, row in enumerate(draw_calls(count).to_dicts()):
        search = {"token": "ann", "search_id": str(at), "query": row["query_key"]}
        log.record({**search, "status": "searched", "words": row["query"]})
        ended = {"status": "ok"} if row["success"] else {"status": "tool_error", "blame": "tool"}
        tool = {"tool_id": row["tool_id"], "contract_digest": DIGESTS[row["tool_id"]]}
        log.record({**search, **ended, **tool, "call_id": str(at)})


def test_too_few_calls_train_nothing_and_enough_are_learnt_from(tmp_path: Path) -> None:
    warehouse = Warehouse(home=tmp_path, state=tmp_path / "state")
    told = materialize(warehouse)
    assert "too few outcomes: 0 calls" in told["reranker_adapter"]["learnt"]
    assert told["reranker_champion"]["model"] == "retriever-order"
    tables = warehouse.tables
    tables.promote(tables.stage(CLEAR, CLEAR.frame(ROWS), "registry"), "run", [])
    write_log(tmp_path, 300)
    told = materialize(warehouse)
    model = tables.read(ADAPTER)["model"][0]
    assert told["reranker_evaluation"]["summary"]["gain"]["value"] > 0.1
    # No held-out request was there to measure that none is pushed out: so it is not promoted.
    assert told["reranker_champion"]["promoted"] is False
    assert "requests: not measured" in told["reranker_champion"]["why"]
    assert find_reranker_file(tmp_path, {"reranker": model}).is_file()  # type: ignore[union-attr]
    assert find_release_models(tmp_path)["reranker"].model == "retriever-order"
