"""What a program started ends with it, also what ignores the signal or was orphaned."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from orchestration.runs.processes import find_tree, run_until_signalled
from tests.support.paths import ROOT

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
    """Every process that was given the test's mark in its environment."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("TEST_FOLDER") == str(folder):
                found.append(process)
        except psutil.Error:
            continue
    return [each for each in found if each.status() != psutil.STATUS_ZOMBIE]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_the_whole_tree(tmp_path: Path, number: signal.Signals) -> None:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TEST_FOLDER": str(tmp_path)}
    command = [sys.executable, "-c", RUNNER, str(tmp_path), STUBBORN]
    runner = subprocess.Popen(command, env=env)
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


def test_a_program_that_ends_by_itself_gives_its_status_and_leaves_nothing(tmp_path: Path) -> None:
    env = {**os.environ, "TEST_FOLDER": str(tmp_path)}
    left = "import subprocess, sys; subprocess.Popen(['sleep', '987654']); sys.exit(3)"
    assert run_until_signalled([sys.executable, "-c", left], cwd=tmp_path, env=env) == 3
    assert of_test(tmp_path) == []


def test_another_session_is_no_part_of_the_tree() -> None:
    other = subprocess.Popen(["sleep", "987654"], start_new_session=True)
    try:
        assert [each.pid for each in find_tree(other.pid)] == [other.pid]
        assert os.getpid() not in {each.pid for each in find_tree(other.pid)}
    finally:
        other.kill()
        other.wait()
