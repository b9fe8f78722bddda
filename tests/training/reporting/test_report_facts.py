"""What the report gathers beside the run's own models."""

from typing import Any

import pytest

from extensions.bench.ablation_run import ABLATIONS
from tests.extensions.bench.agent.test_agent_run import publish
from tests.training.report_figures import MODEL, OTHER, call_rows, calls
from training.evaluation.caller_table import CALLER_EVALUATION
from training.evaluation.saved import AGENT, save_evaluation
from training.reporting.extra_sections import render_ablation_part
from training.reporting.gather import gather_report_facts
from training.role import BASELINE
from warehouse.store import Warehouse


def evaluated(*models: str) -> list[dict[str, Any]]:
    known = {MODEL: 0.55, BASELINE: 0.35, OTHER: 0.5}
    rows = [row for model in models for row in call_rows(model, known[model])]
    return [{name: row.get(name) for name in CALLER_EVALUATION.columns} for row in rows]


def test_the_champion_is_the_third_model_that_was_asked(warehouse: Warehouse) -> None:
    publish(warehouse, CALLER_EVALUATION, evaluated(MODEL, BASELINE, OTHER))
    found = gather_report_facts(warehouse, calls())["caller_champion"]
    assert (found["candidate"], found["incumbent"]) == (MODEL, OTHER)
    assert found["gain"] == calls(MODEL, OTHER)["gain"]


@pytest.mark.parametrize("models", [(MODEL, BASELINE), ()])
def test_without_a_third_model_there_is_none(warehouse: Warehouse, models: tuple[str, ...]) -> None:
    publish(warehouse, CALLER_EVALUATION, evaluated(*models))
    save_evaluation(warehouse.home, AGENT, "a", {"n": 1})
    found = gather_report_facts(warehouse, calls())
    assert (found["caller_champion"], found["ablations"], found["outside"]) == (None, None, [])
    assert [one["result"] for one in found["agent"]] == [{"n": 1}]
    assert gather_report_facts(warehouse)["caller_champion"] is None


def test_ablations_are_a_part_of_the_report(warehouse: Warehouse) -> None:
    common = {"role": "retriever", "split": "unseen_server", "minutes": 1.0, "pool": 60}
    common |= {"pairs": 100, "model": "m" * 64, "training_set": "s" * 64}
    arms = (("untrained", 0), ("filtered", 7), ("raw", 7))
    rows = [
        {
            **common,
            "arm": arm,
            "seed": seed,
            "item_id": f"i{n}",
            "server_id": f"s{n % 3}",
            "tool": f"t{n % 5}",
            "text_digest": f"d{n % 5}",
            "rank": 1 + (n + len(arm)) % 3,
        }
        for arm, seed in arms
        for n in range(20)
    ]
    publish(warehouse, ABLATIONS, rows)
    part = render_ablation_part(gather_report_facts(warehouse)["ablations"])
    assert part.startswith("## Ablations\n")
    assert "### Retriever" in part
    assert "20 items" in part
