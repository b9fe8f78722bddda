"""The instance of a run: pools, SQLite that is not flushed per event, and Postgres on loopback."""

import os
import signal
import subprocess
import sys
import time
from collections import OrderedDict
from pathlib import Path
from typing import Any

import dagster as dg
import psutil
import pytest
import sqlalchemy

from extensions.upkeep.checks import check_instance
from extensions.upkeep.health import InspectedHome
from orchestration.definitions import defs
from orchestration.runs import instance as runs_instance
from orchestration.runs.instance import (
    POSTGRES,
    SLOTS,
    check_postgres,
    count_gpu_slots,
    explain_gone_postgres,
    make_config,
    open_instance,
    place_runs,
    relax_sqlite,
    size_pools,
)
from orchestration.runs.processes import find_tree, run_until_signalled
from tests.support.cases import cases
from tests.support.paths import ROOT
from tests.support.postgres import find_free_port, open_postgres
from warehouse.errors import UnusableInput


def list_limits(instance: dg.DagsterInstance) -> dict[str, int]:
    return {limit.name: limit.limit for limit in instance.event_log_storage.get_pool_limits()}


def test_trainings_share_the_cores_and_take_turns_on_a_gpu(tmp_path, monkeypatch):
    driver = tmp_path / "nvidiactl"
    monkeypatch.setattr(runs_instance, "_GPU_FILES", (tmp_path / "kfd", driver))
    assert [count_gpu_slots(cores) for cores in (1, 2, 16)] == [1, 2, 2]
    monkeypatch.setattr(runs_instance, "CORES", 2)
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        for slots in (2, 1):  # a GPU that is new is found by the next run
            size_pools(instance)
            assert list_limits(instance)["gpu"] == slots
            driver.touch()


def test_every_pool_of_an_asset_is_sized_before_a_run_could_make_it(tmp_path):
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        size_pools(instance)
        size_pools(instance)
        limits = list_limits(instance)
    assert limits == {**SLOTS, "gpu": count_gpu_slots(runs_instance.CORES)}
    result = [item for item in defs.assets or () if isinstance(item, dg.AssetsDefinition)]
    assert {item.op.pool for item in result if item.is_executable} - {None} == set(limits)


def test_the_connection_of_a_database_is_kept_and_its_log_is_not_flushed(tmp_path):
    relax_sqlite()
    relax_sqlite()
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        log: Any = instance.event_log_storage
        with log.index_connection() as connection:
            first, kept = connection.engine, connection.connection.dbapi_connection
            assert connection.execute(sqlalchemy.text("PRAGMA synchronous")).scalar() == 1
        with log.run_connection("a") as connection:
            assert connection.engine is not first
        with log.index_connection() as connection:
            assert connection.engine is first
            assert connection.connection.dbapi_connection is kept
        assert Path(log.path_for_shard("index") + "-wal").stat().st_size > 0


def test_a_replaced_database_is_opened_anew_and_the_last_ones_stay_open(tmp_path, monkeypatch):
    path, other = tmp_path / "a.db", tmp_path / "b.db"
    path.touch()
    other.touch()
    first = runs_instance._open_engine(f"sqlite:///{path}")
    assert runs_instance._open_engine(f"sqlite:///{path}") is first
    other.replace(path)
    assert runs_instance._open_engine(f"sqlite:///{path}") is not first
    monkeypatch.setattr(runs_instance, "_ENGINES", OrderedDict())
    monkeypatch.setattr(runs_instance, "_ENGINES_MOST", 3)
    engines = [runs_instance._open_engine(f"sqlite:///{tmp_path / name}.db") for name in "abcde"]
    for engine in engines:
        with engine.connect() as connection:
            assert connection.execute(sqlalchemy.text("SELECT 1")).scalar() == 1
    assert [held for _, held in runs_instance._ENGINES.values()] == engines[2:]


