"""A run of one server: what it makes again, and that nothing of another server moves."""

import platform
import subprocess
import sys
from collections.abc import Iterable
from contextlib import nullcontext
from typing import Any

import dagster as dg
import pytest

from assets.one_server import keep_other_servers
from assets.partitions import ONE_SERVER_JOB, SERVER_TAG
from assets.servers.defs import deployments
from assets.servers.deploy.deployment_table import DEPLOYMENTS
from assets.servers.deploy.policy import DeployPolicy, MarketplaceLauncher
from orchestration.cli.crawling import change_demo
from orchestration.definitions import MEASURED, TRAINED
from orchestration.factories import open_warehouse
from orchestration.runs import nightly
from orchestration.runs.instance import (
    PROCESS_TAG,
    clear_dead_runs,
    find_run_process,
    make_process_tags,
)
from orchestration.runs.nightly import RunResult, UnknownServer, find_marketplaces, list_trainings
from orchestration.runs.summary import summarise_run
from orchestration.runs.workers import RunTask, TaskOutcome
from orchestration.sensors import INTERRUPTED
from orchestration.settings.load import load_settings
from orchestration.settings.model import Settings
from tests.orchestration.test_retrain_on_drift import publish
from tests.support.command import invoke_toolmill
from training.drift.decide import Decision, RetrainDecision, SkipDecision
from training.role import list_role_assets, list_trained_roles
from training.runtime import device
from warehouse.store import Warehouse


def test_others_rows_stay_and_none_are_lost():
    before = [{"server_id": item, "n": 1} for item in "abc"]
    result = [{"server_id": item, "n": 2} for item in "abd"]
    assert keep_other_servers(before, result, None) == result
    kept = keep_other_servers(before, result, "b")
    assert {row["server_id"]: row["n"] for row in kept} == {"a": 1, "b": 2, "c": 1}
    assert {row["server_id"] for row in keep_other_servers(before, [], "b")} == {"a", "c"}


def make_deployments_current(warehouse: Warehouse, market: str, *ids: str) -> None:
    facts = {"marketplace": market, "launch_digest": "0", "status": "failed"}
    rows = [{**facts, "server_id": item, "listing_id": item} for item in ids]
    staged = warehouse.tables.stage(DEPLOYMENTS, DEPLOYMENTS.frame(rows), market)
    warehouse.tables.promote(staged, "r", [])


def test_a_server_is_found_where_it_is_listed_and_an_unknown_one_by_near_names(warehouse):
    make_deployments_current(warehouse, "glama", "npm:@acme/files", "npm:weather")
    make_deployments_current(warehouse, "registry", "npm:@acme/files", "pypi:mail")
    assert find_marketplaces(warehouse, "npm:@acme/files") == ["glama", "registry"]
    assert find_marketplaces(warehouse, "npm:@acme/files", ["registry"]) == ["registry"]
    for asked in ("npm:@acme/filse", "acme", "ACME"):
        with pytest.raises(UnknownServer, match=r"near it: npm:@acme/files") as error:
            find_marketplaces(warehouse, asked)
        assert "\n" not in str(error.value)
    with pytest.raises(UnknownServer, match="among the 3; the ids are"):
        find_marketplaces(warehouse, "zzzzzzzzzzzzzzz\x1b[2J")
    with pytest.raises(UnknownServer, match="of glama"):
        find_marketplaces(warehouse, "pypi:mail", ["glama"])


def test_an_unknown_server_ends_the_command_before_anything_starts(warehouse):
    warehouse.check_writable()
    make_deployments_current(warehouse, "glama", "npm:@acme/files")
    done = invoke_toolmill(
        "run", "--server", "npm:acme/file", home=warehouse.home, DAGSTER_HOME="x"
    )
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].endswith("near it: npm:@acme/files")


def test_the_job_refuses_to_run_without_a_server(warehouse):
    make_deployments_current(warehouse, "private", "npm:a")
    given = {"warehouse": warehouse, "launcher": MarketplaceLauncher(DeployPolicy(warehouse.home))}
    held: Any = {k: dg.ResourceDefinition.hardcoded_resource(v) for k, v in given.items()}
    jobs = [dg.define_asset_job(ONE_SERVER_JOB, selection=["deployments"])]
    job = dg.Definitions(assets=[deployments], jobs=jobs, resources=held)
    how = {"partition_key": "private", "raise_on_error": False}
    result = job.resolve_job_def(ONE_SERVER_JOB).execute_in_process(**how)
    [failure] = [event for event in result.all_events if event.is_step_failure]
    assert SERVER_TAG in str(failure.step_failure_data)
    assert warehouse.ledger.counts() == {}


@dg.job
def nothing() -> None: ...


def started(instance: dg.DagsterInstance, tags: dict[str, str]) -> dg.DagsterRun:
    run = instance.create_run_for_job(nothing, tags=tags)
    event = dg.DagsterEvent(
        dg.DagsterEventType.PIPELINE_START.value, job_name="nothing", message="started"
    )
    instance.report_dagster_event(event, run.run_id)
    return run


def status(instance: dg.DagsterInstance, run: dg.DagsterRun) -> dg.DagsterRunStatus:
    run_by_id = instance.get_run_by_id(run.run_id)
    assert run_by_id
    return run_by_id.status


def a_dead_process() -> str:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return f"{process.pid}@12345.00"


