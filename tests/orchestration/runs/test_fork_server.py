"""The process that workers are copied from hears no Ctrl-C, and what is killed says nothing."""

import subprocess
import sys
from pathlib import Path

from tests.support.paths import ROOT

WARM = """
import multiprocessing, os, signal
if __name__ == "__main__":
    from orchestration.runs import fork_server
    fork_server.CORES = 2
    fork_server.warm_up()
"""
INTERRUPTED = """
if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.killpg(0, signal.SIGINT)
    worker = multiprocessing.get_context("forkserver").Process(target=print, args=("worked",))
    worker.start()
    worker.join(60)
    print(worker.exitcode)
"""
KILLED = """
def die():
    held.append(multiprocessing.get_context("spawn").Lock())
    os.kill(os.getpid(), signal.SIGKILL)

held = []
if __name__ == "__main__":
    worker = multiprocessing.get_context("forkserver").Process(target=die)
    worker.start()
    worker.join(60)
    print(worker.exitcode)
"""
WARNED = """
import warnings
def warn():
    warnings.warn("of a library", FutureWarning)

if __name__ == "__main__":
    warn()
    worker = multiprocessing.get_context("forkserver").Process(target=warn)
    worker.start()
    worker.join(60)
    print(worker.exitcode)
"""
LISTENING = """
def hear():
    from orchestration.runs.workers import silence_interrupts
    silence_interrupts()
    os.kill(os.getpid(), signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        os.kill(os.getpid(), signal.SIGINT)
    except KeyboardInterrupt:
        print("listening", flush=True)

if __name__ == "__main__":
    worker = multiprocessing.get_context("forkserver").Process(target=hear)
    worker.start()
    worker.join(60)
    print(worker.exitcode)
"""


def run_warm(tmp_path: Path, body: str) -> tuple[str, str]:
    """What such a program prints, out and err, in a session of its own."""
    (tmp_path / "program.py").write_text(WARM + body)
    done = subprocess.run(
        [sys.executable, "program.py"],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        start_new_session=True,
    )
    return done.stdout, done.stderr


def test_an_interrupt_while_it_imports_leaves_it_working_and_silent(tmp_path: Path) -> None:
    assert run_warm(tmp_path, INTERRUPTED) == ("worked\n0\n", "")


def test_what_a_killed_worker_held_is_removed_without_a_word(tmp_path: Path) -> None:
    assert run_warm(tmp_path, KILLED) == ("-9\n", "")


def test_warnings_of_libraries_are_not_shown(tmp_path: Path) -> None:
    assert run_warm(tmp_path, WARNED) == ("0\n", "")


def test_a_worker_hears_the_interrupt_when_it_listens(tmp_path: Path) -> None:
    assert run_warm(tmp_path, LISTENING) == ("listening\n0\n", "")
