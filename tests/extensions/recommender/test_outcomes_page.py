"""The asset `outcomes_report` over a home with calls, and over one without any."""

from typing import Any

import dagster as dg
import pytest

from assets.outcomes.policy import ReliabilityPolicy
from extensions.recommender.defs import outcomes_report
from extensions.recommender.outcomes_page import gather_outcome_facts
from tests.extensions.recommender.called_home import BROKEN, DAYS, MODEL, fill_called_home
from warehouse.store import Warehouse


@pytest.fixture(scope="module")
def called(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    home = tmp_path_factory.mktemp("called")
    warehouse = Warehouse(home=home, state=home / "state")
    fill_called_home(warehouse, 1_500)
    return warehouse


POLICY = ReliabilityPolicy(per_day=1e6)


def materialize(warehouse: Warehouse) -> tuple[dict[str, Any], str]:
    """(metadata, data version)."""
    resources = {"warehouse": warehouse, "reliability_policy": POLICY}
    result = dg.materialize([outcomes_report], resources=resources)
    [event] = result.asset_materializations_for_node("outcomes_report")
    version = (event.tags or {})["dagster/data_version"]
    return {name: value.value for name, value in event.metadata.items()}, version


def test_every_part_has_its_figures(called):
    shown, _ = materialize(called)
    assert "Nothing to show" not in shown["report"]
    assert (called.home / "reports/outcomes/report.md").read_text().strip() == shown["report"]
    assert shown["calls"] == pytest.approx(1_500)
    facts = gather_outcome_facts(called, POLICY)
    assert len(facts["days"]["all"]) == DAYS
    assert [fact["model"] for fact in facts["calibration"]] == [MODEL]
    assert facts["calibration"][0]["brier"] < facts["calibration"][0]["constant"]
    [pair] = facts["alike"]["shown"]
    assert (pair["better"]["tool_id"], pair["apart"]) == ("npm:files::read", True)
    [changed] = facts["changes"]["shown"]
    assert (changed["tool_id"], changed["verdict"]) == (BROKEN, -1)
    assert changed["before"]["value"] > 0.6 > 0.2 > changed["after"]["value"]


def test_the_same_calls_are_the_same_page_and_the_words_of_others_make_no_cell(called):
    (shown, version), (_, again) = materialize(called), materialize(called)
    assert version == again
    [line] = [line for line in shown["report"].splitlines() if "| yes |" in line]
    assert line.count(" | ") == 5


def test_a_home_without_a_call_says_why_each_part_is_empty(tmp_path):
    shown, _ = materialize(Warehouse(home=tmp_path, state=tmp_path / "state"))
    parts = shown["report"].split("\n## ")[1:]
    assert len(parts) == 4
    assert all("Nothing to show yet because " in part for part in parts)
