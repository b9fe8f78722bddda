"""What the report gathers beside the run's own models."""

from typing import Any

import pytest

from extensions.bench.ablation_run import ABLATIONS
from tests.extensions.bench.test_agent import publish
from tests.training.report_figures import MODEL, OTHER, call_rows, calls
from tests.training.reporting.test_report import NOTHING
from training.evaluation.caller_table import CALLER_EVALUATION
from training.reporting.report import compare_with_champion, render_ablations, write_report
from training.role import BASELINE
from warehouse.store import Warehouse


def evaluated(*models: str) -> list[dict[str, Any]]:
    known = {MODEL: 0.55, BASELINE: 0.35, OTHER: 0.5}
    rows = [row for model in models for row in call_rows(model, known[model])]
    return [{name: row.get(name) for name in CALLER_EVALUATION.columns} for row in rows]


def test_the_champion_is_the_third_model_that_was_asked(warehouse: Warehouse) -> None:
    publish(warehouse, CALLER_EVALUATION, evaluated(MODEL, BASELINE, OTHER))
    found = compare_with_champion(warehouse, calls())
    assert found is not None
    assert (found["candidate"], found["incumbent"]) == (MODEL, OTHER)
    assert found["gain"] == calls(MODEL, OTHER)["gain"]


@pytest.mark.parametrize("models", [(MODEL, BASELINE), ()])
def test_without_a_third_model_there_is_none(warehouse: Warehouse, models: tuple[str, ...]) -> None:
    publish(warehouse, CALLER_EVALUATION, evaluated(*models))
    assert compare_with_champion(warehouse, calls()) is None
    assert compare_with_champion(warehouse, None) is None
    assert render_ablations(warehouse) is None


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
    facts = {**NOTHING, "ablations": render_ablations(warehouse)}
    part = write_report(warehouse.home, "n", facts).read_text().partition("\n## Ablations\n")[2]
    assert "### Retriever" in part
    assert "20 items" in part
