"""kill -9 in the middle of any stage, run again: the same tables, nothing paid twice.

The run that is killed is the real command in a process of its own; it is killed as soon as the
ledger shows that a stage is under way, again and again, and the last run goes on to the end.
"""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

import pytest
from typer.testing import CliRunner

from orchestration.cli.app import app
from orchestration.runs.processes import CORES
from tests.e2e.runs import choose_base_port, skip_without_sandbox
from tests.support.paths import ROOT
from tests.support.python_process import PythonProcess
from warehouse.store import Warehouse

# Attempts that may be under way at once: servers in the sandbox, requests of one role.
IN_FLIGHT = 8 * CORES  # marketplaces run side by side, one process a core
DATA = (
    "listings", "deployments", "snapshots", "findings", "clear_contracts", "contract_vectors",
    "pairs", "judgements", "training_set",
)  # fmt: skip
TRAINED = ("retriever_adapter", "caller_adapter", "retriever_evaluation", "caller_evaluation")


@dataclass(frozen=True)
class Course:
    """Which runs are killed where: (stage, attempts of it in the ledger at which it is killed)."""

    points: tuple[tuple[str, int], ...]
    options: tuple[str, ...] = ()
    settings: dict[str, str] = field(default_factory=dict)
    tables: tuple[str, ...] = (*DATA, *TRAINED)
    ends_here: bool = False  # in this process, where a new one imports for half of its time


WHOLE = Course((("page", 2), ("deploy", 3), ("llm:generator", 4), ("llm:judge", 40)))
# Eight more marketplaces and the roles were 230 of 270 seconds. A point costs some 20: a launch
# leaves work under way that nobody knows the end of, offline judging none.
FEW_PAIRS = {"TOOLMILL_SYNTHESIS__PAIRS_PER_TOOL": "1"}
SHORT = Course((("deploy", 3),), ("-m", "registry"), FEW_PAIRS, DATA, ends_here=True)


@pytest.fixture(scope="module")
def ports() -> dict[str, str]:
    """The same for all runs: the addresses are in the listings."""
    return {"TOOLMILL_DEMO__BASE_PORT": str(choose_base_port())}


def make_environment(home: Path, ports: dict[str, str], course: Course) -> dict[str, str]:
    given = {"TOOLMILL_HOME": str(home), "TOOLMILL_DEMO__SCALE": "small"}
    given |= {"TOOLMILL_TRAINING__RETRIEVER__EPOCHS": "4"}
    given |= {"TOOLMILL_TRAINING__EVALUATION__ITEMS": "3"}  # one that knows nothing writes on
    return ports | course.settings | given


def start_run(home: Path, ports: dict[str, str], course: Course) -> subprocess.Popen:
    environment = {**os.environ, **make_environment(home, ports, course)}
    command = [sys.executable, "-m", "orchestration", "run", *course.options]
    log = (home.parent / f"{home.name}.log").open("ab")
    return PythonProcess(command, env=environment, cwd=ROOT, stdout=log, stderr=log)


def count_attempts(home: Path, stage: str) -> int:
    path = home / "state" / "ledger.db"
    if not path.exists():
        return 0
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=5) as db:
        try:
            query = "SELECT COUNT(*) FROM attempts WHERE stage = ?"
            return db.execute(query, (stage,)).fetchone()[0]
        except sqlite3.OperationalError:
            return 0  # the table is not there yet


def kill_at(home: Path, ports: dict[str, str], course: Course, stage: str, count: int) -> None:
    process, deadline = start_run(home, ports, course), time.monotonic() + 400
    while count_attempts(home, stage) < count:
        assert process.poll() is None, f"the run ended before {stage}: {read_log_tail(home)}"
        assert time.monotonic() < deadline, f"never reached {stage}: {read_log_tail(home)}"
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait(60)


def read_log_tail(home: Path) -> str:
    return (home.parent / f"{home.name}.log").read_text()[-3000:]


def run_here(home: Path, ports: dict[str, str], course: Course) -> None:
    """The command as on a machine of one core."""
    with (
        mock.patch.dict(os.environ, make_environment(home, ports, course)),
        mock.patch("orchestration.runs.workers.CORES", 1),
        mock.patch("orchestration.runs.processes.CORES", 1),
    ):
        os.environ.pop("DAGSTER_HOME", None)
        ended = CliRunner().invoke(app, ["run", *course.options])
    with (home.parent / f"{home.name}.log").open("a") as log:
        log.write(ended.output)
    assert ended.exit_code == 0, read_log_tail(home)


def run_to_end(home: Path, ports: dict[str, str], course: Course) -> None:
    if course.ends_here:
        run_here(home, ports, course)
        return
    assert start_run(home, ports, course).wait(580) == 0, read_log_tail(home)


def read_versions(home: Path, names: tuple[str, ...]) -> dict[str, str]:
    tables = Warehouse(home=home, state=home / "state").tables
    return {
        f"{name}/{part}": head.digest
        for name in names
        for part in tables.partitions(name)
        if (head := tables.head(name, part))
    }


@pytest.fixture(scope="module", params=["short", pytest.param("whole", marks=pytest.mark.slow)])
def course(request: pytest.FixtureRequest) -> Course:
    return {"short": SHORT, "whole": WHOLE}[request.param]


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory, ports: dict[str, str], course: Course) -> Path:
    skip_without_sandbox()
    home = tmp_path_factory.mktemp("calm")
    run_to_end(home, ports, course)
    return home


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory, ports: dict[str, str], course: Course) -> Path:
    """The home of runs that were killed at stage after stage; the last went on to the end."""
    skip_without_sandbox()
    home = tmp_path_factory.mktemp("killed")
    for stage, count in course.points:
        kill_at(home, ports, course, stage, count)
    run_to_end(home, ports, course)
    return home


def test_the_run_after_a_kill_makes_every_table_and_pays_for_nothing_twice(killed, course):
    found = {name.split("/")[0] for name in read_versions(killed, course.tables)}
    assert found == set(course.tables)
    with sqlite3.connect(killed / "state" / "ledger.db") as db:
        twice = db.execute(
            "SELECT stage, COUNT(*) FROM attempts WHERE status = 'done'"
            " GROUP BY key HAVING COUNT(*) > 1"
        ).fetchall()
        counts = dict(db.execute("SELECT status, COUNT(*) FROM attempts GROUP BY status"))
    assert twice == []
    assert 1 <= counts["unknown"] <= IN_FLIGHT * len(course.points)
    assert "started" not in counts
    assert "runs of killed processes were failed first" in read_log_tail(killed)


# A run that nobody disturbs is 26 core-seconds. By default what is written and trained after a kill
# is compared with an undisturbed course where it is made (`synthesis/writing`, `training/caller`),
# and every call is counted (`outcomes/test_run.py`).
@pytest.mark.slow
def test_a_run_killed_at_stage_after_stage_ends_with_the_same_tables(calm, killed, course):
    assert read_versions(killed, course.tables) == read_versions(calm, course.tables)
