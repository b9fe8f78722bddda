"""kill -9 while calls are executed: what was answered is kept, what was in flight is listed."""

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.outcomes.running import Executing, make_contract, open_executing
from tests.support.python_process import PythonProcess

CONTRACT = make_contract()
SLOW = """
def do(m, x):
    time.sleep(0.3)
    open(os.path.join(DATA, f"note-{x}.txt"), "w").write("here")
    say(m, x)
calls(do, TOOLS)
"""


def execute_all(executing: Executing) -> list[dict]:
    server = executing.make_server(SLOW, [CONTRACT])
    jobs = [executing.make_job(server, CONTRACT, {"x": x}) for x in range(6)]
    return executing.run(jobs)


def main(folder: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        execute_all(open_executing(Path(folder), patch))


def test_a_killed_run_repeats_at_most_what_was_in_flight(tmp_path, monkeypatch):
    executing = open_executing(tmp_path, monkeypatch)
    code = f"from tests.outcomes.test_kill import main; main({str(tmp_path)!r})"
    victim = PythonProcess([sys.executable, "-c", code])
    deadline = time.monotonic() + 60
    while (done := executing.count_attempts().get(("execute", "done"), 0)) < 2:
        assert victim.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.kill(victim.pid, signal.SIGKILL)
    victim.wait()
    (tmp_path / "x" / "main.py").unlink()
    (tmp_path / "x").rmdir()
    rows = execute_all(executing)
    assert [row["outcome"] for row in rows] == ["useful"] * 6
    assert {row["changed"] for row in rows} == {f'["note-{x}.txt"]' for x in range(6)}
    assert len(executing.ledger.list_unknown()) <= 1
    counted = executing.count_attempts()
    assert 2 <= done < 6
    assert counted[("execute", "done")] == 6  # nothing that was answered is asked again
    assert list((tmp_path / "cache" / "worlds").iterdir()) == []  # the killed run's world too
