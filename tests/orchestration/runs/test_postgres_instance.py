"""Runs and events of Dagster in Postgres: a real one on loopback, started by an ordinary user."""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import dagster as dg
import pytest

from orchestration.runs.instance import POSTGRES, SLOTS, make_config, open_instance, size_pools
from warehouse.errors import UnusableInput

NOBODY = pwd.getpwnam("nobody").pw_uid


def find_program(name: str) -> str:
    found = shutil.which(name) or next(
        (str(one) for one in Path("/usr/lib/postgresql").glob(f"*/bin/{name}")), None
    )
    if found is None:
        pytest.skip(f"no {name} on this host (Debian: apt-get install postgresql)")
    return found


def find_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Postgres:
    """A cluster in a folder of its own, which can be stopped and started."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, find_free_port()
        self.as_user = {"user": NOBODY, "group": NOBODY} if os.geteuid() == 0 else {}
        self.process: subprocess.Popen[bytes] | None = None
        folder.mkdir(mode=0o700)
        if self.as_user:
            os.chown(folder, NOBODY, NOBODY)
        self.url = f"postgresql://mill:x@127.0.0.1:{self.port}/postgres"
        words = ["-D", str(folder / "data"), "-U", "mill", "-A", "trust", "--no-sync"]
        self._run(find_program("initdb"), *words)

    def _run(self, *command: str) -> None:
        done = subprocess.run(
            command, cwd="/", capture_output=True, text=True, timeout=120, **self.as_user
        )
        assert done.returncode == 0, done.stderr

    def start(self) -> None:
        words = ["-D", str(self.folder / "data"), "-h", "127.0.0.1", "-p", str(self.port)]
        words += ["-c", "fsync=off", "-k", ""]
        command = [find_program("postgres"), *words]
        self.process = subprocess.Popen(
            command, cwd="/", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **self.as_user
        )
        for _ in range(200):
            ready = [find_program("pg_isready"), "-h", "127.0.0.1", "-p", str(self.port), "-q"]
            if subprocess.run(ready, check=False).returncode == 0:
                return
            time.sleep(0.1)
        pytest.fail("postgres does not start")

    def stop(self) -> None:
        if self.process:
            self.process.send_signal(signal.SIGINT)
            self.process.wait(timeout=60)
            self.process = None


@pytest.fixture
def postgres():
    pytest.importorskip("dagster_postgres", reason="uv pip install 'toolmill[postgres]'")
    with tempfile.TemporaryDirectory(prefix="pg-", dir="/tmp") as place:
        os.chmod(place, 0o755)
        server = Postgres(Path(place) / "cluster")
        server.start()
        yield server
        server.stop()


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    return tmp_path


def count(warehouse: Path) -> dg.JobDefinition:
    @dg.op
    def tell() -> int:
        (warehouse / "ran").open("a").write("x")
        return 1

    @dg.job
    def one() -> None:
        tell()

    return one


@pytest.mark.slow
def test_runs_events_and_pools_lie_in_postgres_and_no_password_in_a_file(
    postgres, home, monkeypatch
):
    monkeypatch.setenv(POSTGRES, postgres.url)
    (home / "dagster.yaml").write_bytes(make_config())
    assert b"mill:x" not in (home / "dagster.yaml").read_bytes()
    with open_instance() as instance:
        size_pools(instance)
        assert count(home).execute_in_process(instance=instance).success
    with open_instance() as again:
        assert [run.status for run in again.get_runs()] == [dg.DagsterRunStatus.SUCCESS]
        limits = {one.name: one.limit for one in again.event_log_storage.get_pool_limits()}
    assert limits.items() >= SLOTS.items()
    assert not list(home.rglob("*.db"))


@pytest.mark.slow
def test_postgres_that_is_gone_is_one_clear_line_and_nothing_is_lost(
    postgres, home, monkeypatch, caplog
):
    monkeypatch.setenv(POSTGRES, postgres.url)
    (home / "dagster.yaml").write_bytes(make_config())
    with open_instance() as instance:
        assert count(home).execute_in_process(instance=instance).success
    postgres.stop()
    with pytest.raises(UnusableInput, match=f"Postgres does not answer.*{POSTGRES}") as caught:
        open_instance()
    assert "mill:x" not in str(caught.value)
    assert not caplog.records
    postgres.start()
    with open_instance() as instance:
        assert count(home).execute_in_process(instance=instance).success
        assert instance.get_runs_count() == 2
    assert (home / "ran").read_text() == "xx"


def test_without_the_package_the_error_says_how_to_get_it(home, monkeypatch):
    monkeypatch.setenv(POSTGRES, "postgresql://127.0.0.1/x")
    monkeypatch.setattr("orchestration.runs.instance.find_spec", lambda _: None)
    with pytest.raises(UnusableInput, match=r"toolmill\[postgres\]"):
        make_config()


def test_without_the_variable_nothing_is_added(monkeypatch):
    monkeypatch.delenv(POSTGRES, raising=False)
    assert b"postgres" not in make_config()
