"""`toolmill reliability` as a person meets it."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from assets.outcomes.policy import ReliabilityPolicy
from assets.outcomes.reliability.measure import measure_home
from assets.outcomes.reliability.table import RELIABILITY
from orchestration.cli.app import app
from tests.outcomes.reliability.observing import fill_home, publish
from warehouse.home import claim_home
from warehouse.store import Warehouse


@pytest.fixture
def warehouse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Warehouse:
    home = tmp_path / "home"
    monkeypatch.setenv("TOOLMILL_HOME", str(home))
    claim_home(home)
    result = Warehouse(home=home, state=home / "state")
    fill_home(result)
    publish(result, RELIABILITY, measure_home(result, ReliabilityPolicy()).measured.rows)
    return result


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["reliability", *arguments])


def test_it_shows_the_least_reliable_first_and_one_tool_by_its_id(warehouse):
    rows = json.loads(run("--json").stdout)
    assert [row["mean"] for row in rows] == sorted(row["mean"] for row in rows)
    assert {row["n"] for row in rows} == {0.0, 3.0, 4.0}
    [row] = json.loads(run("npm:files::write_file", "--json").stdout)
    assert (row["calls"], row["failed"]) == (4, 1)
    output = run("write_file").stdout
    assert "npm:files::write_file" in output
    assert "reported_failed" in output
    unknown = run("npm:none::x")
    assert unknown.exit_code == 2
    assert "npm:none::x" in unknown.stderr