def test_runs_of_dead_processes_of_this_host_alone_are_failed(instance):
    """Several hosts may keep their runs in one Postgres: a pid there says nothing here."""
    dead, ours = a_dead_process(), make_process_tags()[PROCESS_TAG]
    reused = f"{ours.split('@')[0]}@12345.00"
    failed = [started(instance, {PROCESS_TAG: mark}) for mark in (dead, reused)]
    elsewhere = started(instance, {PROCESS_TAG: f"{dead}@another-host"})
    left = [elsewhere, started(instance, {PROCESS_TAG: ours}), started(instance, {})]
    assert sorted(clear_dead_runs(instance)) == sorted(run.run_id for run in failed)
    assert {status(instance, run) for run in failed} == {dg.DagsterRunStatus.FAILURE}
    assert {status(instance, run) for run in left} == {dg.DagsterRunStatus.STARTED}
    assert clear_dead_runs(instance) == []
    assert find_run_process(elsewhere) is None
    assert ours.endswith(f"@{platform.node()}")


class FailingTrainings:
    """Workers whose trainings fail, recorded as runs of the job are."""

    interrupted = False

    def __init__(self, instance: dg.DagsterInstance) -> None:
        self._instance = instance

    def run(self, *tasks: RunTask) -> Iterable[TaskOutcome]:
        return [self._carry_out(task) for task in tasks]

    def _carry_out(self, task: RunTask) -> TaskOutcome:
        if task.job != "train":
            return TaskOutcome(task, "run", True, 0.0)
        failed = dg.DagsterRunStatus.FAILURE
        tags = {**dict(task.tags), **(dict([INTERRUPTED]) if self.interrupted else {})}
        run = self._instance.add_run(dg.DagsterRun("train", status=failed, tags=tags))
        return TaskOutcome(task, run.run_id, False, 0.0)


def test_run_once_counts_the_attempts_that_failed_on_a_set(instance, home, monkeypatch):
    counted: list[int] = []

    def decide(warehouse: Any, trainer: Any, failed: int = 0) -> dict[str, Decision]:
        counted.append(failed)
        made = SkipDecision(["fix it first"]) if failed >= 2 else RetrainDecision(["drift"])
        return {"retriever": made, "caller": made}

    for name, stand_in in (
        ("decide_on_drift", decide),
        ("WorkerPool", lambda *_: nullcontext(FailingTrainings(instance))),
        ("open_instance", lambda: nullcontext(instance)),
    ):
        monkeypatch.setattr(nightly, name, stand_in)
    publish(home, {"a": "1"})
    for _ in range(4):
        nightly.run_once(load_settings(), only=["registry"])
    assert counted == [0, 1, 2, 2], "two roles that fail in one run are one attempt"
    publish(home, {"a": "2"})
    monkeypatch.setattr(FailingTrainings, "interrupted", True)
    for _ in range(2):
        nightly.run_once(load_settings(), only=["registry"])
    assert counted[4:] == [0, 0], "another set is tried again, one that a person ended is not"


def test_the_roles_part_the_training_and_one_gpu_or_another_place_takes_one_job(monkeypatch):
    monkeypatch.setattr(device, "pick_device", lambda wanted: "cpu")
    tasks = list_trainings(Settings(), list_trained_roles())
    keys = [key.to_user_string() for task in tasks for key in task.list_assets() or []]
    assert len(tasks) == len(list_trained_roles())
    assert sorted(keys) == sorted([*TRAINED, *MEASURED])
    monkeypatch.setattr(device, "pick_device", lambda wanted: "cuda")
    names = tuple(list_role_assets("caller"))
    assert list_trainings(Settings(), ["caller"]) == [RunTask("train", names=names)]
    on_cpu = Settings.model_validate({"training": {"device": "cpu"}})
    assert list_trainings(on_cpu, ["caller"]) == [RunTask("train", role="caller")]
    monkeypatch.setattr(device, "pick_device", lambda wanted: "cpu")
    elsewhere = Settings.model_validate({"training": {"place": {"runs_on": "ray"}}})
    assert list_trainings(elsewhere, ["caller"]) == [RunTask("train", names=names)]
    assert RunTask("train").list_assets() is None
    # A task of some assets is told of as its job.
    task = RunTask("nightly", "registry", names=("listings", "deployments"))
    assert task.list_assets() == [dg.AssetKey("listings"), dg.AssetKey("deployments")]
    row = TaskOutcome(task, "1", success=True, seconds=0.1).as_row()
    assert row["job"] == "nightly"
    assert "names" not in row


ELSEWHERE = ("policy_denied", "the demo asks no server outside this host")
FAILED = {
    "npm:gone": ("not_found", "npm has no such package"),
    "remote:a": ELSEWHERE,
    "remote:b": ELSEWHERE,
    "remote:c": ELSEWHERE,
}


def test_servers_that_failed_alike_share_their_reason(home):
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


def test_the_second_day_is_proposed_after_the_first_alone_and_never_after_a_failure(home):
    settings = load_settings()
    next_day = "make run DAY=2"
    assert next_day in summarise_run(settings, RunResult())
    assert next_day not in summarise_run(change_demo(settings, 2, None), RunResult())
    live = settings.model_copy(update={"source": "live"})
    assert next_day not in summarise_run(live, RunResult())
    failed = {"job": "serve", "partition": None, "role": None, "success": False, "seconds": 1.0}
    page = summarise_run(settings, RunResult([{**failed, "run_id": "none"}]))
    assert "toolmill doctor" in page
    assert "toolmill search" not in page
    assert next_day not in page
