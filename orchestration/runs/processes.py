"""Processes: a program that is ended with all that it starts, and the server that forks workers."""

import contextlib
import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing import forkserver, resource_tracker
from pathlib import Path
from types import FrameType

import psutil

_ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class _StopSignal(BaseException):
    """A signal that ends the program; no `except Exception` on the way swallows it."""


def run_until_signalled(
    command: Sequence[str], *, cwd: Path, env: Mapping[str, str], patience_s: float = 20.0
) -> int:
    """Runs a command in its own session; returns its exit status, 0 after a signal. SIGINT, SIGTERM
    and SIGHUP interrupt it; a second one, or `patience_s`, kills all that it started."""
    process = None
    try:
        with _raise_on_signals():
            process = subprocess.Popen(command, cwd=cwd, env=env, start_new_session=True)
            return process.wait()
    except _StopSignal:
        if process is not None:
            with contextlib.suppress(_StopSignal), _raise_on_signals():
                # Interrupts a process and waits until all of its session is gone, at most
                # `patience_s`.
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, signal.SIGINT)
                until = time.monotonic() + patience_s
                while find_tree(process.pid) and time.monotonic() < until:
                    time.sleep(0.1)
        return 0
    finally:
        if process is not None:
            kill_tree(process.pid)
            process.wait()


@contextlib.contextmanager
def _raise_on_signals() -> Iterator[None]:
    def end(_: int, __: FrameType | None) -> None:
        raise _StopSignal

    before = {each: signal.signal(each, end) for each in _ENDS}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def kill_tree(pid: int) -> None:
    while tree := find_tree(pid):
        for process in tree:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(tree, timeout=5)


def find_tree(pid: int) -> list[psutil.Process]:
    processes: dict[int, psutil.Process] = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            if os.getsid(process.pid) == pid and process.status() != psutil.STATUS_ZOMBIE:
                processes |= {p.pid: p for p in (process, *process.children(recursive=True))}
    return [each for each in processes.values() if each.is_running()]


_STORAGES = [f"dagster._core.storage.{name}" for name in ("event_log", "runs", "schedules")]
CORES = max(1, len(os.sched_getaffinity(0)))


def warm_up() -> None:
    """Starts it, so that it imports what workers need while the caller imports the same. Workers
    are not forked from the caller: a copy would hold the locks of threads it has not."""
    silence_warnings()
    if CORES > 1:
        # Pandas and the rest are most of LanceDB's import; LanceDB starts threads, so no fork of it
        # is safe.
        preload = ["orchestration.runs.workers", *_STORAGES]
        preload += ["pandas", "pyarrow.dataset", "lance_namespace"]
        forkserver.set_forkserver_preload(preload)
        resource_tracker.ensure_running()  # it unblocks the signal, so it goes first
        # Until it has imported all that, Ctrl-C would end it with a traceback; workers inherit
        # the mask, and lift it once they have a handler of their own.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            forkserver.ensure_running()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def silence_warnings() -> None:
    """Hides library warnings here and in children unless the user chose some; the resource
    tracker's tell of semaphores of killed workers, which it removed."""
    if not sys.warnoptions and "PYTHONWARNINGS" not in os.environ:
        os.environ["PYTHONWARNINGS"] = "ignore"
        warnings.simplefilter("ignore")
