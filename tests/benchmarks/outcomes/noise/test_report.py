import pytest

from benchmarks.outcomes.noise.describe import describe_table
from benchmarks.outcomes.noise.endpoints import AFTER, BEFORE
from benchmarks.outcomes.noise.render import render_report
from benchmarks.outcomes.noise.report import (
    measure_drift,
    summarise_categories,
    summarise_drift,
    summarise_values,
    value_fixed,
    value_methods,
)
from benchmarks.outcomes.noise.streams import DriftResult
from extensions.recommender.methods import SuccessPrior
from tests.benchmarks.outcomes.noise.stages import make_stage

STAGE, METHODS = make_stage(), {"toolflix": SuccessPrior}  # what stands in for the rival here


def test_the_report_tells_each_method_beside_what_learns_nothing() -> None:
    values = value_fixed(STAGE) | value_methods(STAGE, METHODS, 6, (0, 1))
    success = summarise_values(STAGE, values)
    assert success["oracle"]["top"]["success"]["value"] == 1
    assert success["retriever"]["top"]["less toolflix"]["n"] == 2
    assert "less toolflix" not in success["toolflix"]["top"]
    figures = {
        "log": {"success": success},
        "categories": summarise_categories(STAGE, values),
        "drift": measure_drift(STAGE, METHODS, (0,), 3),
    }
    text = render_report(figures)
    assert "| log | top | less toolflix | by rank |" in text
    assert "| oracle | 1.000 [1.000, 1.000] |" in text
    assert "recovered after" in text


def test_a_table_is_described_by_its_counts() -> None:
    found = describe_table(STAGE)
    assert found["tasks"] == {"train": 6, "held-out": 2}
    assert (found["real"], found["variants"], found["newcomers"]) == (1, 1, 1)
    assert found["any of five"] == 1
    assert found["success by fault"]["real"] == {"share": 0.0, "n": 8}


def test_what_a_change_cost_is_told_beside_the_oracle_and_over_seeds() -> None:
    def play(after: float) -> DriftResult:
        return DriftResult(0.5, {0: 0.2, 50: after})

    found = summarise_drift([play(0.5), play(0.4), play(0.5)], {BEFORE: 0.9, AFTER: 0.8})
    assert (found["seeds"], found["before"]) == (3, 0.5)
    assert found["after"] == {0: 0.2, 50: round(1.4 / 3, 4)}
    # The oracle has lost .1 too: of .3 that went, .2 is the change's.
    assert found["cost"][0]["value"] == pytest.approx(0.2)
    assert found["cost"][50]["value"] == pytest.approx(0.8 - 1.4 / 3 - 0.4, abs=1e-4)
    assert found["outcomes to recover 90%"] == {"value": 50, "interval": [50, 50]}
    slow = summarise_drift([play(0.5), play(0.2), play(0.2)], {BEFORE: 0.9, AFTER: 0.8})
    assert slow["outcomes to recover 90%"] == {"value": None, "interval": [50, None]}
