"""The asset `reliability` over a home as runs and clients leave it."""

from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from assets.outcomes.policy import ReliabilityPolicy
from assets.outcomes.reliability.defs import check_current, check_intervals, reliability
from assets.outcomes.reliability.report import tabulate_categories
from assets.outcomes.reliability.table import RELIABILITY
from tests.outcomes.reliability.observing import fill_home
from warehouse.store import Warehouse


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    return Warehouse(home=tmp_path, state=tmp_path / "state")


def materialize(warehouse: Warehouse) -> dict[str, Any]:
    resources = {"warehouse": warehouse, "reliability_policy": ReliabilityPolicy()}
    result = dg.materialize([reliability], resources=resources)
    [event] = result.asset_materializations_for_node("reliability")
    return {name: value.value for name, value in event.metadata.items()}


def test_calls_of_a_category_are_counted_together() -> None:
    calls = [("files", 6, 3), ("mail", 5, 0), ("files", 4, 2)]
    rows = [{"category": name, "calls": n, "failed": failed} for name, n, failed in calls]
    *_, files, mail = tabulate_categories(rows).strip().splitlines()
    assert "files | 2 | 10 | 0.50" in files
    assert "mail | 1 | 5 | 1.00" in mail


def test_it_publishes_versions_and_the_overlay(warehouse: Warehouse) -> None:
    fill_home(warehouse)
    visible = materialize(warehouse)
    assert (visible["dagster/row_count"], visible["tools"], visible["called"]) == (3, 2, 1)
    assert "write_file" in visible["least_reliable"]
    assert "read_file" in visible["new_contracts"]
    assert (warehouse.home / "router" / "RELIABILITY.json").exists()
    version = warehouse.tables.head(RELIABILITY.name)
    assert materialize(warehouse)["version_moved"] is False
    assert warehouse.tables.head(RELIABILITY.name) == version


def test_a_first_run_without_any_call_is_an_empty_table(warehouse: Warehouse) -> None:
    assert materialize(warehouse)["least_reliable"] == "none"


def test_the_audit_sees_what_cannot_be() -> None:
    row = {"server_id": "s", "tool": "t", "current": True, "low": 0.2, "mean": 0.5, "high": 0.9}
    assert check_intervals([row]).passed
    assert not check_intervals([row, {**row, "mean": 0.1}]).passed
    assert check_current([row, {**row, "current": False}]).passed
    assert not check_current([row, row]).passed
