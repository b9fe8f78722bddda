"""The process that workers are copied from hears no Ctrl-C, and what is killed says nothing."""

import subprocess
import sys

import pytest

from tests.support.paths import ROOT

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


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str]:
    """What such a program prints, in a session of its own."""
    folder = tmp_path_factory.mktemp("warm")
    (folder / "program.py").write_text(WARM)
    return subprocess.run(
        [sys.executable, "program.py"],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=240,
        start_new_session=True,
    )


@pytest.mark.parametrize(
    "line",
    [
        pytest.param("worked\nprint 0\n", id="an interrupt while it imports leaves it working"),
        pytest.param("die -9\n", id="what a killed worker held is removed"),
        pytest.param("warn 0\n", id="warnings of libraries are not shown"),
        pytest.param("listening\nhear 0\n", id="a worker hears the interrupt when it listens"),
    ],
)
def test_each_worker_works_and_nothing_is_said(
    printed: subprocess.CompletedProcess[str], line: str
) -> None:
    assert line in printed.stdout
    assert printed.stderr == ""