# One such process for all: it imports for some 4 core-seconds.
WARM = """
import multiprocessing, os, signal, warnings

def die():
    held.append(multiprocessing.get_context("spawn").Lock())
    os.kill(os.getpid(), signal.SIGKILL)

def warn():
    warnings.warn("of a library", FutureWarning)

def hear():
    from orchestration.runs.workers import silence_interrupts
    silence_interrupts()
    os.kill(os.getpid(), signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        os.kill(os.getpid(), signal.SIGINT)
    except KeyboardInterrupt:
        print("listening", flush=True)

def work(target, *args):
    worker = multiprocessing.get_context("forkserver").Process(target=target, args=args)
    worker.start()
    worker.join(60)
    print(target.__name__, worker.exitcode, flush=True)

held = []
if __name__ == "__main__":
    from orchestration.runs import processes
    processes.CORES = 2
    processes.warm_up()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.killpg(0, signal.SIGINT)  # while it imports
    work(print, "worked")
    work(die)
    warn()
    work(warn)
    work(hear)
"""


def test_each_worker_works_and_nothing_is_said(tmp_path):
    (tmp_path / "program.py").write_text(WARM)
    env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)}
    how: dict[str, Any] = {"capture_output": True, "text": True, "start_new_session": True}
    command = [sys.executable, "program.py"]
    printed = subprocess.run(command, cwd=tmp_path, env=env, timeout=240, **how)
    for line, what in {
        "worked\nprint 0\n": "an interrupt while it imports leaves it working",
        "die -9\n": "what a killed worker held is removed",
        "warn 0\n": "warnings of libraries are not shown",
        "listening\nhear 0\n": "a worker hears the interrupt when it listens",
    }.items():
        assert line in printed.stdout, what
    assert printed.stderr == ""


# Starts a child that ignores every polite signal, and a grandchild that its parent leaves behind.
STUBBORN = """
import pathlib, signal, subprocess, sys, time
for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(each, signal.SIG_IGN)
orphan = "import subprocess as s, sys; s.Popen(['sleep', '987654'])"
subprocess.Popen([sys.executable, "-c", orphan]).wait()
subprocess.Popen(["sleep", "987654"])
pathlib.Path(sys.argv[1]).touch()
time.sleep(987654)
"""
RUNNER = """
import os, pathlib, sys
from orchestration.runs.processes import run_until_signalled
here = pathlib.Path(sys.argv[1])
command = [sys.executable, "-c", sys.argv[2], str(here / "up")]
sys.exit(run_until_signalled(command, cwd=here, env=dict(os.environ), patience_s=0.5))
"""


def of_test(folder: Path) -> list[psutil.Process]:
    result = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("TEST_FOLDER") == str(folder):
                result.append(process)
        except psutil.Error:
            continue
    return [each for each in result if each.status() != psutil.STATUS_ZOMBIE]


