"""The page after a run: what did not start is told once a reason, and what to do next."""

from pathlib import Path

import pytest

from assets.servers.deploy.deployment_table import DEPLOYMENTS
from orchestration.cli.crawling import change_demo
from orchestration.factories import open_warehouse
from orchestration.runs.nightly import RunResult
from orchestration.runs.summary import summarise_run
from orchestration.settings.load import load_settings

ELSEWHERE = ("policy_denied", "the demo asks no server outside this host")
FAILED = {
    "npm:gone": ("not_found", "npm has no such package"),
    "remote:a": ELSEWHERE,
    "remote:b": ELSEWHERE,
    "remote:c": ELSEWHERE,
}


def test_servers_that_failed_alike_share_their_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOLMILL_HOME", str(tmp_path))
    settings = load_settings()
    tables = open_warehouse(settings).tables
    blank = dict.fromkeys(DEPLOYMENTS.columns)
    rows = [
        {**blank, "server_id": name, "status": "failed", "error_kind": kind, "hint": hint}
        for name, (kind, hint) in FAILED.items()
    ]
    tables.promote(tables.stage(DEPLOYMENTS, DEPLOYMENTS.frame(rows), "registry"), "test", [])
    page = summarise_run(settings, RunResult())
    assert page.count(ELSEWHERE[1]) == 1
    [row] = [line for line in page.splitlines() if ELSEWHERE[1] in line]
    assert row.split()[:2] == ["3", "servers"]
    for name in FAILED:
        assert page.count(name) == 1


def test_the_second_day_is_proposed_after_the_first_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOLMILL_HOME", str(tmp_path))
    settings = load_settings()
    assert "make run DAY=2" in summarise_run(settings, RunResult())
    assert "make run DAY=2" not in summarise_run(change_demo(settings, 2, None), RunResult())
    live = settings.model_copy(update={"source": "live"})
    assert "make run DAY=2" not in summarise_run(live, RunResult())


def test_after_a_failure_nothing_is_proposed_that_cannot_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOLMILL_HOME", str(tmp_path))
    run = {"job": "serve", "partition": None, "role": None, "success": False, "seconds": 1.0}
    run |= {"run_id": "none"}
    page = summarise_run(load_settings(), RunResult([run]))
    assert "toolmill doctor" in page
    assert "toolmill search" not in page
    assert "make run DAY=2" not in page
