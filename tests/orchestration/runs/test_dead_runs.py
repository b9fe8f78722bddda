"""A run whose process is gone is failed and frees its pool slot; a living one is left alone."""

import platform
import subprocess
import sys
from collections.abc import Iterator

import dagster as dg
import pytest

from orchestration.runs.instance import (
    PROCESS_TAG,
    clear_dead_runs,
    find_run_process,
    make_process_tags,
)


@dg.job
def nothing() -> None: ...


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as made:
        yield made


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


def test_a_run_of_a_dead_process_is_failed(instance: dg.DagsterInstance) -> None:
    run = started(instance, {PROCESS_TAG: a_dead_process()})
    assert clear_dead_runs(instance) == [run.run_id]
    assert status(instance, run) == dg.DagsterRunStatus.FAILURE
    assert clear_dead_runs(instance) == []


def test_a_living_process_and_a_run_of_the_daemon_are_left_alone(instance) -> None:
    ours, theirs = started(instance, make_process_tags()), started(instance, {})
    assert clear_dead_runs(instance) == []
    assert status(instance, ours) == status(instance, theirs) == dg.DagsterRunStatus.STARTED


def test_a_reused_pid_is_another_process(instance: dg.DagsterInstance) -> None:
    pid = make_process_tags()[PROCESS_TAG].split("@")[0]
    run = started(instance, {PROCESS_TAG: f"{pid}@12345.00"})
    assert clear_dead_runs(instance) == [run.run_id]


def test_a_run_of_another_host_is_left_alone(instance: dg.DagsterInstance) -> None:
    """Several hosts may keep their runs in one Postgres: a pid there says nothing here."""
    run = started(instance, {PROCESS_TAG: f"{a_dead_process()}@another-host"})
    assert clear_dead_runs(instance) == []
    assert status(instance, run) == dg.DagsterRunStatus.STARTED
    assert find_run_process(run) is None
    assert make_process_tags()[PROCESS_TAG].endswith(f"@{platform.node()}")
