"""A refresh reads executions and the log, and reaches the router's folder."""

import json
from pathlib import Path

import polars as pl
import pytest

from assets.outcomes.policy import ReliabilityPolicy
from assets.outcomes.reliability.measure import ReliabilityRefresh, list_versions, measure_home
from tests.outcomes.reliability.observing import fill_home
from warehouse.store import Warehouse

POLICY = ReliabilityPolicy()


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    result = Warehouse(home=tmp_path, state=tmp_path / "state")
    fill_home(result)
    return result


def by_version(result: ReliabilityRefresh) -> dict[tuple[str, str], dict]:
    return {(row["tool"], row["contract_digest"][3]): row for row in result.measured.rows}


def test_executions_and_the_log_are_weighed_together(warehouse):
    result = measure_home(warehouse, POLICY)
    rows = by_version(result)
    assert result.sources == {"execution": 3, "token:ci": 4}
    old, new = rows["read_file", "a"], rows["read_file", "b"]
    assert (old["calls"], old["failed"], old["current"]) == (3, 1, False)
    assert (new["calls"], new["carried"], new["changed"]) == (0, 1.5, "compatible")
    called = rows["write_file", "c"]
    assert (called["calls"], called["failed"], called["p50_s"]) == (4, 1, 0.25)
    assert json.loads(called["failures"]) == {"reported_failed": 1}


def test_versions_are_known_from_when_they_were_first_seen():
    row = {"server_id": "s", "tool": "t", "contract_digest": "c1:b", "first_seen": "2026-01-02"}
    change = {"server_id": "s", "tool": "t", "from_digest": "c1:a", "to_digest": "c1:b"}
    later = {**change, "run_date": "2026-01-03", "renamed_from": None}
    versions = list_versions([row, {**row, "tool": "u", "first_seen": "soon"}], [later])
    group = versions.filter(pl.col("tool_id") == "s::t").select("contract_digest", "first_at")
    assert dict(group.iter_rows()) == {"c1:b": 1767312000.0, "c1:a": 0.0}
    assert versions.filter(pl.col("tool_id") == "s::u")["first_at"].to_list() == [0.0]
