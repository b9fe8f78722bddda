"""The report's section on calls that really ran."""

import json
from typing import Any

from assets.outcomes.table import EXECUTIONS
from assets.synthesis.tables import JUDGEMENTS, PAIRS
from tests.extensions.bench.agent.test_agent_run import publish
from training.evaluation.retriever import RETRIEVER_EVALUATION
from training.reporting.executions import render_executions_part, summarise_executions
from warehouse.store import Warehouse


def executed(n: int, **facts: Any) -> dict[str, Any]:
    named = {"execution_id": f"e1:{n}", "pair_ids": json.dumps([f"p1:{n}"]), "outcome": "useful"}
    return {**dict.fromkeys(EXECUTIONS.columns), **named, **facts}


def ranked(n: int, rank: int) -> dict[str, Any]:
    empty = dict.fromkeys(RETRIEVER_EVALUATION.columns)
    return {**empty, "model": "m", "pair_id": f"p1:{n}", "rank": rank}


def test_nothing_executed_is_no_section(warehouse: Warehouse) -> None:
    assert summarise_executions(warehouse) is None
    assert render_executions_part(None) == ""


def test_shares_are_of_accepted_pairs_and_proved_ones_are_a_split_of_their_own(
    warehouse: Warehouse,
) -> None:
    empty = dict.fromkeys(JUDGEMENTS.columns)
    judged = [{**empty, "pair_id": f"p1:{n}", "verdict": "accept"} for n in range(8)]
    publish(warehouse, JUDGEMENTS, [*judged, {**empty, "pair_id": "p1:9", "verdict": "reject"}])
    blank = {**dict.fromkeys(PAIRS.columns), "status": "ok", "verdict": "accept"}
    publish(warehouse, PAIRS, [{**blank, "pair_id": f"p1:{n}"} for n in (*range(8), 9)])
    rows = [
        executed(0, proof="proved"),
        executed(1, proof="unproved"),
        executed(2, outcome="tool_error", blame="caller", proof="refuted"),
        executed(3, outcome="refused", blame="credentials", status="failed"),
        executed(4),
        executed(9, outcome="tool_error", blame="tool"),  # of a pair that was not accepted
    ]
    publish(warehouse, EXECUTIONS, rows)
    publish(warehouse, RETRIEVER_EVALUATION, [ranked(0, 1), ranked(1, 5), ranked(2, 1)])
    found = summarise_executions(warehouse, "m")
    assert found is not None
    shares = {name: (one["value"], one["n"]) for name, one in found["pairs"].items()}
    assert shares == {
        "executed": (0.5, 8),
        "useful": (0.75, 4),
        "invalid": (0.25, 4),
        "proved": (0.25, 4),
        "refuted": (0.25, 4),
    }
    recall = {name: (one["value"], one["n"]) for name, one in found["recall_at_1"].items()}
    assert recall["all pairs"] == (0.6667, 3)
    assert recall["proved by execution"] == (1.0, 1)
    text = render_executions_part(found)
    assert text.startswith("## Calls that really ran\n")
    assert "Outcomes: useful 3, refused 1, tool" in text
    assert "Laid to: caller 1, credentials 1, tool 1." in text
    assert found["calls"]["n"] == 5