@cases("number", signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
def test_a_signal_ends_the_whole_tree(tmp_path, number):
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TEST_FOLDER": str(tmp_path)}
    runner = subprocess.Popen([sys.executable, "-c", RUNNER, str(tmp_path), STUBBORN], env=env)
    try:
        until = time.monotonic() + 30
        while not (tmp_path / "up").exists() and time.monotonic() < until:
            time.sleep(0.05)
        assert len(of_test(tmp_path)) == 4  # the runner, the program, its child, the orphan
        runner.send_signal(number)
        assert runner.wait(timeout=60) == 0
        assert of_test(tmp_path) == []
    finally:
        for process in of_test(tmp_path):
            process.kill()


def test_a_program_that_ends_by_itself_gives_its_status_and_leaves_nothing(tmp_path):
    env = {**os.environ, "TEST_FOLDER": str(tmp_path)}
    left = "import subprocess, sys; subprocess.Popen(['sleep', '987654']); sys.exit(3)"
    assert run_until_signalled([sys.executable, "-c", left], cwd=tmp_path, env=env) == 3
    assert of_test(tmp_path) == []


def test_another_session_is_no_part_of_the_tree():
    other = subprocess.Popen(["sleep", "987654"], start_new_session=True)
    try:
        assert [each.pid for each in find_tree(other.pid)] == [other.pid]
        assert os.getpid() not in {each.pid for each in find_tree(other.pid)}
    finally:
        other.kill()
        other.wait()


@dg.op
def wait() -> None: ...


@dg.job
def waiting() -> None:
    wait()


def test_a_run_of_this_process_is_placed_where_the_ui_looks(tmp_path):
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        place_runs(instance)
        place_runs(instance)  # a second runner of one instance
        assert waiting.execute_in_process(instance=instance).success
        label = {".dagster/repository": "__repository__@toolmill"}
        [run] = instance.get_runs(dg.RunsFilter(tags=label))
        assert run.remote_job_origin is not None
        assert run.remote_job_origin.location_name == "toolmill"
        assert run.remote_job_origin.job_name == "waiting"


@pytest.fixture
def dagster_home(tmp_path, monkeypatch):
    place = tmp_path / "state" / "dagster"
    place.mkdir(parents=True)
    monkeypatch.setenv("DAGSTER_HOME", str(place))
    return place


@pytest.fixture
def postgres(dagster_home, monkeypatch):
    """A server, and an instance configured to keep its runs there."""
    pytest.importorskip("dagster_postgres", reason="uv pip install 'toolmill[postgres]'")
    with open_postgres() as server:
        monkeypatch.setenv(POSTGRES, server.url)
        (dagster_home / "dagster.yaml").write_bytes(make_config())
        yield server


@pytest.mark.slow
def test_runs_events_and_pools_lie_in_postgres_and_no_password(postgres, dagster_home):
    assert b"mill:x" not in (dagster_home / "dagster.yaml").read_bytes()
    with open_instance() as instance:
        size_pools(instance)
        assert waiting.execute_in_process(instance=instance).success
    with open_instance() as again:
        assert [run.status for run in again.get_runs()] == [dg.DagsterRunStatus.SUCCESS]
        limits = list_limits(again)
    assert limits.items() >= SLOTS.items()
    assert not list(dagster_home.rglob("*.db"))


class OperationalError(Exception):
    """As psycopg2 and SQLAlchemy name what a server that is gone comes to."""


def test_a_postgres_that_goes_away_is_one_line_and_without_one_nothing_is_added(monkeypatch):
    gone = OperationalError("connection to mill:x@db failed")
    monkeypatch.setenv(POSTGRES, "postgresql://mill:x@db/runs")
    with pytest.raises(UnusableInput, match=POSTGRES) as caught, explain_gone_postgres():
        raise gone
    assert "mill:x" not in str(caught.value)
    with pytest.raises(ValueError, match="else"), explain_gone_postgres():
        raise ValueError("something else")
    monkeypatch.delenv(POSTGRES)
    with pytest.raises(OperationalError), explain_gone_postgres():
        raise gone
    monkeypatch.delenv(POSTGRES, raising=False)
    assert b"postgres" not in make_config()
    monkeypatch.setenv(POSTGRES, "postgresql://127.0.0.1/x")
    monkeypatch.setattr("orchestration.runs.instance.find_spec", lambda _: None)
    with pytest.raises(UnusableInput, match=r"toolmill\[postgres\]"):
        make_config()


@pytest.mark.slow
def test_postgres_that_is_gone_is_one_line_and_loses_nothing(postgres, caplog):
    with open_instance() as instance:
        assert waiting.execute_in_process(instance=instance).success
    postgres.stop()
    with pytest.raises(UnusableInput, match=f"Postgres does not answer.*{POSTGRES}") as caught:
        open_instance()
    assert "mill:x" not in str(caught.value)
    assert not caplog.records
    postgres.start()
    with open_instance() as instance:
        assert waiting.execute_in_process(instance=instance).success
        assert instance.get_runs_count() == 2


@pytest.mark.slow
def test_the_doctor_reads_the_instance_by_the_given_address(postgres, tmp_path, monkeypatch):
    with open_instance() as instance:
        assert waiting.execute_in_process(instance=instance).success
    monkeypatch.setenv(POSTGRES, postgres.url)  # as in a shell of its own: without a driver
    looked = check_instance(InspectedHome(tmp_path, tmp_path / "state"))
    assert (looked.n, looked.findings) == (1, [])


def test_a_closed_port_is_one_line_before_anything_starts(monkeypatch):
    pytest.importorskip("psycopg2", reason="uv pip install 'toolmill[postgres]'")
    monkeypatch.setenv(POSTGRES, f"postgresql+psycopg2://u:secret@127.0.0.1:{find_free_port()}/d")
    with pytest.raises(UnusableInput, match=rf"connection refused.*unset {POSTGRES}") as caught:
        check_postgres()
    assert "secret" not in str(caught.value)
    monkeypatch.delenv(POSTGRES)
    check_postgres()
