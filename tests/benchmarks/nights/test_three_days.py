"""Three days for real, in a process of its own that is killed after the first and started again."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.paths import ROOT

COMMAND = [sys.executable, "-m", "benchmarks.nights", "--days", "3", "--scale", "8"]


@pytest.mark.slow
def test_a_killed_month_goes_on_and_nothing_is_lost(tmp_path: Path) -> None:
    command = [*COMMAND, "--markets", "registry", "--root", str(tmp_path)]
    clean = {name: text for name, text in os.environ.items() if not name.startswith("TOOLMILL_")}
    given = {"cwd": ROOT, "env": clean, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    days = tmp_path / "days.jsonl"
    with subprocess.Popen(command, **given) as first:
        until = time.monotonic() + 300
        while not days.exists() and first.poll() is None and time.monotonic() < until:
            time.sleep(0.2)
        first.send_signal(signal.SIGKILL)
        shown = first.communicate()[0].decode()
    assert days.exists(), shown[-2000:]
    before = days.read_text()
    again = subprocess.run(command, timeout=300, **given)
    shown = again.stdout.decode()
    assert again.returncode in (0, 1), shown[-2000:]  # 1: a claim that did not hold is told of
    assert days.read_text().startswith(before)
    rows = [json.loads(line) for line in days.read_text().splitlines()]
    assert [row["day"] for row in rows] == [1, 2, 3]
    assert rows[0]["done"]["deploy"] > 0
    assert sum(rows[1]["done"].values()) == 0  # nothing changes on the second day
    assert all(row["planned"] == row["done"] for row in rows)
    assert (tmp_path / "nights.png").exists()
    broken = [one for row in rows for one in row["violations"]]
    assert not [one for one in broken if not one.startswith(("llm:", "deploy:"))], broken
