"""Ledger and Dagster's runs and events in Postgres: real runs of a marketplace, killed, and with a
Postgres that goes away."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.runs import choose_base_port, skip_without_sandbox
from tests.support.paths import ROOT
from tests.support.postgres import Postgres, open_postgres

pytestmark = pytest.mark.slow
PATIENCE_S = 900


@dataclass
class Place:
    """What the runs of a test share: two databases, the replicas' ports."""

    postgres: Postgres
    folder: Path
    environment: dict[str, str]

    def start(self, machine: str) -> subprocess.Popen[bytes]:
        """A run of one marketplace on a machine: a working copy of its own."""
        settings = {"TOOLMILL_HOME": str(self.folder / machine)}
        command = [sys.executable, "-m", "orchestration", "run", "-m", "registry"]
        with self._get_log(machine).open("wb") as log:
            return subprocess.Popen(
                command, env=self.environment | settings, cwd=ROOT, stdout=log, stderr=log
            )

    def run(self, machine: str) -> int:
        return self.start(machine).wait(PATIENCE_S)

    def read_log(self, machine: str) -> str:
        return self._get_log(machine).read_text()

    def _get_log(self, machine: str) -> Path:
        return self.folder / f"{machine}.log"

    def select(self, sql: str) -> list[tuple]:
        """Rows of the ledger; none before it is there."""
        import psycopg2

        url = self.environment["TOOLMILL_LEDGER_URL"]
        try:
            with closing(psycopg2.connect(url)) as database, database.cursor() as cursor:
                cursor.execute(f"SET search_path = toolmill; {sql}")
                return cursor.fetchall()
        except psycopg2.errors.UndefinedTable:
            return []

    def count_done(self) -> dict[str, int]:
        return dict(self.select("SELECT stage, count(*) FROM attempts GROUP BY stage"))

    def list_paid_twice(self) -> list[tuple]:
        """(stage, when the first of them was answered) of effects that were paid for again."""
        return self.select(
            "SELECT stage, min(finished_at) FROM attempts WHERE status = 'done'"
            " GROUP BY stage, key HAVING count(*) > 1"
        )

    def wait_for(self, process: subprocess.Popen[bytes], machine: str, stage: str, n: int) -> None:
        """Until so many attempts of a stage were begun."""
        deadline = time.monotonic() + PATIENCE_S
        while self.count_done().get(stage, 0) < n:
            assert process.poll() is None, f"ended before {stage}: {self.read_log(machine)[-3000:]}"
            assert time.monotonic() < deadline, f"never reached {stage}"
            time.sleep(0.05)

    def kill_at(self, machine: str, stage: str, n: int) -> None:
        process = self.start(machine)
        self.wait_for(process, machine, stage, n)
        process.send_signal(signal.SIGKILL)
        process.wait(60)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Place]]:
    for package in ("psycopg2", "dagster_postgres"):
        pytest.importorskip(package, reason="uv pip install 'toolmill[postgres]'")
    skip_without_sandbox()
    ports = {"TOOLMILL_DEMO__BASE_PORT": str(choose_base_port())}
    with open_postgres() as postgres:

        def make(name: str) -> Place:
            environment = {
                **os.environ,
                **ports,
                "TOOLMILL_LEDGER_URL": postgres.make_database(f"{name}_ledger"),
                "DAGSTER_POSTGRES_URL": postgres.make_database(f"{name}_events"),
                "TOOLMILL_DEMO__SCALE": "small",
                "TOOLMILL_SYNTHESIS__PAIRS_PER_TOOL": "1",
            }
            return Place(postgres, tmp_path_factory.mktemp(name), environment)

        yield make


def test_a_killed_run_goes_on_where_it_was_and_pays_for_nothing_twice(shared):
    place = shared("killed")
    place.kill_at("first", "deploy", 3)
    place.kill_at("first", "llm:judge", 30)
    assert place.run("first") == 0, place.read_log("first")[-3000:]
    assert place.list_paid_twice() == []


def test_a_postgres_that_goes_away_ends_the_run_and_the_next_goes_on(shared):
    place = shared("gone")
    process = place.start("first")
    place.wait_for(process, "first", "llm:judge", 30)
    place.postgres.stop()
    assert process.wait(240) != 0, "its 64 workers wait for it together"
    log = place.read_log("first")
    assert "TOOLMILL_LEDGER_URL" in log or "DAGSTER_POSTGRES_URL" in log
    assert "Traceback" not in log
    assert "Retrying" not in log
    assert "mill:x@" not in log
    refused = place.run("first")
    assert refused != 0
    assert len(place.read_log("first").splitlines()) < 5, "one line at once"
    place.postgres.start()
    assert place.run("first") == 0, place.read_log("first")[-3000:]
    assert place.list_paid_twice() == []
