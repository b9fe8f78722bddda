"""Ledger and Dagster's runs and events in Postgres: a run is killed, and its Postgres goes away."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
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
    """What the runs of a test share: two databases, a home, the replicas' ports."""

    postgres: Postgres
    log: Path
    environment: dict[str, str]

    def start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "orchestration", "run", "-m", "registry"]
        with self.log.open("wb") as log:
            return subprocess.Popen(command, env=self.environment, cwd=ROOT, stdout=log, stderr=log)

    def run(self) -> int:
        return self.start().wait(PATIENCE_S)

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
        paid = "SELECT stage FROM attempts WHERE status = 'done'"
        return self.select(f"{paid} GROUP BY stage, key HAVING count(*) > 1")

    def run_until(self, stage: str, n: int) -> subprocess.Popen[bytes]:
        """A run under way of which so many attempts of a stage were begun."""
        process, deadline = self.start(), time.monotonic() + PATIENCE_S
        while self.count_done().get(stage, 0) < n:
            assert process.poll() is None, f"ended before {stage}: {self.log.read_text()[-3000:]}"
            assert time.monotonic() < deadline, f"never reached {stage}"
            time.sleep(0.05)
        return process


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    for package in ("psycopg2", "dagster_postgres"):
        pytest.importorskip(package, reason="uv pip install 'toolmill[postgres]'")
    skip_without_sandbox()
    with open_postgres() as postgres:
        settings = {
            "TOOLMILL_HOME": str(tmp_path / "home"),
            "TOOLMILL_DEMO__BASE_PORT": str(choose_base_port()),
            "TOOLMILL_LEDGER_URL": postgres.make_database("ledger"),
            "DAGSTER_POSTGRES_URL": postgres.make_database("events"),
            "TOOLMILL_DEMO__SCALE": "small",
            "TOOLMILL_SYNTHESIS__PAIRS_PER_TOOL": "1",
        }
        yield Place(postgres, tmp_path / "run.log", os.environ | settings)


def test_a_kill_and_a_postgres_that_goes_away_are_paid_for_once(place):
    killed = place.run_until("deploy", 3)
    killed.send_signal(signal.SIGKILL)
    killed.wait(60)
    process = place.run_until("llm:judge", 30)
    place.postgres.stop()
    assert process.wait(240) != 0, "its 64 workers wait for it together"
    log = place.log.read_text()
    assert "TOOLMILL_LEDGER_URL" in log or "DAGSTER_POSTGRES_URL" in log
    assert "Traceback" not in log
    assert "Retrying" not in log
    assert "mill:x@" not in log
    assert place.run() != 0
    assert len(place.log.read_text().splitlines()) < 5, "one line at once"
    place.postgres.start()
    assert place.run() == 0, place.log.read_text()[-3000:]
    assert place.list_paid_twice() == []
